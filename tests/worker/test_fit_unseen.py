"""What fits where fake tensors do not run a listing: what changes no type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from listings import listing, recipe

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Refill, Resize, Write
from shrinkfx.program.listing.printed_program import (
    MAIN,
    InputOrWeight,
    PrintedProgram,
    Run,
)
from shrinkfx.program.listing.tensor_specs import Constant, Opaque, TensorSpec
from shrinkfx.worker.listing.fit import fit_rewrites

ONES = Refill("x", Constant(1.0))


@pytest.fixture(name="without_fake", scope="module")
def _without_fake() -> Iterator[str]:
    """Register an operator that has no fake kernel."""
    made: Any = torch.library.Library  # untyped
    library = made("unseen", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    yield "torch.ops.unseen.twice.default"
    library._destroy()


def with_object() -> PrintedProgram:
    weight = InputOrWeight("queue", "script_object", ((Run.EXAMPLE, OBJECT),))
    lines = ["y = torch.ops.aten.relu.default(x)", "return (y,)"]
    program = listing({"x": recipe(4, 6)}, *lines)
    return PrintedProgram(program.blocks, (*program.given, weight), ())


OBJECT = TensorSpec((), "", Opaque("script_object('q', b'')"))


def fit_each_kind(program: PrintedProgram) -> dict[str, object]:
    asked = {
        "values": Rewrite((ONES,)),
        "sizes": Rewrite((Resize("x", 0, 1),)),
        "arguments": Rewrite((Write(MAIN, "y", 0, "x"),)),
        "no such values": Rewrite((Refill("x", Constant(1j)),)),
        "in part": Rewrite((Resize("x", 0, 1), ONES), partly=True),
    }
    told = fit_rewrites(program, [*asked.values()])
    return {**dict(zip(asked, told.fits, strict=True)), "misfit": told.misfit}


def test_values_can_change_without_a_fake_kernel(without_fake: str) -> None:
    lines = [f"y = {without_fake}(x)", "return (y,)"]
    told = fit_each_kind(listing({"x": recipe(4, 6)}, *lines))
    assert told["values"] == told["in part"] == Rewrite((ONES,))
    assert told["sizes"] is told["arguments"] is told["no such values"] is None
    assert "unseen.twice" in str(told["misfit"])


def test_values_can_change_in_a_program_with_a_script_object() -> None:
    told = fit_each_kind(with_object())
    assert told["values"] == told["in part"] == Rewrite((ONES,))
    assert told["sizes"] is told["arguments"] is None
    assert "script_object" in str(told["misfit"])


def test_program_that_fake_tensors_run_has_no_misfit() -> None:
    lines = ["y = torch.ops.aten.relu.default(x)", "return (y,)"]
    told = fit_each_kind(listing({"x": recipe(4, 6)}, *lines))
    assert told["misfit"] == ""
    assert told["sizes"] is not None
