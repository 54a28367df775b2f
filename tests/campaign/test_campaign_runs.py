"""Many runs: what becomes of each, and what Ctrl-C and a second call leave."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from support.bugs import write_run

from shrinkfx.campaign import executors
from shrinkfx.campaign.executors import LocalExecutor, Runs
from shrinkfx.campaign.programs import Program
from shrinkfx.campaign.report import find_bugs
from shrinkfx.campaign.runs import (
    STATE,
    Campaign,
    Ended,
    Outcome,
    Status,
    run_campaign,
    save,
)
from shrinkfx.cli.triage import main
from shrinkfx.errors import UsageError

FAKE = """
import json, os, shutil, signal, sys, time
words = sys.argv[1:]
name = os.path.basename(words[0] if words[0] != "--resume" else words[1])
name = name.removesuffix(".pt2")
out = words[words.index("--out") + 1] if "--out" in words else words[1]
known = [words[i + 1] for i, word in enumerate(words) if word == "--known"]
with open(os.environ["CALLS"], "a") as calls:
    print(name, "resumed" if words[0] == "--resume" else "new", file=calls)
os.makedirs(out, exist_ok=True)
def end(code, **event):
    usual = {"event": "end", "elapsed": 2.0, "error": "", "result": {}}
    print(json.dumps(usual | event))
    sys.exit(code)
if name == "dies":
    os.kill(os.getpid(), signal.SIGSEGV)
if name == "passes":
    end(3, error="the program does not fail")
if name == "waits":
    open(os.path.join(out, "journal.sqlite"), "w").close()
    if words[0] != "--resume":
        time.sleep(60)
twins = [path for path in (f"{each}/first" for each in known) if os.path.exists(path)]
if name == "second" and twins:
    end(7, error="known bug: cos\\nmore", result={"known_bugs": twins[:1]})
shutil.copytree(os.environ["RUN"], out, dirs_exist_ok=True)
end(0)
"""


@pytest.fixture(name="tool")
def _tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A shrinkfx that reduces nothing."""
    script = tmp_path / "fake.py"
    script.write_text(FAKE)
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("RUN", str(write_run(tmp_path / "result")))
    return [sys.executable, str(script)]


def campaign_of(*names: str) -> Campaign:
    return Campaign(tuple(Program(f"/{name}.pt2", (), name) for name in names))


def ignore(campaign: Campaign, outcome: Outcome) -> None:
    pass


def run(
    campaign: Campaign, out: Path, tool: list[str], ended: Ended = ignore
) -> Campaign:
    executor = LocalExecutor(Runs(out, tool=tuple(tool)), campaign.jobs)
    out.mkdir(exist_ok=True)
    return run_campaign(campaign, out, executor, ended)


def statuses(campaign: Campaign) -> dict[str, Status]:
    return {each.program.name: each.status for each in campaign.outcomes}


