"""Whole runs through the command line that are killed, and go on."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shrinkfx.report.files import DRAFT

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
    """A command, less its output folder, and what it came to in one go."""

    command: Sequence[str]
    whole: Path
    seconds: float

    def start(self, out: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self.command, "--out", str(out)],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def shrinkfx(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shrinkfx", *arguments]
    return subprocess.run(
        command, cwd=ROOT, timeout=900, check=False, capture_output=True, text=True
    )


def in_one_go(command: Sequence[str], whole: Path) -> Run:
    started = time.monotonic()
    done = shrinkfx(*command[3:], "--out", str(whole))
    assert done.returncode == 0, done.stderr
    return Run(command, whole, time.monotonic() - started)


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
    command = [sys.executable, "-m", "shrinkfx", str(model), "--check", judge]
    return in_one_go(command, folder / "whole")


@pytest.fixture(name="compiled", scope="module")
def _compiled(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("compiled")
    export = [sys.executable, "-W", "ignore", str(ROOT / "repros" / "export.py")]
    model = folder / "model.pt2"
    subprocess.run([*export, CASE.name, str(model)], check=True, timeout=300)
    start = [sys.executable, "-m", "shrinkfx", str(model)]
    command = [*start, "--preload", str(CASE / "planted.py")]
    return in_one_go(command, folder / "whole")


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
    for name in ("seconds", "cpu_seconds", "builds"):
        del summary[name]
    return dict(summary)


def text_of_repro(out: Path) -> str:
    return (out / "repro.py").read_text().replace(out.name, "OUT")


def kill_and_resume(
    run: Run, out: Path, after_s: float, marked: Callable[[], list[int]]
) -> str:
    started = run.start(out)
    time.sleep(after_s)
    ended = started.poll() is not None
    if not ended:
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    before = answers(out)
    deadline = time.monotonic() + 60  # the machine may be busy
    while marked() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not marked(), "the server outlived its parent"

    resumed = shrinkfx("--resume", str(out))
    if "holds no run" in resumed.stderr or "before it began" in resumed.stderr:
        return "not begun"
    assert resumed.returncode == 0, resumed.stderr
    after = answers(out)
    assert list(after)[: len(before)] == list(before)
    assert after == answers(run.whole)
    assert outcome(out) == outcome(run.whole)
    assert text_of_repro(out) == text_of_repro(run.whole)
    assert not list(out.glob(f"{DRAFT}*"))
    return "ended" if ended else f"{len(before)} answered"


def test_finished_run_says_so_and_changes_nothing(checked: Run, tmp_path: Path) -> None:
    whole = checked.whole
    before = {path: path.read_bytes() for path in whole.iterdir()}
    for again in (
        shrinkfx("--resume", str(whole)),
        shrinkfx(*checked.command[3:], "--out", str(whole)),
    ):
        assert again.returncode == 0, again.stderr
        assert "finished: reduced:" in again.stderr
    other = shrinkfx(*checked.command[3:], "--timeout", "99", "--out", str(whole))
    assert other.returncode == 2
    assert "another run" in other.stderr
    assert {path: path.read_bytes() for path in whole.iterdir()} == before


@pytest.mark.slow
def test_command_run_killed_at_50_moments_ends_as_if_it_had_not_been(
    checked: Run, tmp_path: Path, marked: Callable[[], list[int]]
) -> None:
    draw = random.Random(7)
    for number in range(50):
        moment = draw.uniform(0.0, checked.seconds)
        found = kill_and_resume(checked, tmp_path / f"out{number}", moment, marked)
        print(f"killed after {moment:.1f} of {checked.seconds:.1f} s: {found}")


def listened_to(
    run: Run, out: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*run.command, "--no-progress", "--out", str(out)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **(environment or {})},
    )


def read_until(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if words in line:
            return
    raise AssertionError("".join(said))


def check_resumed(run: Run, out: Path) -> None:
    resumed = shrinkfx("--resume", str(out))
    assert resumed.returncode == 0, resumed.stderr
    assert answers(out) == answers(run.whole)
    assert outcome(out) == outcome(run.whole)


@pytest.mark.slow
def test_second_interrupt_stops_at_once_and_leaves_a_whole_journal(
    checked: Run, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = listened_to(checked, out)
    read_until(process, " -> ")
    os.killpg(process.pid, signal.SIGINT)
    read_until(process, "interrupted: writing and verifying")
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 4
    assert "interrupted before a repro was verified" in said
    assert f"shrinkfx --resume {out}" in said
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["status"], summary["stopped"]) == ("stopped", "interrupted")
    assert summary["verified"] == {"runs": 0, "failed": 0}
    assert summary["operators"]["after"] < summary["operators"]["before"]
    check_resumed(checked, out)


@pytest.mark.slow
def test_interrupt_while_verifying_sums_up_and_ends(
    checked: Run, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = listened_to(checked, out)
    read_until(process, "writing repro.py")
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 4
    assert "--resume" in said
    summary = json.loads((out / "summary.json").read_text())
    assert summary["operators"]["after"] == 2
    assert (out / "minimal.pt2").is_file()
    check_resumed(checked, out)


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
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.mark.slow
@pytest.mark.parametrize("place", ["out", "tmp"])
def test_full_disk_ends_a_run_that_goes_on_when_there_is_space(
    checked: Run, tmp_path: Path, small_disk: Path, place: str
) -> None:
    out = small_disk / "out" if place == "out" else tmp_path / "out"
    temporary = small_disk if place == "tmp" else tmp_path
    process = listened_to(checked, out, {"TMPDIR": str(temporary)})
    read_until(process, " -> ")
    filler = small_disk / "filler"
    fill(filler)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 2, said
    assert "free some space" in said
    assert f"shrinkfx --resume {out}" in said
    assert "Traceback" not in said
    before = answers(out)
    assert before
    filler.unlink()
    check_resumed(checked, out)
    assert list(answers(out))[: len(before)] == list(before)


@pytest.mark.aoti
def test_compiled_run_killed_at_5_moments_ends_as_if_it_had_not_been(
    compiled: Run, tmp_path: Path, marked: Callable[[], list[int]]
) -> None:
    draw = random.Random(11)
    for number in range(5):
        moment = draw.uniform(0.1 * compiled.seconds, compiled.seconds)
        found = kill_and_resume(compiled, tmp_path / f"out{number}", moment, marked)
        print(f"killed after {moment:.1f} of {compiled.seconds:.1f} s: {found}")
