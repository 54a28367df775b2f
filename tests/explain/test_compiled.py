"""Decisions that a real compiler takes, found by a program that needs them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.whole_programs import reduced_program
from torch import Tensor, nn

from shrinkfx.explain.decisions import find_decisions, needed_applications
from shrinkfx.explain.reduced_program import Variants
from shrinkfx.findings.decisions import Decisions, by_hand, format_decisions
from shrinkfx.protocol.choices import CandidateForm, Subsystem

ROLL = Path(__file__).resolve().parents[2] / "repros/assert_roll_bound/planted.py"

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


ARGS = (torch.rand(8, 12),)


@pytest.mark.aoti
@pytest.mark.every_run
def test_faulty_option_is_found_on_the_interpreter(
    tmp_path: Path,
) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text(PERSISTENT)
    with reduced_program(
        tmp_path, SumOfLogarithms(), ARGS, preload=planted, on_interpreter=True
    ) as minimum:
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
    with reduced_program(tmp_path, Reversed(), ARGS, preload=ROLL) as minimum:
        variants = Variants(minimum).with_options(form=CandidateForm.SOURCE)
        known = needed_applications(variants.with_fast_build())
    (one,) = known.left_out
    assert known.unknown == ()
    assert (one.subsystem, one.number, one.of) == (Subsystem.LOWERINGS, 1, 2)
    assert (one.name, one.node, one.alone) == ("aten.roll.default", "roll", True)
    assert len(by_hand(Decisions(left_out=(one,)))) == 2
