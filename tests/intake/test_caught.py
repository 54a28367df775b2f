"""Failing code of this process, in a ``catch`` block."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch._inductor import aoti_compile_and_package, compile_fx, lowering

import shrinkfx
from shrinkfx import api
from shrinkfx.errors import NothingToReduce
from shrinkfx.options.options import FailedStep, Options

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(name="reduced")
def _reduced(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """Collect what runs are asked for instead of doing it."""
    reduced: list[Options] = []
    monkeypatch.setattr(api, "reduce", lambda options, _: reduced.append(options))
    return reduced


def refuse(*_: object, **__: object) -> None:
    raise ValueError("no such lowering")


def cosine(x: torch.Tensor) -> torch.Tensor:
    return x.cos() + 1


def test_failing_compilation_is_caught_and_reduced(
    monkeypatch: pytest.MonkeyPatch, reduced: list[Options]
) -> None:
    monkeypatch.setattr(compile_fx, "_compile_fx_inner", refuse)
    raises = pytest.raises(Exception, match="no such lowering")
    with raises as raised, shrinkfx.catch() as caught:
        torch.compile(cosine)(torch.ones(3))
    place = Path("shrinkfx-out/session-1/capture").resolve()
    assert caught.path == place
    assert caught.programs == (place / "program-1.py",)
    note = f"to reduce it: caught.minify(), or shrinkfx {place}"
    assert note in raised.value.__notes__
    caught.minify(until="compile-error", quiet=True)
    (options,) = reduced
    assert options.model == caught.programs[0]
    assert (options.out, options.until) == (place.parent, "compile-error")
    assert options.in_script is not None
    assert options.in_script.failed is FailedStep.COMPILE
    (place.parent / "journal.sqlite").touch()
    caught.minify(quiet=True)
    assert reduced[1].out is None


def test_entry_points_are_restored_after_the_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = aoti_compile_and_package
    with shrinkfx.catch() as caught:
        assert aoti_compile_and_package is not original
        assert torch._inductor.aoti_compile_and_package is aoti_compile_and_package
        wrapper = aoti_compile_and_package  # as an import in the block keeps it
    assert aoti_compile_and_package is original
    assert torch._inductor.aoti_compile_and_package is original
    monkeypatch.setattr(compile_fx, "_compile_fx_inner", refuse)
    with pytest.raises(Exception, match="no such lowering"):
        wrapper(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    assert caught.programs == ()
    with pytest.raises(NothingToReduce, match="compiled nothing with Inductor"):
        caught.minify()
    assert not caught.path.parent.exists()


CRASHES = """
import os, signal, sys, torch, shrinkfx
from torch._inductor import compile_fx
compile_fx._compile_fx_inner = lambda *_, **__: os.kill(os.getpid(), signal.SIGSEGV)
with shrinkfx.catch("out"):
    torch.compile(torch.cos)(torch.ones(3))
"""


def test_programs_of_process_that_crashes_can_be_reduced(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CRASHES], check=False, timeout=120
    )
    assert done.returncode < 0
    assert [run.status for run in api.runs("out")] == [api.State.CAPTURED]
    chosen = api.recaptured(Options(tmp_path / "out"))
    assert chosen.model.name == "program-1.py"
    assert chosen.in_script is not None
    assert chosen.in_script.died
    assert chosen.in_script.message.endswith("(<string>:6): the block did not end")


PLANTED = """
import torch
from torch._inductor.lowering import lowerings

def wrong(x):
    return lowerings[torch.ops.aten.sinh.default](x)

def install():
    lowerings[torch.ops.aten.cosh.default] = wrong
"""


@pytest.mark.aoti
def test_wrong_result_of_session_is_reduced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted_in_session.py").write_text(PLANTED)
    monkeypatch.syspath_prepend(str(tmp_path))
    cosh = torch.ops.aten.cosh.default
    monkeypatch.setitem(lowering.lowerings, cosh, lowering.lowerings[cosh])
    importlib.import_module("planted_in_session").install()
    with shrinkfx.catch() as caught:
        for function in (cosine, lambda x: x.relu().cosh() * 2):
            torch.compile(function)(torch.ones(4))
    reduction = caught.minify(no_explain=True, quiet=True)
    assert reduction.exit_code == 0
    assert reduction.operators == (3, 1)
    assert reduction.repro == caught.path.parent / "repro.py"
    assert "lowerings[torch.ops.aten.cosh.default] = wrong" in (
        reduction.repro.read_text()
    )
