"""Runs of a triage: their results, the bugs behind them, Ctrl-C, and --resume."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.bugs import COS, SIN, WRONG, write_run
from support.cases import ROOT

from shrinkfx.campaign import commands
from shrinkfx.campaign.commands import LocalExecutor
from shrinkfx.campaign.programs import Program
from shrinkfx.campaign.report import (
    RECOGNIZED,
    find_bugs,
    list_others,
    name_bugs,
    render_lines,
    write_page,
)
from shrinkfx.campaign.runs import (
    STATE,
    Campaign,
    Listener,
    Result,
    Status,
    run_campaign,
    save,
)
from shrinkfx.campaign.triage import Triage
from shrinkfx.cli.triage import main
from shrinkfx.errors import UsageError
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.journal.journal import Journal
from shrinkfx.system.processes import read_process_state

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
if name == "uncut":
    end(3, error="no form can be cut", result={"fails": True})
if name == "odd":
    print(5)
    sys.exit(0)
if name == "unverified":
    end(5)
if name == "waits":
    if not os.path.exists(os.path.join(out, "journal.sqlite")):
        shutil.copy(os.environ["JOURNAL"], out)
    if words[0] != "--resume":
        time.sleep(60)
twins = [path for path in (f"{each}/first" for each in known) if os.path.exists(path)]
if name == "second" and twins:
    end(7, error="known bug: cos\\nmore", result={"known_bugs": twins[:1]})
if name == "double":
    found = [path for path in (f"{each}/double" for each in known)]
    found = [path for path in found if os.path.exists(f"{path}/summary.json")]
    result = os.environ["SIN" if found else "COS"]
    shutil.copytree(result, out, dirs_exist_ok=True)
    end(0, result={"known_bugs": found})
shutil.copytree(os.environ["RUN"], out, dirs_exist_ok=True)
end(0)
"""


