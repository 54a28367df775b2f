"""The command line's answers to what it is given."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from shrinkfx import api
from shrinkfx import api as reducing
from shrinkfx.api import Reduction
from shrinkfx.cli.main import main
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.options.options import Options
from shrinkfx.run.sweep import SweepFinding, Swept
from shrinkfx.sweep.examples import SweepFailure
from shrinkfx.testing import PLANTED, chain, whole


@pytest.fixture(name="model")
def _model(tmp_path: Path) -> Path:
    """What looks like a program as long as nobody loads it."""
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/models/model.json", "{}")
        archive.writestr("model/archive_format", "pt2")
    return path


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run the tool; argparse leaves by SystemExit, the rest returns."""
    try:
        code = main(arguments)
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    return code, capsys.readouterr().err


def test_command_in_the_repro_omits_options_that_change_no_result(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[str] = []

    def do_task(_options: object, command: str, _stdout: object) -> int:
        commands.append(command)
        return 0

    monkeypatch.setattr("shrinkfx.cli.task.do_task", do_task)
    known = ["--known", "bugs", "--known=more"]
    main([str(model), *known, "--match", "a --json b", "--json", "--quiet"])
    assert commands == ["shrinkfx model.pt2 --match 'a --json b'"]


LONG = "a" * 300
"""A name that no file system takes."""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--until", "ism"], "unknown kind 'ism'"),
        (["--until", "asert"], "did you mean assert"),
        (["--until", "hang"], "--timeout"),
        (["--env", "NOVALUE"], "--env expects KEY=VALUE, not 'NOVALUE'"),
        (["--inductor-config", "=1"], "--inductor-config expects KEY=VALUE, not '=1'"),
        (["--device", "gpu"], "cpu, cuda, or a GPU by its number: cuda:1"),
        (["--gpus", "0,one"], "--gpus one: expected GPU numbers as in cuda:0"),
        (["--gpus", "0,1,0"], "--gpus 0,1,0: 0 occurs twice"),
        (
            ["--gpus", "0,1", "--device", "cuda:1"],
            (": a check sees only its own GPU, as cuda:0; use"),
        ),
        (["--gpus", "0", "--device", "cpu"], "only applies to CUDA devices: omit it"),
        (
            ["--gpus", "0", "--backend", "interpreter"],
            ("only applies to CUDA devices: omit it"),
        ),
        (["--match", "(unclosed"], "--match"),
        (["--check", "./fails.sh"], "the command lacks {} for the candidate's path"),
        (["--check", "x {}", "--until", "crash"], "only one of them"),
        (["--check", "x {} {inputs}"], "needs --inputs"),
        (["--check", "x {}", "--guard-pages", "on"], "--guard-pages on"),
        (["--check", "x {}", "--rtol", "0", "--strict"], "omit --rtol, --strict"),
        (["--rtol", "nan"], "--rtol must be a number >= 0, not nan"),
        (["--atol", "-1"], "--atol must be a number >= 0, not -1.0"),
        (["--guard-pages", "maybe"], "--guard-pages"),
        (["--build", "faster"], "--build"),
        (["--candidate", "1a2b"], "shrinkfx --candidate 1a2b --out DIR"),
        (["--candidate", "1a2b", "--out", "nowhere"], "no such folder"),
        (["--candidate", "1a", "--out", "x", "--jobs", "2"], "omit --jobs"),
        (["--max-checks", "0"], "--max-checks must be above 0"),
        (["--max-minutes", "-1"], "--max-minutes must be above 0"),
        (["--max-disk", "0"], "--max-disk must be above 0"),
        (["--max-checks", "many"], "--max-checks"),
        (["--jobs", "0"], "--jobs must be above 0"),
        (["--jobs", "1.5"], "--jobs"),
        (["--max-minutes", "nan"], "--max-minutes must be above 0, not nan"),
        (["--max-minutes", "inf"], "--max-minutes must be a number, not inf: omit it"),
        (["--timeout", "nan"], "--timeout must be above 0, not nan"),
        (["--timeout", "inf"], "--timeout must be a number, not inf: omit it"),
        (["--candidate", ""], "--candidate has an empty value"),
        (["--candidate", "", "--out", "x"], "--candidate has an empty value"),
        (["--resume", ""], "--resume has an empty value"),
        (["--inputs", ""], "--inputs has an empty value"),
        (["--preload", "x.py", "--preload", ""], "--preload has an empty value"),
        (["--out", ""], "--out has an empty value"),
        (["--device", ""], "--device has an empty value"),
        (["--out", LONG], "File name too long: name a folder"),
        (["--resume", LONG], "File name too long: choose a writable folder"),
        (["--inputs", LONG], "File name too long\ncheck the path given to --inputs"),
        (
            ["--preload", f"{LONG}.py"],
            "File name too long\ncheck the path",
        ),
        (["--candidate", LONG, "--out", "nowhere"], "no such folder"),
        (["--strategies", "drop_node"], "did you mean drop_nodes"),
        (["--strategies", ""], "--list-strategies"),
        (["--strategies", ","], "--list-strategies"),
        (["--unti", "assert"], "unrecognized arguments"),
        (["--untill", "assert"], "did you mean --until?"),
        (["--max-minutes", "two"], "all options: shrinkfx --help"),
        (["-v", "-q"], "not allowed with"),
        (["--examples", "5"], "add --dynamic-sweep"),
        (["--seed", "0"], "--seed only applies to a sweep: add --dynamic-sweep"),
        (["--beyond-ranges"], "--beyond-ranges only applies to a sweep"),
        (["--resume", "nowhere"], "--resume nowhere: no such folder"),
        (["--resume", "nowhere", "--seed", "1"], "omit --seed"),
        (["--resume", "nowhere", "--max-checks", "0"], "--max-checks must be above 0"),
        (["--dynamic-sweep", "--examples", "0"], "--examples must be above 0"),
        (["--dynamic-sweep", "--max-elements", "0"], "--max-elements must be above"),
        (["--dynamic-sweep", "--check", "x {}"], "omit --check"),
        (["--inputs", "own.py"], "is for --dynamic-sweep"),
    ],
)
def test_bad_usage_is_refused_before_a_process_starts(
    capsys: pytest.CaptureFixture[str], model: Path, arguments: list[str], words: str
) -> None:
    code, said = answer(capsys, str(model), *arguments)
    assert code == 2
    assert words in said
    assert "Traceback" not in said


