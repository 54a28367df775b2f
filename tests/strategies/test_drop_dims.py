"""Dims of size 1 go where nothing needs them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.listings import given, listing
from support.small import called, drawn, reduced, shape, view

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.listing.changes import Squeeze, apply_changes
from shrinkfx.program.listing.printed_program import PrintedProgram
from shrinkfx.program.listing.tensor_specs import Saved, TensorSpec
from shrinkfx.strategies.tensors import DropDims

ADD = "add = aten.add.Tensor(x, y)\nreturn add"


def program(x: TensorSpec, y: TensorSpec) -> PrintedProgram:
    return listing(ADD, given("x", x), given("y", y))


def searched(
    start: PrintedProgram, fails: Callable[[PrintedProgram], bool] = lambda p: True
) -> tuple[PrintedProgram, int]:
    return reduced(start, fails, ["drop_dims"])


def test_all_unit_dims_are_dropped_in_one_query() -> None:
    best, questions = searched(program(drawn(1, 1, 5), drawn(1, 2, 1)))
    assert (shape(best, "x"), shape(best, "y")) == ((5,), (2,))
    assert questions == 1
    best, _ = searched(program(drawn(1, 1), drawn()))
    assert (shape(best, "x"), shape(best, "y")) == ((1,), ())


def test_relevant_dim_is_kept() -> None:
    start = program(drawn(1, 5, 1), drawn(1, 2, 1))
    best, questions = searched(start, lambda p: shape(p, "x")[-1] == 1)
    assert (shape(best, "x"), shape(best, "y")) == ((5, 1), (2,))
    assert questions <= 7


def test_dropping_a_dim_preserves_the_other_dims() -> None:
    turned = TensorSpec((1, 2, 3), "float32", drawn().fill, (1, 3, 1))
    made = apply_changes(program(turned, drawn(2, 3)), [Squeeze("x", 0)])
    assert made.find("x").recipe().stride is None
    turned = TensorSpec((1, 2, 3), "float32", drawn().fill, (1, 1, 2))
    made = apply_changes(program(turned, drawn(2, 3)), [Squeeze("x", 0)])
    assert made.find("x").recipe().stride == (1, 2)
    opened = called("x", drawn(1, 4, 3), {1: "n", 2: "m"}, failing=drawn(1, 9, 3))
    made = apply_changes(listing(ADD, opened, given("y", drawn())), [Squeeze("x", 0)])
    assert made.find("x").open_dims == ((0, "n"), (1, "m"))
    assert [recipe.shape for _, recipe in made.find("x").recipes] == [(4, 3), (9, 3)]


@pytest.mark.parametrize(
    "held",
    [
        given("x", drawn(2, 1)),
        given("x", drawn(1)),
        given("x", TensorSpec((1, 2), "float32", Saved("x"))),
        called("x", drawn(1, 2), {0: "n"}),
    ],
)
def test_dims_that_cannot_be_dropped_are_not_proposed(held: object) -> None:
    made = listing(ADD, held, given("y", drawn(2)))  # type: ignore[arg-type]
    assert Squeeze("x", 0) not in [
        c for edit in DropDims().propose(view(made)) for c in edit.changes
    ]
    with pytest.raises(InvalidEdit):
        apply_changes(made, [Squeeze("x", 0)])
