"""What sizes a program may have, from the texts that a file holds of them."""

from __future__ import annotations

import json

import pytest

from shrinkfx.program.sizes import (
    UNBOUNDED,
    Place,
    Space,
    Symbol,
    evaluate,
    names_in,
    outside,
    sizes_near_export,
)

SPACE = Space(
    symbols=(Symbol("t", 2, 32, 5), Symbol("b", 0, None, 4)),
    places=(Place("x", 0, "t"), Place("y", 0, "2*t + 1"), Place("y", 1, "b")),
    conditions=("t % 4 == 1", "b != 7", "b <= 2*t"),
    tensors=("t*b*8", "b"),
)


def test_space_round_trips_through_json() -> None:
    assert Space.from_json(json.loads(json.dumps(SPACE.to_json()))) == SPACE


def test_space_lists_allowed_sizes_of_each_symbol() -> None:
    ts, bs = SPACE.allowed
    assert list(ts) == [5, 9, 13, 17, 21, 25, 29]
    assert list(bs) == [n for n in range(UNBOUNDED + 1) if n != 7]


@pytest.mark.parametrize(
    ("sizes", "admitted"),
    [((5, 4), True), ((5, 10), True), ((5, 11), False), ((6, 4), False)],
)
def test_space_admits_sizes_that_satisfy_all_conditions(
    sizes: tuple[int, ...], admitted: bool
) -> None:
    assert SPACE.admits(sizes) is admitted


def test_space_counts_the_elements_of_the_largest_tensor() -> None:
    assert SPACE.elements((5, 4)) == 160
    assert Space(SPACE.symbols).elements((5, 4)) == 0


def test_space_description_includes_derived_sizes() -> None:
    assert SPACE.describe((5, 4)) == "t=5, b=4, 2*t + 1=11"


def test_sizes_near_export_are_within_declared_range() -> None:
    assert sizes_near_export(SPACE) == [(5, 6), (9, 8), (5, 2)]
    assert all(SPACE.admits(sizes) for sizes in sizes_near_export(SPACE))
    apart = Space((Symbol("t", 3, 64, 5), Symbol("b", 1, None, 4)))
    assert sizes_near_export(apart) == [(6, 6), (10, 8), (4, 2)]
    alone = Space(apart.symbols, conditions=("t == 5 or b == 4",))
    assert sizes_near_export(alone) == [(6, 4), (5, 6)]


def test_sizes_near_export_exclude_far_larger_tensors() -> None:
    large = Space((Symbol("t", 1, None, 1000),), tensors=("t**3",))
    assert sizes_near_export(large) == [(1001,), (999,)]
    fixed = Space((Symbol("t", 5, 5, 5),))
    assert sizes_near_export(fixed) == []


def test_sizes_outside_exceed_range_in_one_symbol() -> None:
    space = Space((Symbol("t", 3, 8, 5), Symbol("b", 1, None, 4)))
    around = [(0, 4), (1, 4), (2, 4), (9, 4), (5, 0)]
    smallest = [(0, 1), (1, 1), (2, 1), (9, 1), (3, 0)]
    assert outside(space) == around + smallest


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2*s0 + 1", 15),
        ("(s0 // 2)", 3),
        ("max(s0, 9)", 9),
        ("-1 + s0**2", 48),
        ("s0 % 2 == 1 and not s0 < 3 or s0 == 0", 1),
    ],
)
def test_size_arithmetic_is_evaluated(text: str, value: int) -> None:
    assert evaluate(text, {"s0": 7}) == value
    assert names_in(text) == {"s0"}


@pytest.mark.parametrize(
    "text",
    [
        *("__import__('os')", "s0.real", "[s0]", "'a' * s0", "f(s0)", "1.5*s0"),
        *("9**9**9", "(9**16)**16", "2**s0", "2**99999999", "2**'a'"),
    ],
)
def test_size_text_that_is_no_arithmetic_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="in a size"):
        evaluate(text, {"s0": 7})


def test_condition_that_divides_by_zero_does_not_hold() -> None:
    space = Space((Symbol("n", 0, 4, 3),), conditions=("6 % n == 0",))
    assert list(space.allowed[0]) == [1, 2, 3]