def test_missing_model_argument_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = answer(capsys)
    assert code == 2
    assert "the path of the program is missing: shrinkfx MODEL.pt2 (see --help)" in said


@pytest.mark.parametrize("name", ["", f"{LONG}.pt2"])
def test_invalid_model_path_is_reported(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    code, said = answer(capsys, name)
    assert code == 2
    assert (
        "the path of the program is empty: check for an unset variable" in said
        or "File name too long" in said
    )


ARCHIVES = {
    "compiled.pt2": {"model/data/aotinductor/model/x.so": "", "model/version": "1"},
    "tensors.pt2": {"archive/data.pkl": "", "archive/version": "3"},
    "script.pt2": {"m/data.pkl": "", "m/constants.pkl": "", "m/code/x.py": ""},
    "old.pt2": {"version": "8.1", "serialized_exported_program.json": "{}"},
    "empty_handed.pt2": {"model/archive_format": "pt2"},
    "other_name.pt2": {"model/models/other.json": "{}"},
    "inputs.pt": {"archive/data.pkl": "", "archive/version": "3"},
}


@pytest.fixture(name="files")
def _files(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill the current folder with what is no program, or no inputs."""
    monkeypatch.chdir(tmp_path)
    for name, members in ARCHIVES.items():
        with zipfile.ZipFile(name, "w") as archive:
            for member, text in members.items():
                archive.writestr(member, text)
    (tmp_path / "cut.pt2").write_bytes(model.read_bytes()[:-30])
    (tmp_path / "empty.pt2").touch()
    (tmp_path / "text.pt2").write_text("a program")
    (tmp_path / "pickle.pt2").write_bytes(b"\x80\x02.")
    (tmp_path / "script.py").write_text("print('executed')")
    (tmp_path / "folder").mkdir()
    os.mkfifo("pipe.pt2")


def never(*_: object, **__: object) -> None:
    raise AssertionError("a process was started")


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("line", "words", "advice"),
    [
        ("nowhere.pt2", "no such file", "pass the path of a .pt2"),
        ("modle.pt2", "no such file", "did you mean model.pt2"),
        ("folder", "is a folder", "pass the path of a .pt2"),
        ("pipe.pt2", "is not a regular file", "pass the path of a .pt2"),
        ("text.pt2", "is not a .pt2", "torch.export.save"),
        ("empty.pt2", "is empty", "torch.export.save"),
        ("cut.pt2", "is truncated", "copy or save it again"),
        ("compiled.pt2", "is a compiled AOTInductor package", "was compiled from"),
        ("tensors.pt2", "contains the output of torch.save", "export the module"),
        ("pickle.pt2", "is a pickle", "export the module"),
        ("script.pt2", "contains TorchScript", "export the module"),
        ("old.pt2", "the format of torch 2.7", "torch.export.load"),
        ("empty_handed.pt2", "without an exported program", "torch.export.save"),
        (
            "other_name.pt2",
            "contains programs, but no program with the name 'model'",
            "torch.export.save",
        ),
        ("model.pt2 --inputs nowhere.pt", "nowhere.pt: no such file", "--inputs"),
        ("model.pt2 --inputs inputz.pt", "no such file", "did you mean inputs.pt"),
        ("model.pt2 --inputs folder", "folder: is a folder", "--inputs"),
        ("model.pt2 --inputs text.pt2", "is not a file from torch.save", "torch.save("),
        ("model.pt2 --inputs cut.pt2", "is truncated", "copy or save it again"),
        ("model.pt2 --inputs model.pt2", "is a program, not inputs", "torch.save("),
        ("model.pt2 --preload nowhere.py", "nowhere.py: no such file", "--preload"),
        ("model.pt2 --preload nowhere.so", "nowhere.so: no such file", "--preload"),
        ("model.pt2 --env CXX=nowhere", "nowhere: C++ compiler not found", "set CXX"),
        ("model.pt2 --env PATH=/nowhere", "C++ compiler not found", "install g++"),
        (
            "model.pt2 --check=./script.py{}",
            "command not found: ./script.py",
            "chmod +x",
        ),
        ("model.pt2 --check=nowhere{}", "command not found: nowhere", "in the PATH"),
        ("nowhere.py --verify", "nowhere.py: no such file", "a repro.py"),
        ("folder --verify", "folder: is a folder", "a repro.py"),
        ("model.pt2 --verify", "is not a Python file", "--verify expects a repro.py"),
        ("script.py --verify", "states no failure", "python script.py"),
        ("model.pt2 --dynamic-sweep --inputs nowhere.py", "no such file", "--inputs"),
    ],
)
def test_unusable_files_are_reported_before_torch_is_imported(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    line: str,
    words: str,
    advice: str,
) -> None:
    before = sorted(p for p in tmp_path.rglob("*") if "shrinkfx-out" not in p.name)
    monkeypatch.setattr(subprocess, "Popen", never)
    given = [word.replace("{}", " {}") for word in line.split()]
    code, said = answer(capsys, *given)
    assert code == 2
    assert words in said
    assert advice in said
    assert "Traceback" not in said
    assert "executed" not in said
    after = sorted(p for p in tmp_path.rglob("*") if "shrinkfx-out" not in p.name)
    assert after == before


def test_verbose_run_prints_the_traceback_of_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, said = answer(capsys, "nowhere.pt2", "-v")
    assert code == 2
    assert "Traceback" in said


def test_output_folder_of_another_run_is_not_overwritten(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path
) -> None:
    (tmp_path / "summary.json").write_text("{}")
    code, said = answer(capsys, str(model), "--out", str(tmp_path))
    assert code == 2
    assert "contains another run" in said
    assert (tmp_path / "summary.json").read_text() == "{}"


def test_output_folder_that_cannot_be_created_is_named(
    capsys: pytest.CaptureFixture[str], model: Path
) -> None:
    code, said = answer(capsys, str(model), "--out", f"{model}/out")
    assert code == 2
    assert f"--out {model}/out" in said
    assert "name a folder that can be written to" in said


@pytest.mark.torch
def test_invalid_program_file_is_reported_and_leaves_no_folder(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path
) -> None:
    code, said = answer(capsys, str(model), "--out", str(tmp_path / "out"))
    assert code == 2
    assert "cannot be loaded" in said
    assert "torch.export.save" in said
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()


@pytest.mark.torch
def test_preload_exception_is_reported(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken_operators.py"
    broken.write_text("raise RuntimeError('no licence')")
    out = str(tmp_path / "out")
    code, said = answer(capsys, str(model), "--preload", str(broken), "--out", out)
    assert code == 2
    assert "no licence" in said


def swept(status: str, target: SweepFinding | None, folder: Path) -> Swept:
    counts = dict.fromkeys(("run", "passes", "fails", "invalid", "unresolved"), 1)
    found = () if target is None else (target,)
    report = {
        "examples": {"inside": counts},
        "findings": [],
        "space": {"symbols": [{"name": "n"}, {"name": "m"}]},
        "sizes": [[2, 3, "passes", -1], [6, 12, "fails", 0], [6, 2, "fails", 0]],
    }
    return Swept(status, found, target, "", folder, report)


def reduction(out: Path) -> Reduction:
    return Reduction(
        "unverified",
        whole(chain("x", "relu")),
        PLANTED,
        PLANTED,
        minimal=True,
        operators=(2, 1),
        checks=3,
        seconds=1.0,
        verified=(3, 0),
        repro=out / "repro.py",
        summary={
            "rate": {"before": 1.0, "after": 1.0},
            "other_failures": [],
            "cause": [],
        },
    )


def test_long_message_of_an_other_failure_is_cut(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    model: Path,
) -> None:
    facts = {"kind": "nan", "stage": "run", "operators": 2, "candidate": "1a2b"}
    caught = [{**facts, "text": text} for text in ("x" * 81, "y" * 80 + "\nlog")]
    came = reduction(tmp_path)
    came = replace(came, summary={**came.summary, "other_failures": caught})
    monkeypatch.setattr(reducing, "run", lambda *_: came)
    main([str(model), "--out", str(tmp_path / "out"), "-v"])
    shown = [s for s in capsys.readouterr().out.splitlines() if "other failures" in s]
    cut = [line.split()[12] for line in shown]
    assert cut == [f"`{'x' * 77}...`;", f"`{'y' * 80}`;"]


FOUND = SweepFinding(
    SweepFailure((33,), Signature(Kind.NAN, Stage.COMPARE), (32,), 1, 1),
    {"s0": 33},
    {"s0": 32},
    Path("failing-1.pt"),
    Path("passing-1.pt"),
)


@pytest.mark.parametrize(
    ("status", "target", "code", "reduces"),
    [
        ("found", FOUND, 5, True),
        ("found", None, 6, False),
        ("missed", None, 3, False),
        ("passes", None, 0, False),
        ("stopped", FOUND, 4, False),
    ],
)
def test_sweep_continues_with_a_reduction_of_the_requested_kind(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    model: Path,
    status: str,
    target: SweepFinding | None,
    code: int,
    reduces: bool,
) -> None:
    asked: list[tuple[Options, Path]] = []

    def run(options: Options, out: Path, _: object) -> Reduction:
        asked.append((options, out))
        return reduction(out)

    monkeypatch.setattr(
        reducing, "run_sweep", lambda *_: swept(status, target, tmp_path)
    )
    monkeypatch.setattr(reducing, "run", run)
    out = ["--out", str(tmp_path / "out")]
    assert main([str(model), "--dynamic-sweep", *out, "-q"]) == code
    assert bool(asked) is reduces
    for options, folder in asked:
        assert (options.inputs, options.sweeping) == (Path("failing-1.pt"), None)
        assert folder == tmp_path


def test_sweep_prints_the_failing_sizes(
    tmp_path: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        reducing, "run_sweep", lambda *_: swept("found", None, tmp_path)
    )
    main([str(model), "--dynamic-sweep", "-q"])
    assert "fails at n, m = (6, 2), (6, 12)\n" in capsys.readouterr().out


def test_sigterm_ends_a_run_like_ctrl_c(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def reduce(*_: object) -> NoReturn:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
        raise AssertionError("it went on")

    monkeypatch.setattr(api, "reduce", reduce)
    code, said = answer(capsys, str(model))
    assert code == 4
    assert "interrupted before a repro was verified" in said
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
