"""A step that a reader would call sensible has a lower cost."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from shrinkfx.program.listing.changes import (
    Cast,
    Change,
    Convert,
    Declare,
    Fix,
    Refill,
    Resize,
    Straighten,
    apply_changes,
)
from shrinkfx.program.listing.printed_program import (
    MAIN,
    Block,
    Dim,
    InputOrWeight,
    PrintedProgram,
    Run,
    Statement,
)
from shrinkfx.program.listing.tensor_specs import (
    LISTED,
    Constant,
    Counted,
    Initializer,
    Saved,
    Seeded,
    Sparse,
    TensorSpec,
)


def adding(
    recipe: TensorSpec, open_dims: tuple[tuple[int, str], ...] = ()
) -> PrintedProgram:
    """List a program that adds a weight to its input."""
    given = InputOrWeight("x", "input", ((Run.EXAMPLE, recipe),), open_dims)
    weight = InputOrWeight("w", "parameter", ((Run.EXAMPLE, recipe),))
    lines = ("add = torch.ops.aten.add.Tensor(x, self.w)", "return (add,)")
    block = Block(MAIN, ("x",), (), tuple(map(Statement.parse_line, lines)))
    return PrintedProgram((block,), (weight, given))


ONES = Constant(1.0)
FEW = Sparse(0.0, ((700, math.nan),))
LISTABLE = Sparse(0.5, tuple((place, 1.5) for place in range(2, 2 + LISTED)))


@pytest.mark.parametrize(
    ("recipe", "change"),
    [
        (TensorSpec((8,), "float32", ONES), Resize("x", 0, 1)),
        (TensorSpec((8,), "bfloat16", ONES), Cast("x", "float32")),
        (TensorSpec((8,), "int8", ONES), Cast("x", "int64")),
        (TensorSpec((8,), "complex128", ONES), Cast("x", "float32")),
        (TensorSpec((8, 8), "float32", ONES, (0, 1)), Straighten("x")),
        (TensorSpec((8, 8), "float32", ONES, (16, 1)), Straighten("x")),
        (TensorSpec((8,), "float32", ONES), Convert("w", "input")),
    ],
)
def test_simpler_tensor_spec_costs_less(recipe: TensorSpec, change: Change) -> None:
    listing = adding(recipe)
    assert apply_changes(listing, [change]).cost < listing.cost


@pytest.mark.parametrize(
    ("fill", "plainer"),
    [
        (Saved("x"), LISTABLE),
        (Saved("x"), Seeded("randn")),
        (LISTABLE, replace(LISTABLE, elements=LISTABLE.elements[1:])),
        (FEW, Sparse(0.0, ((0, math.nan),))),
        (FEW, Constant(math.nan)),
        (Sparse(0.0, ((3, 2.5),)), Sparse(0.0, ((3, 1.0),))),
        (Sparse(0.5, ((3, 1.0),)), Sparse(0.0, ((3, 1.0),))),
        (FEW, Seeded("randn")),
        (Seeded("randn"), Counted()),
        (Counted(), Constant(2.0)),
        (Constant(2.0), ONES),
    ],
)
def test_simpler_initializer_costs_less(
    fill: Initializer, plainer: Initializer
) -> None:
    listing = adding(TensorSpec((1000,), "float32", fill))
    assert apply_changes(listing, [Refill("x", plainer)]).cost < listing.cost


@pytest.mark.parametrize(
    "change", [Fix("x", 0), Declare("n", 0, None), Declare("n", 2, 99)]
)
def test_less_dynamic_dim_costs_less(change: Change) -> None:
    recipe = TensorSpec((8,), "float32", ONES)
    listing = replace(adding(recipe, ((0, "n"),)), dims=(Dim("n", 2, 128),))
    assert apply_changes(listing, [change]).cost < listing.cost
