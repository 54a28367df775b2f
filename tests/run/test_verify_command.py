"""``shrinkfx verify``: repros here, with other interpreters and on other versions."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from support.doubles import FakeServer
from support.wheels import (
    COMPILERS,
    VERSIONS,
    on_path,
    use_index,
    write_others,
    write_torch,
)

from shrinkfx import api
from shrinkfx.check import environments
from shrinkfx.check.oracle import Limits
from shrinkfx.cli.main import main
from shrinkfx.errors import LoadError, UsageError
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.options.options import Options
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.choices import Guard
from shrinkfx.protocol.requests import RunCommand
from shrinkfx.report.header import read_failure
from shrinkfx.run.verify_command import (
    InterpreterResult,
    Others,
    backend_for,
    by_version,
)

# What ``--verify`` says of a script.


SCRIPT = """\
# assert in AOTInductor (run): reduced from 9 operators to 1.
#
# Failure: {failure}
import helper

def compiled(): raise RuntimeError(helper.TEXT)
actual = compiled()
print("no longer fails")
"""
BOUNDS = "assert | run | index out of bounds"


def script(folder: Path, failure: str, text: str) -> Path:
    path = folder / "repro.py"
    path.write_text(SCRIPT.format(failure=failure))
    (folder / "helper.py").write_text(f"TEXT = {text!r}\n")
    (folder / "unnamed.py").write_text("raise SystemError\n")
    return path


def test_header_of_a_script_states_the_failure(tmp_path: Path) -> None:
    expected = Signature(Kind.ASSERT, Stage.RUN, "index out of bounds")
    mismatch = Signature(Kind.MISMATCH, Stage.COMPARE)
    for line, failure, guard in [
        (BOUNDS, expected, Guard.OFF),
        (f"{BOUNDS} | guard pages before", expected, Guard.BEFORE),
        (f"{BOUNDS} | under compute-sanitizer's memcheck", expected, Guard.MEMCHECK),
        ("mismatch | compare | ", mismatch, Guard.OFF),
        ("mismatch | compare |", mismatch, Guard.OFF),
        ("boom | run | x", None, Guard.OFF),
    ]:
        assert read_failure(SCRIPT.format(failure=line)) == (failure, guard)
    assert read_failure("print('a script')") == (None, Guard.OFF)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("failure", "text", "code", "words"),
    [
        (
            BOUNDS,
            "index out of bounds: 0 <= tmp3 < 7L",
            0,
            "fails as its header states",
        ),
        (BOUNDS, "out of patience", 3, "out of patience"),
        ("?", "out of patience", 0, "out of patience"),
    ],
)
def test_script_is_run_and_its_failure_is_compared(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    failure: str,
    text: str,
    code: int,
    words: str,
) -> None:
    path = script(tmp_path, failure, text)
    assert main([str(path), "--verify", "--no-progress"]) == code
    assert words in capsys.readouterr().out


ENDS = """\
# Failure: ima | run | memory fault | guard pages after
print("ran to its end; an illegal access need not show: run it under ...")
raise SystemExit(125)
"""


@pytest.mark.torch
@pytest.mark.parametrize("checked", [True, False])
def test_script_without_a_result_passes_only_with_active_guard_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checked: bool
) -> None:
    path = tmp_path / "repro.py"
    path.write_text(ENDS)
    if not checked:  # the library of guard pages cannot be kept
        monkeypatch.setenv("XDG_CACHE_HOME", str(path))
    confirmed = api.verify(Options(path))
    assert not confirmed.fails
    assert (confirmed.seen == "passes") is checked
    assert ("ran to its end; no check was active here" in confirmed.seen) is not checked


def test_backend_of_a_script_depends_on_its_failure_and_the_gpu() -> None:
    def chosen(failure: str, script: str, backend: str = "auto") -> str:
        expected, _ = read_failure(f"# Failure: {failure}")
        options = Options(Path("repro.py"), backend=backend)
        return backend_for(options, expected, script)

    seen = "# Verified on Triton's interpreter only, with kernels for sm_90 and no GPU:"
    stray = "ima | run | out-of-bounds read"
    assert chosen(stray, seen) == "interpreter"
    assert chosen(stray, seen, "aoti") == "aoti"
    assert chosen(stray, "") == "auto"
    assert chosen("assert | run | layout of x", seen) == "interpreter"
    assert chosen(BOUNDS, seen) == "auto"


@pytest.mark.torch
@pytest.mark.parametrize(
    ("summary", "code"),
    [
        ({"repro": "repro.py", "files": ["repro.py", "helper.py"]}, 0),
        ({"repro": "repro.py", "files": ["repro.py"]}, 3),
        ({"repro": None, "files": []}, 0),
        ([], 0),
    ],
)
def test_script_is_run_with_the_files_named_in_its_summary(
    tmp_path: Path, summary: object, code: int
) -> None:
    path = script(tmp_path, BOUNDS, "index out of bounds: 0 <= tmp3 < 7L")
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert main([str(path), "--verify", "--no-progress"]) == code


def test_invalid_script_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "model.pt2"
    program.touch()
    with pytest.raises(UsageError, match=r"repro\.py"):
        api.verify(Options(program))
    with pytest.raises(LoadError, match="no such file"):
        api.verify(Options(tmp_path / "repro.py"))
    path = script(tmp_path, "check | run | ./still_fails.sh", "")
    for named in (path, tmp_path):  # the folder that it has been written to
        with pytest.raises(UsageError, match="only its --check command"):
            api.verify(Options(named))


# What ``--verify --across`` says of other interpreters.


SCRIPT_ACROSS = """\
# assert in AOTInductor (run): reduced from 9 operators to 1.
#
# Failure: assert | run | index out of bounds
import torch