@pytest.fixture(name="tool")
def _tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A shrinkfx that reduces nothing."""
    script = tmp_path / "fake.py"
    script.write_text(FAKE)
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        journal.note("run", {})
    monkeypatch.setenv("JOURNAL", str(tmp_path / "journal.sqlite"))
    monkeypatch.setenv("RUN", str(write_run(tmp_path / "result")))
    different = write_run(tmp_path / "cos", without_it="different")
    monkeypatch.setenv("COS", str(different))
    monkeypatch.setenv("SIN", str(write_run(tmp_path / "sin", SIN)))
    return [sys.executable, str(script)]


def campaign_of(*names: str) -> Campaign:
    return Campaign(tuple(Program(f"/{name}.pt2", (), name) for name in names))


def ignore(campaign: Campaign, outcome: Result) -> None:
    pass


def run(
    campaign: Campaign, out: Path, tool: list[str], listener: Listener = ignore
) -> Campaign:
    return run_campaign(campaign, out, listener, LocalExecutor(tool))


def statuses(campaign: Campaign) -> dict[str, Status]:
    return {each.program.name: each.status for each in campaign.results}


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
    (died,) = (each for each in done.results if each.status is Status.ERROR)
    assert died.reason == "shrinkfx ended with -11: see logs/dies.txt"
    (bug,) = find_bugs(done, out)
    assert [Path(member.program).stem for member in bug.members] == ["first", "second"]


def test_program_that_fails_without_its_bug_runs_again(
    tool: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = run(campaign_of("double"), out, tool)
    assert [each.folder for each in done.results] == ["runs/double", "runs/double+2"]
    assert done.pending == []
    bugs = find_bugs(done, out)
    assert [bug.found.pattern for bug in bugs] == [COS, SIN]
    members = [[member.program for member in bug.members] for bug in bugs]
    assert members == [["/double.pt2"], ["/double.pt2"]]


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
    monkeypatch.setattr(commands, "_LONGEST_S", 2.0)
    done = run(campaign_of("waits"), tmp_path / "out", tool)
    assert statuses(done) == {"waits": Status.ERROR}


def test_failing_program_that_was_not_reduced_is_not_taken_for_a_healthy_one(
    tool: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = run(campaign_of("uncut", "unverified", "odd"), out, tool)
    assert statuses(done) == {
        "uncut": Status.UNREDUCED,
        "unverified": Status.UNVERIFIED,
        "odd": Status.REDUCED,
    }
    assert find_bugs(done, out) == []
    assert len(list_others(done, out)) == 3
    assert Triage(out, done, ()).exit_code == 11


def test_run_that_was_killed_before_it_began_starts_from_the_beginning(
    tool: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "out/runs/first"
    folder.mkdir(parents=True)
    Journal(folder / "journal.sqlite").close()
    assert statuses(run(campaign_of("first"), tmp_path / "out", tool)) == {
        "first": Status.REDUCED
    }
    assert (tmp_path / "calls").read_text() == "first new\n"


def test_run_dies_with_the_process_that_has_started_it() -> None:
    start = (
        "import subprocess, sys\n"
        f"words = {[*commands.TOOL, 'doctor']}\n"
        "pipe = subprocess.PIPE\n"
        "run = subprocess.Popen(words, stdout=pipe, start_new_session=True)\n"
        "run.stdout.readline()\n"
        "print(run.pid, flush=True)\n"
        "run.wait()\n"
    )
    command = [sys.executable, "-c", start]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        process = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 30
    while read_process_state(process) not in ("", "Z"):
        assert time.monotonic() < deadline, "it has outlived its parent"
        time.sleep(0.05)


# --- bugs


def result_of(name: str, status: Status, *known: Path, has_run: bool = False) -> Result:
    folder = f"runs/{name}" if has_run else ""
    program = Program(f"/{name}.pt2", (), name)
    return Result(program, status, folder, tuple(map(str, known)))


def test_bug_in_a_known_folder_is_known_also_if_a_program_was_reduced(
    tmp_path: Path,
) -> None:
    known = write_run(tmp_path / "known/cos")
    write_run(tmp_path / "runs/a")
    reduced = result_of("a", Status.REDUCED, has_run=True)
    done = Campaign((), known=(str(tmp_path / "known"),), results=(reduced,))
    (bug,) = find_bugs(done, tmp_path)
    assert (bug.is_known, bug.found.folder) == (True, known)
    assert Triage(tmp_path, done, [bug]).exit_code == 0


def test_bug_of_a_run_that_ended_with_an_error_is_new(tmp_path: Path) -> None:
    first = write_run(tmp_path / "runs/a")
    results = result_of("a", Status.ERROR), result_of("b", Status.KNOWN, first)
    done = Campaign((), results=results)
    (bug,) = find_bugs(done, tmp_path)
    assert not bug.is_known
    assert [member.program for member in bug.members] == ["/b.pt2"]
    assert list_others(done, tmp_path) == [results[0]]


def test_program_counts_once_for_a_bug(tmp_path: Path) -> None:
    known = write_run(tmp_path / "known/cos")
    write_run(tmp_path / "runs/a")
    both = result_of("a", Status.REDUCED, known, has_run=True)
    (bug,) = find_bugs(Campaign((), results=(both,)), tmp_path)
    assert len(bug.members) == 1


def test_second_bug_without_a_result_is_among_the_others(tmp_path: Path) -> None:
    known = write_run(tmp_path / "known/cos")
    left = result_of("a", Status.UNVERIFIED, known, has_run=True)
    done = Campaign((), results=(left,))
    assert len(find_bugs(done, tmp_path)) == 1
    assert list_others(done, tmp_path) == [left]


def test_bugs_with_the_same_compile_error_are_related(tmp_path: Path) -> None:
    error = Signature(Kind.COMPILE_ERROR, Stage.COMPILE, "KeyError", "KeyError: 1")
    runs = {"a": (COS, error), "b": (SIN, error), "c": (SIN, WRONG), "d": (COS, WRONG)}
    for name, (pattern, signature) in runs.items():
        write_run(tmp_path / "runs" / name, pattern, signature)
    results = [result_of(name, Status.REDUCED, has_run=True) for name in runs]
    done = Campaign((), results=tuple(results))
    bugs = find_bugs(done, tmp_path)
    summary, *lines = render_lines(done, bugs, tmp_path)
    assert "4 bugs; 1 with the same compile error as an earlier one" in summary
    related = "   the same compile error as bug 1: the cause may be the same"
    assert [line for line in lines if "same compile" in line] == [related]
    write_page(done, bugs, tmp_path)
    assert related.strip() in (tmp_path / "triage.html").read_text()


def test_page_quotes_addresses_and_links_only_to_web_pages(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "runs/a#1?b%20")
    (folder / "bug.json").write_text('{"issue": "javascript:alert(1)"}')
    (folder / "repro.py").touch()
    program = Program("/\udce9<i>.pt2", (), "a")
    result = Result(program, Status.REDUCED, "runs/a#1?b%20")
    done = Campaign((program,), results=(result,))
    write_page(done, find_bugs(done, tmp_path), tmp_path)
    page = (tmp_path / "triage.html").read_text()
    assert 'href="runs/a%231%3Fb%2520/repro.py"' in page
    assert 'href="javascript' not in page
    assert "<i>" not in page


def test_repros_of_the_project_are_known_bugs() -> None:
    bugs = name_bugs(ROOT / "repros")
    assert bugs
    assert bugs.keys() == {path.parent for path in ROOT.glob("repros/*/repro.py")}
    assert all((folder / "bug.json").is_file() for folder in bugs)


# --- the state


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
    monkeypatch.setattr(
        "shrinkfx.campaign.triage.LocalExecutor", partial(LocalExecutor, tool)
    )
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
        "3 programs: 1 bug; 1 without a failure\n"
        "1. mismatch in compare: 3 of 4 elements differ\n"
        "   2 programs: first.pt2, second.pt2\n"
        f"   {out}/runs/first/repro.py\n"
        f"passes: {programs}/passes.pt2: possible reasons are in logs/passes.txt\n"
        f"see also: {out}/triage.html\n"
    )
    assert f"shrinkfx --list {out}/runs" in printed.err.splitlines()[0]
    count = "[2/3, about 1 min left]"
    assert f"{count} second.pt2: has the bug of first, 2 s\n" in printed.err
    (bug,) = json.loads((out / STATE).read_text())["bugs"]
    assert bug["operators"] == ["aten.cos.default"]
    page = (out / "triage.html").read_text()
    assert RECOGNIZED.replace("'", "&#39;") in page
    assert main([str(programs), "--out", str(out)]) == 2
    assert f"shrinkfx triage --resume {out}" in capsys.readouterr().err
    assert main(["--resume", str(out)]) == 10


def test_programs_that_appear_in_a_watched_folder_run_until_ctrl_c(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_old(programs, "first", "second", "passes")
    out, later = tmp_path / "out", tmp_path / "later"
    later.mkdir()
    for name in ("first", "second"):
        (programs / f"{name}.pt2").rename(later / f"{name}.pt2")

    def appear() -> None:
        wait_for_file(out / "logs/passes.txt")
        (later / "second.pt2").rename(programs / "second.pt2")

    thread = threading.Thread(target=appear)
    thread.start()
    with ctrl_c_after(out / "runs/second/summary.json"):
        main([str(programs), "--watch", "--out", str(out), "--jobs", "1"])
    thread.join()
    assert f"--resume {out}" in capsys.readouterr().out
    assert [each.name for each in Campaign.load(out).programs] == ["passes", "second"]
    (later / "first.pt2").rename(programs / "first.pt2")
    with ctrl_c_after(out / "logs/first.txt"):
        main(["--resume", str(out)])
    assert len(Campaign.load(out).programs) == 3


def test_watched_triage_without_programs_to_run_has_its_usual_exit_code(
    tmp_path: Path,
) -> None:
    watching = Campaign((), watched=("/",))
    assert Triage(tmp_path, watching, (), interrupted=True).exit_code == 0
    waiting = replace(watching, programs=campaign_of("first").programs)
    assert Triage(tmp_path, waiting, (), interrupted=True).exit_code == 4
    assert Triage(tmp_path, Campaign(()), (), interrupted=True).exit_code == 4


def test_only_a_folder_can_be_watched(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(programs / "first.pt2"), "--watch"]) == 2
    assert "first.pt2 is no folder" in capsys.readouterr().err


def make_old(folder: Path, *names: str) -> None:
    """Make files older than those that may not be complete."""
    for name in names:
        os.utime(folder / f"{name}.pt2", (1e9, 1e9))


def wait_for_file(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not appear"
        time.sleep(0.05)


def test_known_bugs_alone_give_exit_code_0(
    programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = tmp_path / "known"
    bug = write_run(known / "first")
    (bug / "bug.json").write_text('{"issue": "https://example.org/1"}')
    (programs / "first.pt2").unlink()
    out = str(tmp_path / "out")
    assert main([str(programs), "--known", str(known), "--out", out]) == 0
    assert "known before: https://example.org/1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "the paths of the programs are missing"),
        (["none"], "none: no such file or folder"),
        (["--resume", "none"], "contains no triage"),
        (["--resume", "none", "more"], "pass only --jobs and --ray with it"),
        ([".", "--known", "none"], "--known none: no such folder"),
        (["--resume", "none", "--watch"], "pass only --jobs and --ray with it"),
        ([".", "--", "--out", "x"], "except --out and --known"),
        ([".", "--", "more.pt2"], "only options of a reduction are allowed"),
        ([".", "--", "--dynamic-sweep"], "only options of a reduction are allowed"),
        ([".", "--jobs", "0"], "--jobs must be above 0, not 0"),
    ],
)
def test_bad_usage_is_named(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert reason in capsys.readouterr().err


def test_interrupt_between_two_waits_kills_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray may cancel a task at any point, also where no wait is under way."""
    times = iter([0.0])

    def read_clock() -> float:
        for start in times:
            return start
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "time", SimpleNamespace(monotonic=read_clock))
    process = subprocess.Popen(
        ["sleep", "60"], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    with pytest.raises(KeyboardInterrupt):
        commands.wait_for(process)
    assert process.wait(10) == -signal.SIGKILL
