"""What ``--verify`` says of a script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shrinkfx import api
from shrinkfx.cli.main import main
from shrinkfx.errors import LoadError, UsageError
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.options.options import Options
from shrinkfx.protocol.choices import Guard
from shrinkfx.report.header import read_failure
from shrinkfx.run.verify import backend_for

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