def compiled():
    if not torch.__version__.startswith("1.9"):
        raise RuntimeError("index out of bounds: 0 <= tmp3 < 7L")

actual = compiled()
print("no longer fails")
"""
EXPECTED = Signature(Kind.ASSERT, Stage.RUN, "index out of bounds")
THROWN = """\
Traceback (most recent call last):
  File "/x/repro.py", line 10, in <module>
    actual = compiled()
  File "/x/repro.py", line 8, in compiled
    raise RuntimeError("index out of bounds: 0 <= tmp3 < 7L")
RuntimeError: index out of bounds: 0 <= tmp3 < 7L
"""
VERSION = Ending("exit", log="a warning\n1.9.0\n")


@pytest.fixture
def repro(tmp_path: Path) -> Path:
    path = tmp_path / "repro.py"
    path.write_text(SCRIPT_ACROSS)
    return path


@pytest.mark.parametrize(
    ("ending", "fails", "text"),
    [
        (Ending("exit", log="no longer fails\n"), False, "torch 1.9.0: passes"),
        (
            Ending("exit", 1, log=THROWN),
            True,
            "torch 1.9.0: fails: assert in run: index out of bounds: 0 <= tmp3 < 7L",
        ),
        (
            Ending("exit", 1, log=THROWN.replace("index out of bounds", "torn")),
            None,
            "torch 1.9.0: cannot tell: exception in run: RuntimeError: torn: "
            "0 <= tmp3 < 7L",
        ),
        (
            Ending("timeout", stage="run"),
            None,
            "torch 1.9.0: cannot tell: hang in run",
        ),
        (Ending("late", stage="run"), None, "torch 1.9.0: cannot tell: the machine is"),
        (
            Ending("exit", 125, log="ran to its end; it need not show\n"),
            None,
            "torch 1.9.0: cannot tell: ran to its end; no check was active here",
        ),
    ],
)
def test_result_of_another_interpreter_is_worded_by_its_ending(
    repro: Path, ending: Ending, fails: bool | None, text: str
) -> None:
    server = FakeServer(VERSION, ending)
    (told,) = Others(server, Limits(60, 1 << 30), [repro], EXPECTED).run(["/py"])
    assert told.fails is fails
    assert str(told).startswith(text)
    _, run = (request.task for request in server.asked)
    assert isinstance(run, RunCommand)
    assert run.words[-4:] == ("/py", "-X", "faulthandler", "repro.py")


@pytest.mark.torch
def test_results_of_several_versions_are_printed_in_one_table(
    repro: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    (tmp_path / "packages" / "torch").mkdir(parents=True)
    init = tmp_path / "packages" / "torch" / "__init__.py"
    init.write_text("__version__ = '1.9.0'")
    path = f"PYTHONPATH={init.parent.parent}"
    other.write_text(f'#!/bin/sh\n{path} exec {sys.executable} "$@"\n')
    other.chmod(0o755)
    words = [str(repro), "--verify", "--across", str(other), "--no-progress"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "does not fail" not in said
    assert "torch 1.9.0: passes" in said
    assert ": fails (this interpreter)" in said
    assert main([*words, "--json"]) == 0
    ended = json.loads(capsys.readouterr().out.splitlines()[-1])
    (told,) = ended["result"]["across"]
    assert (told["torch"], told["fails"]) == ("1.9.0", False)


def test_across_option_is_refused_for_a_repro_that_needs_shrinkfx(
    repro: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(repro), "--across", sys.executable]) == 2
    assert "shrinkfx verify repro.py" in capsys.readouterr().err
    of = "# Verified on Triton's interpreter only, with kernels for sm_90 and no GPU:\n"
    repro.write_text(SCRIPT_ACROSS.replace("#\n", f"#\n{of}", 1))
    assert main([str(repro), "--verify", "--across", sys.executable]) == 2
    assert (
        "runs a repro without shrinkfx, but this repro was verified on the "
        "interpreter of shrinkfx: install shrinkfx in the environment with "
        "the other PyTorch, and run PYTHON -m shrinkfx repro.py --verify"
    ) in capsys.readouterr().err


# ``shrinkfx verify --torch``: a repro on several versions of PyTorch.


SCRIPT_VERSIONS = """\
# assert in AOTInductor (run): reduced from 9 operators to 1.
#
# Failure: assert | run | index out of bounds
# Seen on: torch 2.14.0+cpu, Python 3.11.7
# Needs:   ninja and a C++ compiler,
#          for operators in C++
import torch

