"""What is typed for each task, what is refused, and what is printed."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.bugs import write_run

from shrinkfx import api
from shrinkfx.api import Confirmed, Retrieved, Run
from shrinkfx.cli import task_output
from shrinkfx.cli.main import abbreviate_command, main, split_command_line
from shrinkfx.cli.parser import list_flags_with_values, make_parser
from shrinkfx.cli.task import read_options, refuse_with_task
from shrinkfx.cli.task_output import render_run_lines
from shrinkfx.errors import LoadError, UsageError
from shrinkfx.journal.journal import Journal
from shrinkfx.options.options import Options, format_command
from shrinkfx.report.record import ReproFiles, VerifiedRepro
from shrinkfx.run import explaining, folder
from shrinkfx.run.verify_command import ByVersion

# What is typed for a script that is captured, and what of it is refused.


@pytest.mark.parametrize(
    ("typed", "ours", "theirs"),
    [
        ("--capture -- python a.py --json", "--capture", "python a.py --json"),
        (
            "-q --capture --jobs 1 -- pytest -- -x",
            "-q --capture --jobs 1",
            "pytest -- -x",
        ),
        ("model.pt2 --jobs 1", "model.pt2 --jobs 1", ""),
        ("-- --capture", "-- --capture", ""),
        ("--capture --", "--capture", ""),
        ("--capture python a.py --json", "--capture", "python a.py --json"),
        ("--capture pytest -k x -- -x", "--capture", "pytest -k x -- -x"),
        (
            "--jobs 1 --capture --until ima --timeout=9 -q python a.py --until nan",
            "--jobs 1 --capture --until ima --timeout=9 -q",
            "python a.py --until nan",
        ),
        ("--capture --until ima", "--capture --until ima", ""),
        ("--capture --list python a.py", "--capture --list", "python a.py"),
        ("model.pt2 -- --capture", "model.pt2 -- --capture", ""),
    ],
)
def test_command_is_separated_from_options(typed: str, ours: str, theirs: str) -> None:
    assert split_command_line(typed.split(), list_flags_with_values()) == (
        ours.split(),
        theirs.split(),
    )


def test_note_explains_the_place_of_options_after_the_command(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "serve.py").write_text("raise SystemExit('what is --max-minutes?')")
    words = ["--capture", sys.executable, "serve.py", "--max-minutes", "5", "--out=x"]
    assert main(words) == 3
    said = capfd.readouterr().err.splitlines()
    assert said[-1] == (
        "the script received --max-minutes, --out=x: options of shrinkfx "
        "belong between --capture and the command"
    )


def test_script_instead_of_a_program_recommends_capture(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, by in (("my serve.py", "python"), ("test_it.py", "pytest")):
        (tmp_path / name).write_text("import torch")
        assert main([name]) == 2
        wanted = f"shrinkfx --capture {by} {shlex.quote(name)}"
        assert wanted in capsys.readouterr().err


def test_interrupted_capture_prints_the_command_to_repeat(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shrinkfx.api.capture", interrupted)
    assert main(["--capture", "--until", "ima", "--", "python", "a b/serve.py"]) == 4
    said = capsys.readouterr().err.splitlines()
    again = "shrinkfx --capture --until ima -- python 'a b/serve.py'"
    assert said[-1] == f"to repeat this run: {again}"


def test_full_disk_during_capture_prints_the_command_to_repeat(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, _: object) -> None:
        (path.parent / "call-1-7-0.pt.140").touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shrinkfx.intake.capture.script_capture.write_json", full)
    assert main(["--capture", "--out", "out", "true"]) == 2
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert "free some disk space" in said
    assert said.splitlines()[-1] == (
        "to repeat this run: shrinkfx --capture --out out true"
    )
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()


def test_script_arguments_are_abbreviated() -> None:
    command = ["python", "serve.py", "--token", "secret"]
    assert abbreviate_command(command) == ["--", "python", "serve.py", "..."]
    assert abbreviate_command(command[:2]) == ["--", "python", "serve.py"]
    assert abbreviate_command(["env", "HF_TOKEN=hf_x", "python", "a.py"]) == [
        "--",
        "env",
        "...",
    ]
    assert abbreviate_command([]) == []


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (
            "--capture",
            "--capture needs a command: shrinkfx --capture python serve.py",
        ),
        ("x.pt2 --capture -- true", "omit x.pt2"),
        ("--capture x.pt2 -- true", "--capture x.pt2: No such file or directory"),
        ("--capture --verify -- true", "--capture runs a script: omit --verify"),
        ("--capture --resume out -- true", "omit --resume"),
        ("--capture --program 0 -- true", "--program must be above 0, not 0"),
        ("--capture --until hang -- true", "--until hang needs --timeout"),
        ("--capture -- ./not-there.py", "No such file or directory"),
        ("--capture python b.py", "--capture: b.py: no such file: did you mean a.py?"),
        ("--capture python3.11 zzz.py --x", "--capture: zzz.py: no such file\n"),
        ("--capture pythn a.py", "--capture pythn: No such file or directory"),
        ("--capture a.py", "for example python a.py"),
        ("--explain nowhere", "--explain nowhere: no such folder"),
        ("--candidate 3f nowhere", "--out nowhere: no such folder"),
        ("x.pt2 --program 2", "x.pt2 is not such a folder"),
    ],
)
def test_invalid_option_combination_is_refused(
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    typed: str,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").touch()
    assert main(typed.split()) == 2
    assert said in capfd.readouterr().err
    assert not list(tmp_path.glob("shrinkfx-out/*"))


def test_stdout_has_only_events_with_json(
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    script = "print('hello'); raise SystemExit(7)"
    assert main(["--capture", "--json", "--", sys.executable, "-c", script]) == 3
    out, err = capfd.readouterr()
    events = [json.loads(line) for line in out.splitlines()]
    assert [(e["event"], e.get("task")) for e in events] == [
        ("start", "capture"),
        ("end", None),
    ]
    assert "hello" in err
    assert "the script ended with exit code 7" in events[-1]["error"]


def test_script_without_capture_recommends_capture(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["shrinkfx", "python", "serve.py"])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().err
    assert "to run a script that fails: shrinkfx --capture python serve.py" in said
    assert "did you mean" not in said


# The table of ``--list``.


AT = time.mktime((2026, 11, 22, 17, 31, 0, 0, 0, -1))
HERE = Path("shrinkfx-out")
OVER = Run(
    HERE / "model-1",
    "reduced",
    "model.pt2",
    "compile-error",
    (65, 2),
    (3, 3),
    11,
    206.4,
    AT,
)
WORKS = Run(HERE / "model-2", "at work", "model.pt2", checks=0, seconds=8.0, at=AT)
STOPPED = Run(HERE / "other-1", "stopped", "other.pt2", "nan", (87, 12), at=AT)
DAMAGED = Run(HERE / "other-2", "damaged", at=AT, problem="it is empty; run anew")

TABLE = """\
name     status   program    kind           operators  verified  checks  seconds  when
model-1  reduced  model.pt2  compile-error    65 -> 2    3 of 3      11      206  2026-11-22 17:31
model-2  at work  model.pt2  -                      -         -       0        8  2026-11-22 17:31
other-1  stopped  other.pt2  nan             87 -> 12         -       -        -  2026-11-22 17:31
other-2  damaged  -          -                      -         -       -        -  2026-11-22 17:31
to resume an unfinished run: shrinkfx --resume shrinkfx-out/other-1
shrinkfx-out/other-2: it is empty; run anew
"""  # noqa: E501


def test_runs_are_listed_with_commands_to_resume() -> None:
    runs = [OVER, WORKS, STOPPED, DAMAGED]
    assert [*render_run_lines(runs, HERE, 1000)] == TABLE.splitlines()


def test_capture_without_a_run_is_listed_with_commands_to_resume() -> None:
    left = Run(HERE / "serve-1", "captured", "serve.py", at=AT)
    *_, row, on, other = render_run_lines([left], HERE, 1000)
    assert row.split()[:3] == ["serve-1", "captured", "serve.py"]
    assert on.endswith("shrinkfx --resume shrinkfx-out/serve-1")
    assert other.endswith("shrinkfx shrinkfx-out/serve-1 --program N")


def test_names_are_truncated_in_a_narrow_terminal() -> None:
    long = Run(HERE / "transformer_of_layers-1", "reduced", "transformer_of_layers.pt2")
    _, whole = render_run_lines([long], HERE, 1000)
    assert whole.startswith(
        "transformer_of_layers-1  reduced  transformer_of_layers.pt2"
    )
    _, row = render_run_lines([long], HERE, 105)
    assert len(row) <= 105 < len(whole)
    assert row.startswith("transformer_of_layers-1  reduced  transf")
    _, row = render_run_lines([long], HERE, 90)
    assert len(row) <= 90
    assert row.startswith("transf...  reduced  trans...  -")


def test_finished_run_is_listed_without_a_command_to_resume() -> None:
    assert not any(
        "--resume" in line for line in render_run_lines([OVER, WORKS], HERE, 1000)
    )


def test_folder_without_runs_prints_the_command_to_start_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--list", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said == f"{tmp_path} contains no runs: start one with shrinkfx MODEL.pt2\n"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--list --until ima", "omit --until"),
        ("model.pt2 --list", "omit model.pt2"),
        ("--list --resume out", "omit --resume"),
        ("--list --capture -- python serve.py", "omit the command"),
        ("--list --explain", "omit --explain"),
    ],
)
def test_other_options_with_list_are_refused(
    capsys: pytest.CaptureFixture[str], typed: str, said: str
) -> None:
    assert main(typed.split()) == 2
    told = capsys.readouterr().err
    assert told.startswith("shrinkfx: --list lists the runs in a folder and exits")
    assert said in told


def test_missing_folder_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--list"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("shrinkfx: --list shrinkfx-out: No such file or directory\n")
    assert "shrinkfx MODEL.pt2" in said


def test_list_is_printed_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(folder, "list_runs", lambda *_: [OVER, STOPPED])
    assert main(["--list", "--json"]) == 0
    end = json.loads(capsys.readouterr().out)
    assert (end["event"], end["status"], end["exit_code"]) == ("end", "listed", 0)
    over, stopped = end["result"]["runs"]
    assert (over["folder"], over["verified"]) == ("shrinkfx-out/model-1", [3, 3])
    assert (stopped["status"], stopped["operators"]) == ("stopped", [87, 12])


# How a candidate of a run is asked for: the run's folder is all that it takes.


@pytest.mark.parametrize(
    ("typed", "moved"),
    [
        ("--candidate 3f2a --out DIR", None),
        ("--candidate 3f2a DIR", None),
        ("DIR --candidate 3f2a -q", None),
        ("new.pt2 --candidate 3f2a --out DIR", "new.pt2"),
    ],
)
def test_candidate_is_retrieved_by_the_folder_of_the_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    typed: str,
    moved: str | None,
) -> None:
    asked: list[tuple[Any, ...]] = []

    def retrieve(folder: str, digest: str, _: object, **rest: Any) -> Retrieved:
        asked.append((folder, digest, rest["model"]))
        return Retrieved("passes", 2, Path(folder) / "minimal.pt2", None)

    Journal(tmp_path / "journal.sqlite").close()
    monkeypatch.setattr("shrinkfx.api.retrieve", retrieve)
    assert main(typed.replace("DIR", str(tmp_path)).split()) == 3
    assert asked == [(str(tmp_path), "3f2a", moved)]
    assert "candidate: 2 operators: passes" in capsys.readouterr().out


def test_candidate_without_a_folder_prints_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--candidate", "3f2a"]) == 2
    assert "shrinkfx --candidate 3f2a --out DIR" in capsys.readouterr().err


def test_retrieved_failing_candidate_prints_the_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = ReproFiles((tmp_path / "repro.py",), "source")
    program = tmp_path / "minimal.pt2"
    came = task_output.print_candidate(
        Retrieved("crash", 2, program, VerifiedRepro(written, 3, 3))
    )
    assert came.exit_code == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-2].startswith(
        "note:     only a full run writes ISSUE.md, report.html and the cause:"
    )
    assert said[-1].startswith(f"next:     shrinkfx {program}")


# A subcommand stands for an option, and must be the first word.


@pytest.fixture(name="verify_calls")
def _verify_calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """Record the calls of ``api.verify``."""
    verify_calls: list[Any] = []

    def verify(options: Options, _: object, **rest: Any) -> Confirmed:
        verify_calls.append(
            (options.model, options.timeout_s, rest["across"], rest["torch"])
        )
        return Confirmed(None, "passes", False)

    monkeypatch.setattr("shrinkfx.api.verify", verify)
    monkeypatch.chdir(tmp_path)
    return verify_calls


def test_verify_subcommand_equals_the_option(verify_calls: list[Any]) -> None:
    rest = ["--timeout", "9", "--across", "python", "--torch", "2.13.0"]
    for words in (["verify", "repro.py"], ["repro.py", "--verify"]):
        assert main([*words, *rest]) == 3
    first, second = verify_calls
    assert first == second == (Path("repro.py"), 9.0, ["python"], "2.13.0")


def test_only_the_first_word_is_a_subcommand(
    verify_calls: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--verify", "verify"]) == 3
    assert main(["verify", "verify"]) == 3
    assert [each[0] for each in verify_calls] == [Path("verify")] * 2
    assert main(["./verify"]) == 2  # a program of that name, which is not there
    assert "verify: no such file" in capsys.readouterr().err
    assert len(verify_calls) == 2


@pytest.fixture(name="bugs")
def _bugs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three known bugs, of which one is fixed and one has no readable repro."""

    def verify(options: Options, *_: object, **__: object) -> Confirmed:
        name = options.model.name
        if name == "broken":
            raise LoadError("repro.py", "cannot be read")
        table = ByVersion((), "it fails up to 2.14.1")
        return Confirmed(None, "passes", name == "cos", versions=table)

    monkeypatch.setattr("shrinkfx.api.verify", verify)
    for name in ("broken", "cos", "sin"):
        write_run(tmp_path / "bugs" / name)
    (tmp_path / "bugs/cos/bug.json").write_text('{"title": "wrong cos"}')
    return tmp_path / "bugs"


