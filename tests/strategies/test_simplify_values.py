"""Plain fills for all inputs, and few elements where a failure needs some."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given as given_cases
from hypothesis import strategies as st
from support.listings import given, listing
from support.small import called, drawn, reduced, view

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Refill
from shrinkfx.program.listing.printed_program import InputOrWeight, PrintedProgram, Run
from shrinkfx.program.listing.tensor_specs import (
    Constant,
    Counted,
    Initializer,
    Opaque,
    Part,
    Saved,
    Seeded,
    Sparse,
    TensorSpec,
    number_complexity,
    simpler_numbers,
)
from shrinkfx.strategies.tensors import SimplifyValues

ADD = "add = aten.add.Tensor(x, y)\nreturn add"
RELU = "relu = aten.relu.default(x)\nreturn relu"


def filled(
    name: str, fill: Initializer, *shape: int, dtype: str = "float32"
) -> InputOrWeight:
    return given(name, TensorSpec(shape, dtype, fill))


def fill_of(program: PrintedProgram, name: str = "x") -> Initializer:
    return program.find(name).recipe().fill


def searched(
    program: PrintedProgram, fails: Callable[[PrintedProgram], bool]
) -> tuple[PrintedProgram, int]:
    return reduced(program, fails, ["simplify_values"])


def values(fill: Initializer, count: int) -> list[object]:
    """List the elements of a fill that says them."""
    if isinstance(fill, Constant):
        return [fill.value] * count
    if isinstance(fill, Sparse):
        held = [fill.base] * count
        for place, value in fill.elements:
            held[place] = value
        return [*held]
    return [*range(count)] if isinstance(fill, Counted) else [0.5] * count


def nans(program: PrintedProgram) -> list[int]:
    told = values(fill_of(program), 1000)
    return [i for i, v in enumerate(told) if isinstance(v, float) and math.isnan(v)]


# --- formulas


def test_all_inputs_become_constant_in_one_query() -> None:
    program = listing(
        ADD,
        filled("x", Saved("x"), 4096),
        filled("y", Seeded("randint", 0, 9), 8, dtype="int64"),
    )
    best, questions = searched(program, lambda p: True)
    assert (fill_of(best), fill_of(best, "y")) == (Constant(1.0), Constant(0))
    assert questions == 1


def test_integer_inputs_become_zero_and_boolean_inputs_true() -> None:
    program = listing(
        ADD,
        filled("x", Seeded("randint", 0, 9), 8, dtype="int32"),
        filled("y", Seeded("randint", 0, 2), 8, dtype="bool"),
    )
    first, *_ = SimplifyValues().propose(view(program))
    assert first == Rewrite((Refill("x", Constant(0)), Refill("y", Constant(True))))


def test_relevant_input_keeps_its_values() -> None:
    inputs = [filled(name, Saved(name), 64) for name in "xyzuvw"]
    text = "cat = aten.cat.default([x, y, z, u, v, w])\nreturn cat"
    program = listing(text, *inputs)
    best, questions = searched(program, lambda p: fill_of(p, "z") == Saved("z"))
    plain = [n for n in "xyzuvw" if fill_of(best, n) == Constant(1.0)]
    assert plain == [*"xyuvw"]
    assert questions <= 14


def test_elements_that_must_differ_become_counted() -> None:
    program = listing(RELU, filled("x", Seeded("randn"), 64))
    best, questions = searched(program, lambda p: not isinstance(fill_of(p), Constant))
    assert fill_of(best) == Counted()
    assert questions <= 3


def test_saved_values_become_seeded_if_no_constant_fails() -> None:
    program = listing(RELU, filled("x", Saved("x"), 64))
    best, questions = searched(
        program, lambda p: isinstance(fill_of(p), (Saved, Seeded))
    )
    assert fill_of(best) == Seeded("randn")
    assert questions <= 8


@pytest.mark.parametrize(
    "fill", [Constant(0.0), Constant(1), Constant(True), Opaque("7")]
)
def test_constant_inputs_give_no_proposals(fill: Initializer) -> None:
    program = listing(RELU, filled("x", fill, 4))
    assert list(SimplifyValues().propose(view(program))) == []


def test_runs_are_filled_together_or_separately() -> None:
    saved = replace(drawn(8), fill=Saved("other"))
    program = listing(RELU, called("x", drawn(8), {0: "n"}, failing=saved))

    def fails(p: PrintedProgram) -> bool:
        return p.find("x").recipe(Run.FAILING).fill == Saved("other")

    best, questions = searched(program, fails)
    assert best.find("x").recipe().fill == Constant(1.0)
    assert questions <= 12


# --- the number in a constant


@pytest.mark.parametrize(
    ("needs", "left"),
    [
        (lambda n: True, 1.0),
        (lambda n: n != 1, 0.0),
        (lambda n: n > 50, 100.0),
        (lambda n: n > 127, 128.0),
        (lambda n: n > 128, 205.0),
        (lambda n: n > 205, 205.05),
    ],
)
def test_constant_becomes_a_simpler_nearby_number(
    needs: Callable[[float], bool], left: float
) -> None:
    program = listing(RELU, filled("x", Constant(205.05), 4))
    best, questions = searched(program, lambda p: needs(constant(p)))
    assert fill_of(best) == Constant(left)
    assert questions <= 5


def constant(program: PrintedProgram) -> float:
    fill = fill_of(program)
    assert isinstance(fill, Constant)
    assert isinstance(fill.value, int | float)
    return fill.value


@given_cases(
    st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.integers(0, 1000),
)
def test_no_number_simpler_than_the_reduced_constant_fails(
    first: float, odd: bool, dice: int
) -> None:
    dtype = "int64" if isinstance(first, int) else "float64"

    def program(number: float) -> PrintedProgram:
        return listing(RELU, filled("x", Constant(type(first)(number)), 4, dtype=dtype))

    def fails(p: PrintedProgram) -> bool:
        now = constant(p)
        if not odd or now == first:
            return abs(now) >= abs(first) * dice / 1000
        return random.Random(f"{dice} {now}").random() < 0.2

    best, _ = searched(program(first), fails)
    left = constant(best)
    near: list[float] = [0, 1, *map(type(first), simpler_numbers(left))]
    assert not number_complexity(left) or not [n for n in near if fails(program(n))]


# --- what is in a file


def left_of(fill: Initializer) -> list[int]:
    """List the places whose values are as in the file."""
    if not isinstance(fill, Saved):
        return []
    parts = fill.parts if isinstance(fill, Part) else ((0, 4096),)
    return [place for start, stop in parts for place in range(start, stop)]


@pytest.mark.parametrize(
    ("needed", "most", "questions"),
    [({4000}, 64, 22), ({5}, 64, 17), ({1000, 1010}, 128, 20), ({7, 4000}, 64, 29)],
)
def test_only_a_small_part_of_a_saved_file_is_kept(
    needed: set[int], most: int, questions: int
) -> None:
    program = listing(RELU, filled("x", Saved("x"), 4, 1024))
    best, asked = searched(program, lambda p: needed <= {*left_of(fill_of(p))})
    left = left_of(fill_of(best))
    assert needed <= {*left}
    assert len(left) <= most
    assert asked <= questions


def test_small_saved_tensor_is_proposed_as_a_part() -> None:
    *_, last = SimplifyValues().propose(view(listing(RELU, filled("x", Saved("x"), 8))))
    assert last.changes == (Refill("x", Part("x", 1.0, (8,), ((0, 8),)), Run.EXAMPLE),)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 4096, 1 << 40])
def test_part_is_simpler_than_a_file_and_sparse_than_a_part(count: int) -> None:
    part = TensorSpec((4,), "float32", Part("x", 1.0, (count,), ((0, count),)))
    told = tuple((place, -0.37) for place in range(64))
    for plainer, other in (
        (part, replace(part, fill=Saved("x"))),
        (TensorSpec((4,), "float32", Sparse(-0.5, told)), part),
    ):
        assert plainer.complexity < other.complexity
    assert Initializer.from_json(part.fill.to_json()) == part.fill


# --- elements


def test_one_nan_of_a_thousand_values_is_kept() -> None:
    draw = random.Random(0)
    elements = [(place, draw.random()) for place in range(1000)]
    elements[700] = 700, math.nan
    program = listing(RELU, filled("x", Sparse(0.0, tuple(elements)), 1000))
    best, questions = searched(program, lambda p: len(nans(p)) == 1)
    assert fill_of(best) == Sparse(0.0, ((0, math.nan),))
    assert questions <= 7


def test_nan_keeps_its_position_if_needed() -> None:
    elements = [(place, 0.25 + place) for place in range(1000)]
    elements[700] = 700, math.nan
    program = listing(RELU, filled("x", Sparse(0.0, tuple(elements)), 1000))
    best, questions = searched(program, lambda p: nans(p) == [700])
    assert fill_of(best) == Sparse(0.0, ((700, math.nan),))
    assert questions <= 9


def test_input_becomes_all_nan_if_that_fails() -> None:
    program = listing(RELU, filled("x", Sparse(0.5, ((3, math.nan), (5, 2.0))), 8))
    best, questions = searched(program, lambda p: nans(p) != [])
    assert fill_of(best) == Constant(math.nan)
    assert questions <= 7


def test_nan_in_a_saved_file_is_guessed() -> None:
    program = listing(RELU, filled("x", Saved("x"), 1000))

    def fails(p: PrintedProgram) -> bool:
        return fill_of(p) == Saved("x") or nans(p) == [0]

    best, questions = searched(program, fails)
    assert fill_of(best) == Sparse(1.0, ((0, math.nan),))
    assert questions <= 6


@pytest.mark.parametrize(("count", "questions"), [(50, 47), (1000, 69)])
def test_two_relevant_values_of_many_are_kept(count: int, questions: int) -> None:
    program = listing(
        RELU, filled("x", Sparse(0.0, tuple((i, 2.0 + i) for i in range(count))), count)
    )

    def fails(p: PrintedProgram) -> bool:
        told = values(fill_of(p), count)
        return told[7] == 9.0 and told[30] == 32.0

    best, asked = searched(program, fails)
    assert fill_of(best) == Sparse(0.0, ((7, 9.0), (30, 32.0)))
    assert asked <= questions


def test_largest_index_is_tried_first() -> None:
    draw = random.Random(1)
    elements = tuple((place, draw.randrange(1, 50)) for place in range(64))
    far = (*elements[:20], (20, 9000), *elements[21:])
    program = listing(RELU, filled("x", Sparse(0, far), 64, dtype="int64"))

    def fails(p: PrintedProgram) -> bool:
        return any(isinstance(v, int) and v >= 9000 for v in values(fill_of(p), 64))

    best, questions = searched(program, fails)
    assert fill_of(best) == Constant(9000)
    assert questions <= 8
