"""What ``--verify --across`` says of other interpreters."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.doubles import FakeServer

from shrinkfx.check.oracle import Limits
from shrinkfx.cli.main import main
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.requests import RunCommand
from shrinkfx.run.verify import Others

SCRIPT = """\
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
    path.write_text(SCRIPT)
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
    repro.write_text(SCRIPT.replace("#\n", f"#\n{of}", 1))
    assert main([str(repro), "--verify", "--across", sys.executable]) == 2
    assert (
        "runs a repro without shrinkfx, but this repro was verified on the "
        "interpreter of shrinkfx: install shrinkfx in the environment with "
        "the other PyTorch, and run PYTHON -m shrinkfx repro.py --verify"
    ) in capsys.readouterr().err