def test_verify_reports_each_known_bug_of_a_folder(
    bugs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(bugs), "--torch", "2.14.1"]) == 2
    broken, fails, range_, passes, _, count = capsys.readouterr().out.splitlines()
    assert broken.startswith("error: mismatch in compare: ")
    assert broken.endswith(": repro.py: cannot be read")
    assert fails == f"fails: wrong cos ({bugs / 'cos'})"
    assert range_.strip() == "it fails up to 2.14.1"
    assert passes.startswith("passes: mismatch in compare: ")
    assert count == "known bugs: 3; error: 1, fails: 1, passes: 1"


def test_verify_of_a_folder_succeeds_if_all_known_bugs_fail(bugs: Path) -> None:
    shutil.rmtree(bugs / "broken")
    assert main(["verify", str(bugs)]) == 3
    shutil.rmtree(bugs / "sin")
    assert main(["verify", str(bugs)]) == 0


@pytest.mark.parametrize("ends", ["raises", "returns"])
def test_ctrl_c_prints_the_known_bugs_so_far(
    bugs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    ends: str,
) -> None:
    def verify(options: Options, *_: object, **__: object) -> Confirmed:
        if options.model.name == "cos" and ends == "raises":
            raise KeyboardInterrupt
        is_last = options.model.name == "cos"
        return Confirmed(None, "another failure", False, interrupted=is_last)

    monkeypatch.setattr("shrinkfx.api.verify", verify)
    assert main(["verify", str(bugs)]) == 4
    first, *_, count = capsys.readouterr().out.splitlines()
    assert first.startswith("ends differently: mismatch in compare: ")
    assert first.endswith(": another failure")
    number = 1 if ends == "raises" else 2
    assert count == f"known bugs: 3; ends differently: {number}, not run: {3 - number}"