def test_program_that_dies_or_passes_costs_the_others_nothing(
    tool: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    campaign = campaign_of("first", "dies", "passes", "second")
    done = run(campaign, out, tool)
    assert statuses(done) == {
        "first": Status.REDUCED,
        "dies": Status.ERROR,
        "passes": Status.PASSES,
        "second": Status.KNOWN,
    }
    (died,) = (each for each in done.outcomes if each.status is Status.ERROR)
    assert died.reason == "shrinkfx ended with -11: see logs/dies.txt"
    (bug,) = find_bugs(done)
    assert [Path(member.program).stem for member in bug.members] == ["first", "second"]


def test_outcomes_of_an_earlier_call_are_kept(tool: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    campaign = campaign_of("first", "passes")
    seen: list[Campaign] = []
    run(campaign, out, tool, lambda now, _: seen.append(now))
    save(seen[0], out, [])
    loaded = Campaign.load(out)
    assert loaded == seen[0]
    assert len(loaded.pending) == 1
    again = run(loaded, out, tool)
    assert statuses(again) == statuses(seen[1])
    assert (tmp_path / "calls").read_text().count("first") == 1


@contextmanager
def ctrl_c_after(path: Path) -> Iterator[None]:
    """Press Ctrl-C once a file exists, if the block has not ended before."""
    over = threading.Event()

    def press() -> None:
        while not over.wait(0.05):
            if path.exists():
                os.kill(os.getpid(), signal.SIGINT)
                return

    thread = threading.Thread(target=press)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_ctrl_c_ends_the_runs_and_a_second_call_resumes_them(
    tool: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    campaign, begun = campaign_of("waits", "first"), out / "runs/waits/journal.sqlite"
    with pytest.raises(KeyboardInterrupt), ctrl_c_after(begun):
        run(campaign, out, tool)
    assert (tmp_path / "calls").read_text() == "waits new\n"
    again = run(campaign, out, tool)
    assert statuses(again) == {"waits": Status.REDUCED, "first": Status.REDUCED}
    assert "waits resumed" in (tmp_path / "calls").read_text()


def test_run_without_an_end_is_killed(
    tool: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "_LONGEST_S", 2.0)
    done = run(campaign_of("waits"), tmp_path / "out", tool)
    assert statuses(done) == {"waits": Status.ERROR}


@pytest.mark.parametrize(
    ("text", "reason"),
    [(None, "contains no triage"), ("{", "is damaged"), ("{}", "is damaged")],
)
def test_folder_without_a_triage_cannot_be_resumed(
    text: str | None, reason: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / STATE).write_text(text)
    with pytest.raises(UsageError, match=reason):
        Campaign.load(tmp_path)


# --- the command


@pytest.fixture(name="programs")
def _programs(tool: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two programs of one bug and a healthy one, and a command with the fake tool."""
    runs = partial(Runs, tool=tuple(tool))
    monkeypatch.setattr("shrinkfx.campaign.triage.Runs", runs)
    folder = tmp_path / "programs"
    folder.mkdir()
    for size, name in enumerate(("first", "second", "passes")):
        (folder / f"{name}.pt2").write_bytes(b"x" * size)
    return folder


def test_command_prints_a_bug_with_its_programs(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main([str(programs), "--out", str(out), "--jobs", "1"]) == 10
    printed = capsys.readouterr()
    assert printed.out == (
        "3 programs: 1 bug, 1 without a failure\n"
        "1. mismatch in compare: 3 of 4 elements differ\n"
        "   2 programs: first.pt2, second.pt2\n"
        f"   {out}/runs/first/repro.py\n"
        f"passes: {programs}/passes.pt2: the program does not fail\n"
        f"see also: {out}/triage.html\n"
    )
    assert "[2/3] second.pt2: known, 2 s: known bug: cos\n" in printed.err
    (bug,) = json.loads((out / STATE).read_text())["bugs"]
    assert bug["operators"] == ["aten.cos.default"]
    page = (out / "triage.html").read_text()
    assert "its operators of this bug, cut out, fail in the same way" in page
    assert main([str(programs), "--out", str(out)]) == 2
    assert f"shrinkfx triage --resume {out}" in capsys.readouterr().err
    assert main(["--resume", str(out)]) == 10


def test_known_bugs_alone_give_exit_code_0(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = tmp_path / "known"
    bug = write_run(known / "first")
    (bug / "bug.json").write_text('{"issue": "https://example.org/1"}')
    (programs / "first.pt2").unlink()
    out = str(tmp_path / "out")
    assert main([str(programs), "--known", str(known), "--out", out]) == 0
    assert "known: https://example.org/1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "the paths of the programs are missing"),
        (["none"], "none: no such file or folder"),
        (["--resume", "none"], "contains no triage"),
        (["--resume", "none", "more"], "omit all others"),
        ([".", "--known", "none"], "--known none: no such folder"),
        ([".", "--", "--out", "x"], "without --out and --known"),
        ([".", "--", "more.pt2"], "only options are allowed"),
    ],
)
def test_bad_usage_is_named(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert reason in capsys.readouterr().err
