"""Sizes in statements fall with those of inputs, and without them."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given as given_cases
from hypothesis import settings
from hypothesis import strategies as st
from support.fake_fitter import FakeFitter, is_program, types_in
from support.listings import codes, given, listing
from support.small import SIZES, drawn, reduced, shape

from shrinkfx.program.listing.changes import Change, Resize, Write, apply_changes
from shrinkfx.program.listing.printed_program import MAIN, LeafKind, PrintedProgram
from shrinkfx.program.listing.sizes import sizes_in_statements

ARANGE = "a = aten.arange.default(975)\nreturn a"


def searched(
    program: PrintedProgram, fails: Callable[[PrintedProgram], bool]
) -> tuple[PrintedProgram, int]:
    return reduced(program, fails, SIZES, fitter=FakeFitter())


def made(program: PrintedProgram, name: str) -> tuple[int, ...]:
    """Tell the shape of what comes of a statement."""
    return types_in(program)[MAIN, name].shape


def numbers(program: PrintedProgram) -> list[Write]:
    """List the numbers in statements, as they are."""
    return [
        Write(MAIN, line.name, leaf.number, leaf.text)
        for line in program.main.statements
        for leaf in line.leaves
        if leaf.kind is LeafKind.NUMBER
    ]


@pytest.mark.parametrize(
    ("least", "questions"), [(1, 1), (2, 2), (4, 7), (17, 13), (600, 27), (974, 30)]
)
def test_arange_size_shrinks_to_the_smallest_that_fails(
    least: int, questions: int
) -> None:
    best, asked = searched(listing(ARANGE), lambda p: made(p, "a")[0] >= least)
    assert made(best, "a") == (least,)
    assert asked <= questions


@pytest.mark.parametrize(
    ("code", "sizes"),
    [
        ("arange.default(975)", [975]),
        ("full.default([975, 4], 12)", [975]),
        ("view.default(x, [12, 1, 40])", [12, 40]),
        ("slice.Tensor(x, 0, 0, 7)", [7]),
        ("slice.Tensor(x, 1, 0, 40)", []),
        ("mul.Tensor(x, 40)", []),
        ("add.Tensor(x, x, alpha=12)", []),
    ],
)
def test_numbers_that_are_sizes_are_recognized(code: str, sizes: list[int]) -> None:
    program = listing(f"a = aten.{code}\nreturn a", given("x", drawn(12, 40)))
    found = sizes_in_statements(program, types_in(program))
    assert [size for size, _ in found] == sizes


def test_equal_numbers_shrink_together_with_input_sizes() -> None:
    text = """
        a = aten.arange.default(975)
        add = aten.add.Tensor(a, x)
        expand = aten.expand.default(y, [975, 1])
        return (add, expand)"""
    program = listing(
        text, given("x", drawn(975, dtype="int64")), given("y", drawn(1, 1))
    )

    def fails(p: PrintedProgram) -> bool:
        return made(p, "a") == shape(p, "x") == made(p, "expand")[:1] != (1,)

    best, asked = searched(program, fails)
    assert codes(best)[:3:2] == [
        "a = aten.arange.default(2)",
        "expand = aten.expand.default(y, [2, 1])",
    ]
    assert asked <= 6


def test_statement_numbers_shrink_without_a_fixed_input() -> None:
    text = """
        a = aten.arange.default(975)
        f = aten.full.default([975], 1)
        add = aten.add.Tensor(a, f)
        relu = aten.relu.default(x)
        return (add, relu)"""
    program = listing(text, given("x", drawn(975)))

    def fails(p: PrintedProgram) -> bool:
        return shape(p, "x") == (975,) and made(p, "a") == made(p, "f") >= (4,)

    best, asked = searched(program, fails)
    assert (made(best, "a"), made(best, "f")) == ((4,), (4,))
    assert asked <= 60


def test_equal_numbers_shrink_separately() -> None:
    text = "a = aten.arange.default(40)\nf = aten.full.default([40], 1)\nreturn (a, f)"

    def fails(p: PrintedProgram) -> bool:
        return made(p, "a")[0] >= 17 and made(p, "f") == (40,)

    best, asked = searched(listing(text), fails)
    assert (made(best, "a"), made(best, "f")) == ((17,), (40,))
    assert asked <= 36


# --- what is left was asked about: of each number above 4 the least, and one less


@st.composite
def cases(draw: st.DrawFn) -> tuple[PrintedProgram, Callable[[PrintedProgram], bool]]:
    """Draw a program and numbers at which it fails: from some up, or just at some."""
    few = st.sampled_from([3, 8, 12, 17, 40])
    n, m, k = (draw(few) for _ in "nmk")
    x = draw(st.sampled_from([n, m, 1]))
    text = f"""
        a = aten.arange.default({n})
        f = aten.full.default([{m}, {n}], 12)
        add = aten.add.Tensor(f, a)
        part = aten.slice.Tensor(x, 0, 0, {k})
        expand = aten.expand.default(x, [{m}, {x}])
        return (add, part, expand)"""
    program = listing(text, given("x", drawn(x)))
    first = numbers_of(program)
    least = [draw(st.integers(1, number)) for number in first]
    odd, dice = draw(st.booleans()), draw(st.integers(0, 1000))

    def fails(p: PrintedProgram) -> bool:
        now = numbers_of(p)
        if not odd or now == first:
            return all(a >= b for a, b in zip(now, least, strict=True))
        return random.Random(f"{dice} {now}").random() < 0.2

    return program, fails


def numbers_of(program: PrintedProgram) -> list[int]:
    """List the sizes of inputs, and what numbers in statements make."""
    held = [size for each in program.given for size in each.recipe().shape]
    names = ("a", "f", "part", "expand")
    return [*held, *(size for name in names for size in made(program, name))]


def smaller_by_hand(program: PrintedProgram) -> Iterator[PrintedProgram]:
    """Make each size its least, and one less: with its equals, and alone."""
    groups: dict[int, list[Write]] = defaultdict(list)
    [(size,)] = (each.recipe().shape for each in program.given)
    for write in numbers(program):
        number = int(write.text)
        is_value = (write.statement, write.leaf) == ("f", 3)
        cuts_off = write.statement != "part" or number < size
        if number > 4 and cuts_off and not is_value:
            groups[number].append(write)
    for number in {size, *groups}:
        for goal in {1, number - 1}:
            writes = [replace(write, text=str(goal)) for write in groups[number]]
            resized: list[Change] = [Resize("x", 0, goal)] if number == size else []
            some: list[list[Change]] = [[*resized, *writes], resized, [*writes]]
            some += [[write] for write in writes]
            for changes in some:
                if changes and 0 < goal < number and is_program(program, changes):
                    yield apply_changes(program, changes)


@settings(deadline=None)
@given_cases(cases())
def test_reduced_numbers_cannot_shrink_to_the_minimum_or_by_one(
    case: tuple[PrintedProgram, Callable[[PrintedProgram], bool]],
) -> None:
    program, fails = case
    if not is_program(program, []):
        return
    best, _ = searched(program, fails)
    assert not [codes(p) for p in smaller_by_hand(best) if fails(p)]