# A run that is over may get another title, and nothing else.


def test_explain_accepts_a_title_and_refuses_anonymous() -> None:
    parse = make_parser().parse_args
    refuse_with_task("explain", parse(["out", "--explain", "--title", "it fails"]))
    with pytest.raises(UsageError, match="omit --anonymous"):
        refuse_with_task("explain", parse(["out", "--explain", "--anonymous"]))


@pytest.mark.parametrize(
    ("anew", "title"), [(None, "as it was"), ("it fails", "it fails")]
)
def test_title_is_passed_to_explain(
    monkeypatch: pytest.MonkeyPatch, anew: str | None, title: str
) -> None:
    asked: list[Options] = []
    before = Options(Path("m.pt2"), title="as it was")
    monkeypatch.setattr(folder, "load_finished_options", lambda _: before)
    monkeypatch.setattr(
        explaining, "explain_folder", lambda options, *_: asked.append(options)
    )
    monkeypatch.setattr(explaining, "report_explained", lambda *_: None)
    api.explain("out", title=anew)
    assert asked[0].title == title


# A command that is shown asks for what it was made of.


ASKED: list[dict[str, Any]] = [
    {},
    {"until": "nan", "match": "output 0"},
    {"inputs": Path("out dir/failing-1.pt"), "out": Path("there")},
    {"preload": ("ops", "my ops.py"), "device": "cuda:1", "gpus": ("0", "1")},
    {"inductor": {"max_autotune": True, "text": "abc", "number": "1", "tiles": [1, 2]}},
    {"environment": {"A": "1", "B": "", "C": "x=y"}},
    {"timeout_s": 2.5, "rtol": 1e-07, "atol": 0.0, "strict": True, "jobs": 3},
    {"guard_pages": "on", "sanitizer": "racecheck", "keep": ("sizes", "values")},
    {
        "strategies": ("drop_nodes", "make_dims_static"),
        "explain": True,
        "title": "It's",
    },
    {"max_minutes": 0.1234567},
]


@pytest.mark.parametrize("asked", ASKED)
def test_formatted_command_parses_to_the_same_options(asked: dict[str, Any]) -> None:
    options = replace(Options(Path("my model.pt2")), **asked)
    program, *words = shlex.split(format_command(options))
    assert program == "shrinkfx"
    assert read_options(make_parser().parse_args(words), "") == options


def test_default_options_are_omitted_from_the_command() -> None:
    assert (
        format_command(Options(Path("model.pt2"), command="x")) == "shrinkfx model.pt2"
    )
