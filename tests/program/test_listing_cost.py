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
    changed,
)
from shrinkfx.program.listing.listing import MAIN, Block, Dim, Given, Listing, Run
from shrinkfx.program.listing.recipes import (
    LISTED,
    Constant,
    Counted,
    Fill,
    Recipe,
    Saved,
    Seeded,
    Sparse,
)
from shrinkfx.program.listing.statements import Statement


def adding(recipe: Recipe, open_dims: tuple[tuple[int, str], ...] = ()) -> Listing:
    """List a program that adds a weight to its input."""
    given = Given("x", "input", ((Run.EXAMPLE, recipe),), open_dims)
    weight = Given("w", "parameter", ((Run.EXAMPLE, recipe),))
    lines = ("add = torch.ops.aten.add.Tensor(x, self.w)", "return (add,)")
    block = Block(MAIN, ("x",), (), tuple(map(Statement.parsed, lines)))
    return Listing((block,), (weight, given))


ONES = Constant(1.0)
FEW = Sparse(0.0, ((700, math.nan),))
LISTABLE = Sparse(0.5, tuple((place, 1.5) for place in range(2, 2 + LISTED)))


@pytest.mark.parametrize(
    ("recipe", "change"),
    [
        (Recipe((8,), "float32", ONES), Resize("x", 0, 1)),
        (Recipe((8,), "bfloat16", ONES), Cast("x", "float32")),
        (Recipe((8,), "int8", ONES), Cast("x", "int64")),
        (Recipe((8,), "complex128", ONES), Cast("x", "float32")),
        (Recipe((8, 8), "float32", ONES, (0, 1)), Straighten("x")),
        (Recipe((8, 8), "float32", ONES, (16, 1)), Straighten("x")),
        (Recipe((8,), "float32", ONES), Convert("w", "input")),
    ],
)
def test_a_plainer_tensor_costs_less(recipe: Recipe, change: Change) -> None:
    listing = adding(recipe)
    assert changed(listing, [change]).cost < listing.cost


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
def test_a_plainer_fill_costs_less(fill: Fill, plainer: Fill) -> None:
    listing = adding(Recipe((1000,), "float32", fill))
    assert changed(listing, [Refill("x", plainer)]).cost < listing.cost


@pytest.mark.parametrize(
    "change", [Fix("x", 0), Declare("n", 0, None), Declare("n", 2, 99)]
)
def test_what_is_less_open_costs_less(change: Change) -> None:
    recipe = Recipe((8,), "float32", ONES)
    listing = replace(adding(recipe, ((0, "n"),)), dims=(Dim("n", 2, 128),))
    assert changed(listing, [change]).cost < listing.cost