def compiled():
    if torch.__version__.startswith("2.7."):
        import ninja_of_nobody
    if not torch.__version__.startswith("2.6."):
        raise RuntimeError("index out of bounds: 0 <= tmp3 < 7L")

actual = compiled()
print("no longer fails")
"""


class Answering(io.StringIO):
    """A terminal at which a user types an answer."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(name="repro_versions")
def _repro(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a repro, and an index of packages named torch that have only a version."""
    index = tmp_path / "index"
    index.mkdir()
    write_torch(index, "2.7.0", "2.8.0", *VERSIONS)
    write_others(index)
    use_index(monkeypatch, index)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "repro.py"
    path.write_text(SCRIPT_VERSIONS)
    return path


def verify(*words: object) -> int:
    return main(["verify", *map(str, words), "--no-progress"])


def cannot_install(
    monkeypatch: pytest.MonkeyPatch, refused: str, error: BaseException
) -> None:
    """Have pip raise an error when it installs one version."""
    install = environments.Pip.install

    def raise_once(
        pip: environments.Pip, version: str, folder: Path, temporary: Path
    ) -> None:
        if version == refused:
            raise error
        install(pip, version, folder, temporary)

    monkeypatch.setattr(environments.Pip, "install", raise_once)


@pytest.mark.torch
@pytest.mark.processes
def test_result_is_an_ordered_table_with_a_sentence(
    repro_versions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(repro_versions, "--torch", "2.8.0,2.7.0,2.6.0", "--yes") == 0
    said = capsys.readouterr()
    assert "needs to install torch 2.6.0, 2.7.0, 2.8.0 with " in said.err
    rows = said.out.partition("across versions:\n")[2].splitlines()
    own = [row for row in rows if row.endswith(": fails (this interpreter)")]
    assert len(own) == 1
    assert [row for row in rows if row not in own] == [
        "  torch 2.6.0: passes",
        "  torch 2.7.0: cannot tell: exception in run: ModuleNotFoundError: No module "
        "named 'ninja_of_nobody'",
        "  torch 2.8.0: fails: assert in run: index out of bounds: 0 <= tmp3 < 7L",
        "first tested version that fails: 2.8.0; last that passes: 2.6.0; cannot tell "
        "on 2.7.0",
        "not installed for these versions: ninja and a C++ compiler, for operators in "
        "C++",
    ]


@pytest.mark.torch
@pytest.mark.processes
def test_bisection_installs_few_versions_and_skips_those_without_a_verdict(
    repro_versions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(repro_versions, "--torch", "bisect", "--yes", "--json") == 0
    events = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
    result = events[-1]["result"]
    assert "; last that passes: 2.6.0; cannot tell on 2.7.0" in result["versions"]
    verdicts = {run["torch"]: run["fails"] for run in result["across"]}
    assert (verdicts["2.6.0"], verdicts["2.7.0"]) == (False, None)
    assert len(verdicts) < len(VERSIONS)
    made = {path.name.split("-")[1] for path in environments.home().iterdir()}
    assert made == verdicts.keys()


@pytest.mark.torch
@pytest.mark.processes
def test_ctrl_c_keeps_the_results_of_tested_versions(
    repro_versions: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cannot_install(monkeypatch, "2.8.0", KeyboardInterrupt())
    on_path(monkeypatch, repro_versions.parent / "bin", COMPILERS)
    assert verify(repro_versions, "--torch", "2.6.0,2.8.0", "--yes") == 4
    said = capsys.readouterr().out
    assert "  torch 2.6.0: passes\n" in said
    assert "torch 2.8.0" not in said
    assert said.endswith(
        "interrupted: not all versions were tested. Run the same command again; it "
        "reuses the environments.\n"
    )


@pytest.mark.processes
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("n\n", "shrinkfx: nothing was installed\n"),
        ("", "shrinkfx: nothing was installed\n"),
        (None, "\nto install, add --yes\n"),
    ],
)
def test_nothing_is_installed_unless_the_user_agrees(
    repro_versions: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str | None,
    said: str,
) -> None:
    stdin = io.StringIO() if answer is None else Answering(answer)
    monkeypatch.setattr("sys.stdin", stdin)
    assert verify(repro_versions, "--torch", "2.6.0") == 2
    told = capsys.readouterr().err
    assert told.endswith(said)
    assert "to install torch 2.6.0 with " in told
    assert ("install? [y/N]" in told) is (answer is not None)
    assert not environments.home().exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--torch", "2.6.0"],
            ("the path of the repro is missing: shrinkfx verify repro.py"),
        ),
        (["{}", "--torch", "new"], "--torch new: give versions separated by commas"),
        (["{}", "--torch", ""], "--torch has an empty value"),
        (["{}", "--yes"], "--yes needs --torch: add --torch"),
        (["{}x", "--torch", "2.6.0"], "no such file"),
    ],
)
def test_contradictory_options_are_refused_at_once(
    repro_versions: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    said: str,
) -> None:
    given = [word.replace("{}", str(repro_versions)) for word in words]
    try:
        code = verify(*given)
    except SystemExit as left:
        code = int(left.code or 0)
    assert code == 2
    assert said in capsys.readouterr().err


def test_verdicts_are_by_release_or_by_build_if_a_release_has_several() -> None:
    runs = [
        InterpreterResult("/c", "2.14.0+cpu", "", False),
        InterpreterResult("/b", "2.13.0+cu130", "", True),
        InterpreterResult("/a", "2.13.0+cpu", "", False),
        InterpreterResult("/none", "", "does not import torch", None),
    ]
    table = by_version(runs)
    assert table.verdicts == {
        "2.13.0+cu130": True,
        "2.13.0+cpu": False,
        "2.14.0": False,
    }
    assert [run.python for run in table.runs] == ["/b", "/a", "/c", "/none"]
