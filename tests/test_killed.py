"""Whole runs through the command line that are killed, and go on."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from shrinkfx.system.folders import DRAFT

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[1]
CASE = ROOT / "repros" / "compile_lowering_raises"

HOLDS = """
import sys
import zipfile

archive = zipfile.ZipFile(sys.argv[1])
texts = [archive.read(name) for name in archive.namelist() if name.endswith(".json")]
text = b"".join(texts)
sys.exit(not (b"aten.cumsum" in text and b"aten.tanh" in text))
"""

MODEL = """
import sys
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(8))

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = torch.relu(layer(x))
            x = torch.cumsum(x, 1) if number == 3 else torch.tanh(x) + x
        return x.sum()

torch.manual_seed(0)
exported = torch.export.export(Model(), (torch.randn(4, 8),))
torch.export.save(exported, sys.argv[1])
"""


SMALL_BYTES = 3 << 20


@dataclass(frozen=True)
class Run:
    """A run that was not disturbed, and how to start it elsewhere.

    Attributes:
        tool: what a command line begins with.
        options: all but the output folder.
        whole: what it came to in one go.
        seconds: how long that took.
    """

    tool: Sequence[str]
    options: Sequence[str]
    whole: Path
    seconds: float

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return call([*self.tool, *arguments])

    def start(self, out: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self.tool, *self.options, "--out", str(out)],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def call(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, timeout=900, check=False, capture_output=True, text=True
    )


ENDED = "ended before"
TOOL = [sys.executable, "-m", "shrinkfx"]


def in_one_go(tool: Sequence[str], options: Sequence[str], whole: Path) -> Run:
    started = time.monotonic()
    done = call([*tool, *options, "--out", str(whole)])
    assert done.returncode == 0, done.stderr
    return Run(tool, options, whole, time.monotonic() - started)


@pytest.fixture(name="torchless", scope="module")
def _torchless(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of seconds: all but the worker is real."""
    folder = tmp_path_factory.mktemp("torchless")
    script = Path(__file__).parent / "support" / "torchless" / "command_line.py"
    tool = [sys.executable, str(script), str(folder)]
    subprocess.run(tool, check=True)
    judge = f"{sys.executable} -S {folder / 'judge.py'} {{}}"
    run = in_one_go(
        tool, [str(folder / "model.pt2"), "--check", judge], folder / "whole"
    )
    summary = outcome(run.whole)  # of a listing, whose search may be killed as well
    assert summary["minimal_by_kind"]["sizes"] == "1-minimal"
    return run


@pytest.fixture(name="either", params=["--jobs=1", "--jobs=3"])
def _either(torchless: Run, request: pytest.FixtureRequest) -> Run:
    """A run that asks ahead, or does not: it comes to the same."""
    return replace(torchless, options=[*torchless.options, request.param])


@pytest.fixture(name="checked", scope="module")
def _checked(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("checked")
    model, check = folder / "model.pt2", folder / "holds.py"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MODEL, str(model)],
        check=True,
        timeout=300,
    )
    check.write_text(HOLDS)
    judge = f"{sys.executable} -S {check} {{}}"
    return in_one_go(TOOL, [str(model), "--check", judge], folder / "whole")


