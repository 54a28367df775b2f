"""The sizes of large inputs become smaller together."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.listings import given, listing
from support.small import drawn, reduced, shape, view

from shrinkfx.program.listing.printed_program import PrintedProgram
from shrinkfx.strategies.tensors import BisectSizes

ADD = "add = aten.add.Tensor(x, y)\nreturn add"
LARGE = listing(ADD, given("x", drawn(4096, 1000)), given("y", drawn(1000)))


def searched(fails: Callable[[PrintedProgram], bool]) -> tuple[PrintedProgram, int]:
    return reduced(LARGE, fails, ["bisect_sizes"])


def test_irrelevant_sizes_become_one_in_one_query() -> None:
    best, questions = searched(lambda p: True)
    assert (shape(best, "x"), shape(best, "y")) == ((1, 1), (1,))
    assert questions == 1


@pytest.mark.parametrize(
    "fails",
    [
        lambda p: min(shape(p, "x")) > 200,
        lambda p: shape(p, "x")[0] > 33 and shape(p, "x")[1] % 16 == 8,
        lambda p: shape(p, "x")[0] % 16 == 0 and shape(p, "y")[0] >= 257,
    ],
)
def test_inputs_become_small_in_few_queries(
    fails: Callable[[PrintedProgram], bool],
) -> None:
    best, questions = searched(fails)
    assert fails(best)
    assert best.nbytes < 1 << 20
    assert questions <= 5


def test_small_inputs_give_no_proposals() -> None:
    program = listing(ADD, given("x", drawn(40, 1000)), given("y", drawn(1000)))
    assert not [*BisectSizes().propose(view(program))]
