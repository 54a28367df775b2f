"""What is typed for a script that is captured, and what of it is refused."""

from __future__ import annotations

import errno
import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from shrinkfx.cli.main import abbreviate_command, main, split_command_line
from shrinkfx.cli.parser import list_flags_with_values


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