@pytest.fixture(name="compiled", scope="module")
def _compiled(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("compiled")
    export = [sys.executable, "-W", "ignore", str(ROOT / "repros" / "export.py")]
    model = folder / "model.pt2"
    subprocess.run([*export, CASE.name, str(model)], check=True, timeout=300)
    options = [str(model), "--preload", str(CASE / "planted.py"), "--jobs=2"]
    return in_one_go(TOOL, options, folder / "whole")


def answers(out: Path) -> dict[tuple[str, ...], str]:
    """Map each question that was answered to its outcome; once, or it fails."""
    if not (out / "journal.sqlite").exists():
        return {}
    ask = (
        "SELECT digest, form, build, outcome FROM checks"
        " WHERE outcome IS NOT NULL ORDER BY number"
    )
    with closing(sqlite3.connect(out / "journal.sqlite")) as db:
        try:
            rows = db.execute(ask).fetchall()
        except sqlite3.OperationalError:  # killed before there were tables
            return {}
    found = {tuple(question): outcome for *question, outcome in rows}
    assert len(found) == len(rows), "a question was answered twice"
    return found


def outcome(out: Path) -> dict[str, Any]:
    summary = json.loads((out / "summary.json").read_text())
    # Time is another, and so is what a repeated DESCRIBE adds.
    for name in ("seconds", "cpu_seconds", "builds", "jobs"):
        del summary[name]
    return dict(summary)


def text_of_repro(out: Path) -> str:
    said = (out / "repro.py").read_text().replace(out.name, "OUT")
    return re.sub(r" --jobs=\d", "", said)


def kill_and_resume(
    run: Run,
    out: Path,
    moment: float | Callable[[], bool],
    marked: Callable[[], list[int]],
) -> str:
    """Kill a run after some seconds, or as soon as something holds."""
    started = run.start(out)
    if callable(moment):
        while not moment() and started.poll() is None:
            time.sleep(0.02)
    else:
        time.sleep(moment)
    ended = started.poll() is not None
    if not ended:
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    before = answers(out)
    deadline = time.monotonic() + 60  # the machine may be busy
    while marked() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not marked(), "the server outlived its parent"

    resumed = run.call("--resume", str(out))
    nothing = (
        "no such folder",
        "the folder contains no run",
        ": the run was killed before it started",
    )
    if any(words in resumed.stderr for words in nothing):
        return "not begun"
    assert resumed.returncode == 0, resumed.stderr
    after = answers(out)
    assert list(after)[: len(before)] == list(before)
    assert after == answers(run.whole)
    assert outcome(out) == outcome(run.whole)
    assert text_of_repro(out) == text_of_repro(run.whole)
    assert not list(out.glob(f"{DRAFT}*"))
    return ENDED if ended else f"{len(before)} answered"


def test_resume_of_a_finished_run_reports_its_result_and_changes_nothing(
    torchless: Run, tmp_path: Path
) -> None:
    whole = torchless.whole
    before = {path: path.read_bytes() for path in whole.iterdir()}
    for again in (
        torchless.call("--resume", str(whole)),
        torchless.call(*torchless.options, "--out", str(whole)),
    ):
        assert again.returncode == 0, again.stderr
        assert ": this run finished on" in again.stderr
        assert ": reduced: 30 -> 3 operators" in again.stderr
    other = torchless.call(*torchless.options, "--timeout=99", "--out", str(whole))
    assert other.returncode == 2
    assert "another run" in other.stderr
    assert {path: path.read_bytes() for path in whole.iterdir()} == before


def kill_at_random(
    run: Run, times: int, folder: Path, marked: Callable[[], list[int]]
) -> None:
    """Kill so many runs; one that ended before tells how long they take at most."""
    draw, longest, killed = random.Random(times), run.seconds, 0
    while killed < times:
        moment = draw.uniform(0.0, longest)
        out = folder / f"out-{moment:.6f}"
        found = kill_and_resume(run, out, moment, marked)
        print(f"killed after {moment:.1f} of {longest:.1f} s: {found}")
        killed += found != ENDED
        longest = moment if found == ENDED else longest


@pytest.mark.parametrize(
    "times", [4, pytest.param(50, marks=pytest.mark.slow)], ids=str
)
def test_killed_run_resumes_to_the_same_result(
    either: Run, tmp_path: Path, marked: Callable[[], list[int]], times: int
) -> None:
    kill_at_random(either, times, tmp_path, marked)


def test_run_killed_during_simplification_resumes_to_the_same_result(
    either: Run, tmp_path: Path, marked: Callable[[], list[int]]
) -> None:
    forms = [form for _, form, _ in answers(either.whole)]
    first, many = forms.index("source"), forms.count("source")
    assert many > 4
    out = tmp_path / "among-listings"
    found = kill_and_resume(
        *(either, out, lambda: len(answers(out)) > first + many // 2, marked)
    )
    assert found != ENDED


def test_run_with_parallel_jobs_finds_the_same_result(
    torchless: Run, tmp_path: Path
) -> None:
    options = [*torchless.options, "--jobs=3"]
    ahead = in_one_go(torchless.tool, options, tmp_path / "ahead").whole
    assert json.loads((ahead / "summary.json").read_text())["jobs"] == 3
    assert list(answers(ahead).items()) == list(answers(torchless.whole).items())
    assert outcome(ahead) == outcome(torchless.whole)
    assert text_of_repro(ahead) == text_of_repro(torchless.whole)


@pytest.mark.slow
def test_killed_run_with_torch_resumes_to_the_same_result(
    checked: Run, tmp_path: Path, marked: Callable[[], list[int]]
) -> None:
    kill_at_random(checked, 15, tmp_path, marked)


@pytest.mark.aoti
def test_killed_run_with_compilation_resumes_to_the_same_result(
    compiled: Run, tmp_path: Path, marked: Callable[[], list[int]]
) -> None:
    kill_at_random(compiled, 5, tmp_path, marked)


def listened_to(
    run: Run, out: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*run.tool, *run.options, "--no-progress", "--out", str(out)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **(environment or {})},
    )


def read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if words in line:
            return line
    raise AssertionError("".join(said))


def check_resumed(run: Run, out: Path) -> None:
    """Go on after the baseline, which is not repeated."""
    resumed = run.call("--resume", str(out))
    assert resumed.returncode == 0, resumed.stderr
    assert "(from the journal)" in resumed.stderr
    assert "baseline: running --check on the input program" not in resumed.stderr
    assert answers(out) == answers(run.whole)
    assert outcome(out) == outcome(run.whole)


def test_second_interrupt_stops_at_once_and_keeps_the_journal_intact(
    either: Run, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = listened_to(either, out)
    read_until(process, " -> ")
    os.killpg(process.pid, signal.SIGINT)
    told = read_until(process, "interrupted: writing and verifying")
    assert (
        "s; press Ctrl-C again to stop now without losing anything; to "
        f"continue later: shrinkfx --resume {out}\n"
    ) in told
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 4
    assert "interrupted before a repro was verified" in said
    assert f"shrinkfx --resume {out}" in said
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["status"], summary["stopped"]) == ("stopped", "interrupted")
    assert summary["verified"] == {"runs": 0, "failed": 0}
    assert summary["operators"]["after"] < summary["operators"]["before"]
    check_resumed(either, out)


def test_spent_budget_is_reported_with_the_resume_command_and_in_the_repro(
    torchless: Run, tmp_path: Path
) -> None:
    out, early = (
        tmp_path / "out",
        "# The search stopped early (limit of 3 checks reached)",
    )
    stopped = [*torchless.options, "--out", str(out), "--max-checks", "3"]
    done = torchless.call(*stopped)
    assert done.returncode == 4, done.stderr
    way_on = f"next:     shrinkfx --resume {out} --max-checks N"
    assert done.stdout.splitlines()[-1] == way_on
    assert early in (out / "repro.py").read_text()
    resumed = torchless.call("--resume", str(out), "--max-checks", "9999")
    assert resumed.returncode == 0, resumed.stderr
    assert "--resume" not in resumed.stdout
    assert early not in (out / "repro.py").read_text()


def test_interrupt_during_verification_prints_a_summary_and_ends(
    torchless: Run, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = listened_to(torchless, out)
    read_until(process, "writing repro.py")
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 4
    assert "--resume" in said
    summary = json.loads((out / "summary.json").read_text())
    assert summary["operators"]["after"] == 1  # of the listing
    assert (out / "minimal.pt2").is_file()
    is_named = "written, but its verification did not end:" in said
    assert is_named == (out / "repro.py").exists()
    check_resumed(torchless, out)


def test_worker_killed_during_loading_is_not_blamed_on_the_files(
    torchless: Run, tmp_path: Path
) -> None:
    script, out = Path(torchless.tool[1]), tmp_path / "out"
    home = shutil.copytree(torchless.tool[2], tmp_path / "home")
    run = Run([sys.executable, str(script), str(home)], torchless.options, out, 0.0)
    starter = home / "python"
    text = starter.read_text()
    starter.write_text("#!/bin/sh\nkill -9 $$\n")
    done = run.call(*run.options, "--out", str(out))
    assert done.returncode == 1, done.stderr
    assert "died with SIGKILL while loading, twice: something outside " in done.stderr
    assert f"to resume: shrinkfx --resume {out}" in done.stderr
    starter.write_text(text)
    done = run.call("--resume", str(out))
    assert done.returncode == 0, done.stderr
    assert answers(out) == answers(torchless.whole)


def test_removed_temporary_folder_ends_a_run_that_can_be_resumed(
    either: Run, tmp_path: Path
) -> None:
    out, temporary = tmp_path / "out", tmp_path / "temporary"
    temporary.mkdir()
    process = listened_to(either, out, {"TMPDIR": str(temporary)})
    read_until(process, " -> ")
    while temporary.exists():  # something may be written while it is removed
        shutil.rmtree(temporary, ignore_errors=True)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 2, said
    assert "the folder was removed during the run" in said
    assert f"shrinkfx --resume {out}" in said
    assert "Traceback" not in said
    check_resumed(either, out)


@pytest.fixture(name="small_disk")
def _small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    size = f"size={SMALL_BYTES}"
    mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False).returncode:
        pytest.skip("a small disk takes the right to mount one")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path) -> None:
    with suppress(OSError), path.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.mark.parametrize("place", ["out", "tmp"])
def test_full_disk_ends_a_run_that_can_be_resumed_with_free_space(
    either: Run, tmp_path: Path, small_disk: Path, place: str
) -> None:
    out = small_disk / "out" if place == "out" else tmp_path / "out"
    temporary = small_disk if place == "tmp" else tmp_path
    process = listened_to(either, out, {"TMPDIR": str(temporary)})
    read_until(process, " -> ")
    filler = small_disk / "filler"
    deadline, said = time.monotonic() + 300, ""
    while process.returncode is None and time.monotonic() < deadline:
        fill(filler)  # a check that has ended has freed space
        with suppress(subprocess.TimeoutExpired):
            _, said = process.communicate(timeout=0.1)
    assert process.returncode == 2, said
    assert "free some space" in said
    assert f"shrinkfx --resume {out}" in said
    assert "Traceback" not in said
    before = answers(out)
    assert before
    filler.unlink()
    check_resumed(either, out)
    assert list(answers(out))[: len(before)] == list(before)
