"""Decisions that a real compiler takes, found by a program that needs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from shrinkfx.check.client.server import Server
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.explain.decisions import find_decisions, needed_applications
from shrinkfx.explain.reduced_program import ReducedProgram, Variants
from shrinkfx.failure.classify import classify_ending
from shrinkfx.findings.decisions import Decisions, by_hand, format_decisions
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.answers import Description
from shrinkfx.protocol.choices import Backend, CandidateForm, Probe, Subsystem
from shrinkfx.protocol.requests import CheckCandidate, CheckOptions, Describe

ROLL = Path(__file__).resolve().parents[2] / "repros" / "assert_roll_bound"

PERSISTENT = """
from torch._inductor.codegen.triton import TritonOverrides
from torch._inductor.virtualized import V

usual = TritonOverrides.log1p

def log1p(x):
    is_persistent = getattr(V.kernel, "persistent_reduction", False)
    return f"({usual(x)} + 1000)" if is_persistent else usual(x)

TritonOverrides.log1p = staticmethod(log1p)
"""
"""Off by a constant where a reduction is persistent."""


class SumOfLogarithms(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.log1p(x).sum(-1) * 2


class Reversed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.roll(torch.flip(x, [1]), 3, 1)


@contextmanager
def failing(
    module: nn.Module, preload: Path, folder: Path, *, device: str | None = None
) -> Iterator[ReducedProgram]:
    """Take a program that fails for a minimum."""
    model = folder / "model.pt2"
    torch.export.save(torch.export.export(module, (torch.rand(8, 12),)), model)
    backend = Backend.INTERPRETER if device else Backend.AOTI
    preloads = [str(preload)]
    with Server(
        model=model, preloads=preloads, backend=backend, device=device
    ) as server:
        options = CheckOptions(probe=Probe.REAL if device else None)
        client = CheckClient(server, Limits(600, 8 << 30), options)
        described = client.ask(Describe()).answer
        assert isinstance(described, Description)
        skeleton = Skeleton.from_json(json.loads(Path(described.skeleton).read_text()))
        whole = Candidate.from_skeleton(skeleton)
        seen = classify_ending(client.ask(CheckCandidate(whole.to_json())))
        assert seen.signature is not None
        yield ReducedProgram(client, whole, seen.signature)


@pytest.mark.aoti
@pytest.mark.every_run
def test_faulty_option_is_found_on_the_interpreter(
    tmp_path: Path,
) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text(PERSISTENT)
    with failing(SumOfLogarithms(), planted, tmp_path, device="cuda") as minimum:
        found = find_decisions(minimum)
        told = format_decisions(found, minimum.target)
    assert found.unknown == ()
    gone = (
        "The failure disappears when lowering 0 (aten.log1p.default) falls back to the "
        "eager kernel: "
    )
    assert any(text.startswith(gone) for text in told)
    option = "triton.persistent_reductions=False"
    said = "persistent reductions are at fault."
    assert f"The program passes with {option}: {said}" in told
    assert found.switching is not None
    assert found.switching.compilations <= 14


@pytest.mark.aoti
def test_faulty_lowering_is_found_by_number(tmp_path: Path) -> None:
    with failing(Reversed(), ROLL / "planted.py", tmp_path) as minimum:
        variants = Variants(minimum).with_options(form=CandidateForm.SOURCE)
        known = needed_applications(variants.with_fast_build())
    (one,) = known.left_out
    assert known.unknown == ()
    assert (one.subsystem, one.number, one.of) == (Subsystem.LOWERINGS, 1, 2)
    assert (one.name, one.node, one.alone) == ("aten.roll.default", "roll", True)
    assert len(by_hand(Decisions(left_out=(one,)))) == 2
