"""Sizes that belong together fall together, after few questions."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given as given_cases
from hypothesis import settings
from hypothesis import strategies as st
from support.listings import given, listing
from support.small import Fits, always, called, drawn, reduced, shape, view

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import (
    Declare,
    Refill,
    Resize,
    Write,
    apply_changes,
)
from shrinkfx.program.listing.printed_program import MAIN, Dim, PrintedProgram, Run
from shrinkfx.program.listing.tensor_specs import Seeded
from shrinkfx.strategies.tensors import ShrinkSizes

RELU = "relu = aten.relu.default(x)\nreturn relu"
ADD = "add = aten.add.Tensor(x, y)\nreturn add"
MM = "mm = aten.mm.default(x, self.w)\nreturn mm"


def searched(
    program: PrintedProgram,
    fails: Callable[[PrintedProgram], bool],
    fits: Callable[[PrintedProgram], bool] = always,
) -> tuple[PrintedProgram, int]:
    return reduced(program, fails, ["shrink_sizes"], fits)


def test_all_sizes_become_one_in_one_query() -> None:
    program = listing(
        MM, given("w", drawn(32, 8), "parameter"), given("x", drawn(2, 32))
    )
    best, questions = searched(program, lambda p: True)
    assert (shape(best, "x"), shape(best, "w")) == ((1, 1), (1, 1))
    assert questions == 1


@pytest.mark.parametrize(
    ("needs", "least", "questions"),
    [
        (lambda s: s % 16 != 0 and s > 16, 17, 8),
        (lambda s: s > 1, 2, 2),
        (lambda s: s >= 3, 3, 3),
        (lambda s: s > 8 and s % 2 == 1, 9, 8),
        (lambda s: s % 8 == 0, 8, 12),
        (lambda s: s >= 13, 13, 12),
        (lambda s: s == 40, 40, 10),
    ],
)
def test_size_shrinks_to_the_smallest_that_fails(
    needs: Callable[[int], bool], least: int, questions: int
) -> None:
    program = listing(RELU, given("x", drawn(40)))
    best, asked = searched(program, lambda p: needs(shape(p, "x")[0]))
    assert shape(best, "x") == (least,)
    assert asked <= questions


@pytest.mark.parametrize("least", [600, 601, 513, 999])
def test_size_threshold_is_found_by_bisection(least: int) -> None:
    program = listing(RELU, given("x", drawn(1000)))
    best, asked = searched(program, lambda p: shape(p, "x")[0] >= least)
    assert shape(best, "x") == (least,)
    assert asked <= 26


@pytest.mark.parametrize("least", [2, 4, 100, 600])
def test_fixed_size_does_not_delay_shrinking_another(least: int) -> None:
    """What was asked of it is not asked again at each step of the other."""
    program = listing(ADD, given("x", drawn(975)), given("y", drawn(900)))

    def fails(p: PrintedProgram) -> bool:
        return shape(p, "x")[0] == 975 and shape(p, "y")[0] >= least

    best, asked = searched(program, fails)
    assert (shape(best, "x"), shape(best, "y")) == ((975,), (least,))
    assert asked <= 60


def test_dims_that_must_be_equal_shrink_together() -> None:
    program = listing(ADD, given("x", drawn(4, 12)), given("y", drawn(12, 5)))

    def fails(p: PrintedProgram) -> bool:
        return shape(p, "x")[1] == shape(p, "y")[0] > 1

    best, asked = searched(program, fails)
    assert (shape(best, "x"), shape(best, "y")) == ((1, 2), (2, 1))
    assert asked <= 8


def test_dims_equal_by_chance_shrink_separately() -> None:
    program = listing(ADD, given("x", drawn(40, 40)), given("y", drawn(40)))
    best, asked = searched(program, lambda p: shape(p, "x")[1] > 16)
    assert (shape(best, "x"), shape(best, "y")) == ((1, 17), (1,))
    assert asked <= 14


def test_one_relevant_size_of_many_is_kept() -> None:
    program = listing(ADD, given("x", drawn(40, 7, 6)), given("y", drawn(5, 9, 3)))
    best, asked = searched(program, lambda p: shape(p, "y")[1] > 8)
    assert (shape(best, "x"), shape(best, "y")) == ((1, 1, 1), (1, 9, 1))
    assert asked <= 12


def test_sizes_that_do_not_fit_are_not_queried() -> None:
    """A window of 7 needs as many elements."""
    program = listing(RELU, given("x", drawn(3, 40)))

    def fits(p: PrintedProgram) -> bool:
        return shape(p, "x")[1] >= 7

    best, asked = searched(program, lambda p: True, fits=fits)
    assert shape(best, "x") == (1, 7)
    assert asked <= 5


def test_sizes_in_lists_follow_but_single_numbers_do_not() -> None:
    text = """
        expand = aten.expand.default(x, [12, 2])
        mul = aten.mul.Tensor(expand, 12)
        return mul"""
    program = listing(text, given("x", drawn(12, 1)))
    first, *_ = ShrinkSizes().propose(view(program))
    assert first.changes == (Resize("x", 0, 1), Write(MAIN, "expand", 2, "1"))


def test_small_numbers_in_lists_are_not_resized() -> None:
    text = "permute = aten.permute.default(x, [0, 2, 1])\nreturn permute"
    program = listing(text, given("x", drawn(2, 1, 1)))
    assert {
        type(c) for e in ShrinkSizes().propose(view(program)) for c in e.changes
    } == {Resize}


def test_index_inputs_are_redrawn_below_the_new_size() -> None:
    indices = replace(drawn(3, dtype="int64"), fill=Seeded("randint", 0, 100))
    program = listing(MM, given("w", drawn(100), "buffer"), given("x", indices))
    edits = [edit.changes for edit in ShrinkSizes().propose(view(program))]
    refill = Refill("x", Seeded("randint", 0, 2), Run.EXAMPLE)
    assert (Resize("w", 0, 2, None), refill) in edits


def test_sizes_of_one_give_no_proposals() -> None:
    program = listing(ADD, given("x", drawn(1, 1)), given("y", drawn()))
    assert list(ShrinkSizes().propose(view(program))) == []


# --- dynamic dims

DYNAMIC = {0: "n"}


def dynamic(**runs: int) -> PrintedProgram:
    """Make a program of ``n`` and ``2*n + 1``, by its sizes in runs."""
    fed = {run: drawn(size) for run, size in runs.items()}
    wide = {run: drawn(2 * size + 1) for run, size in runs.items()}
    x = called("x", fed.pop("example"), DYNAMIC, **fed)
    y = called("y", wide.pop("example"), {0: "2*n + 1"}, **wide)
    return listing(ADD, x, y, dims=[Dim("n", 8, 64)])


def test_derived_size_shrinks_with_its_dim_and_the_range_widens() -> None:
    first, *_ = ShrinkSizes().propose(view(dynamic(example=40)))
    assert first.changes == (
        Resize("x", 0, 2, Run.EXAMPLE),
        Resize("y", 0, 5, Run.EXAMPLE),
        Declare("n", 2, 64),
    )


def test_each_run_gets_its_smallest_sizes() -> None:
    program = dynamic(example=40, passing=32, failing=50)

    def fails(p: PrintedProgram) -> bool:
        sizes = [shape(p, "x", run)[0] for run in Run]
        assert [shape(p, "y", run)[0] for run in Run] == [2 * s + 1 for s in sizes]
        wrong = [s % 16 != 0 and s > 16 for s in sizes]
        return not wrong[1] and wrong[2]

    best, asked = searched(program, fails)
    passes, fails_at = (shape(best, "x", run)[0] for run in (Run.PASSING, Run.FAILING))
    assert (passes, fails_at) == (2, 17)
    assert len(best.find("x").recipes) == 2  # it is exported with what passes
    assert asked <= 12


def test_auto_dims_of_equal_size_shrink_together() -> None:
    auto = {0: "torch.export.Dim.AUTO(min=2)"}
    x, y = called("x", drawn(40), auto), called("y", drawn(40), auto)
    first, *_ = ShrinkSizes().propose(view(listing(ADD, x, y)))
    assert first.changes == tuple(Resize(n, 0, 2, Run.EXAMPLE) for n in "xy")


@pytest.mark.parametrize(
    ("sizes", "needs", "least"),
    [
        ((33, 32), lambda x, y: x == y + 1, (2, 1)),
        ((64, 16), lambda x, y: x == 4 * y, (4, 1)),
        ((40, 24), lambda x, y: x == y + 16 and y > 1, (18, 2)),
    ],
)
def test_related_sizes_shrink_together(
    sizes: tuple[int, int], needs: Callable[[int, int], bool], least: tuple[int, int]
) -> None:
    x, y = sizes
    program = listing(ADD, given("x", drawn(x)), given("y", drawn(y)))
    best, asked = searched(program, lambda p: needs(shape(p, "x")[0], shape(p, "y")[0]))
    assert (shape(best, "x")[0], shape(best, "y")[0]) == least
    assert asked <= 40


# --- what is left was asked about: of each size its least, and one less


@pytest.mark.parametrize("least", [2, 4, 600, 974])
def test_fixed_size_does_not_delay_shrinking_an_equal_size(least: int) -> None:
    """None of them can be 1."""
    program = listing(ADD, given("x", drawn(975)), given("y", drawn(975)))

    def fails(p: PrintedProgram) -> bool:
        return shape(p, "x")[0] >= least and shape(p, "y")[0] == 975

    best, asked = searched(program, fails)
    assert (shape(best, "x"), shape(best, "y")) == ((least,), (975,))
    assert asked <= 75


def test_auto_dims_of_equal_size_shrink_separately() -> None:
    auto = {0: "torch.export.Dim.AUTO(min=2)"}
    x, y = called("x", drawn(40), auto), called("y", drawn(40), auto)

    def fails(p: PrintedProgram) -> bool:
        return shape(p, "x")[0] >= 4 and shape(p, "y")[0] == 40

    best, _ = searched(listing(ADD, x, y), fails)
    assert (shape(best, "x"), shape(best, "y")) == ((4,), (40,))


def test_dim_with_only_a_derived_size_shrinks() -> None:
    x = called("x", drawn(81), {0: "2*n + 1"})
    program = listing(RELU, x, dims=[Dim("n", 8, 64)])
    best, _ = searched(program, lambda p: shape(p, "x")[0] > 8)
    assert shape(best, "x") == (9,)


@st.composite
def cases(draw: st.DrawFn) -> tuple[PrintedProgram, Callable[[PrintedProgram], bool]]:
    """Draw a program and sizes at which it fails: from some up, or just at some."""
    few = st.lists(st.sampled_from([2, 3, 8, 12, 17]), min_size=1, max_size=2)
    sizes = {name: draw(few) for name in "xyz"}
    auto = {0: "torch.export.Dim.AUTO(min=2)"}
    x, y = (
        called(n, drawn(*sizes[n]), auto if draw(st.booleans()) else {}) for n in "xy"
    )
    text = "add = aten.add.Tensor(x, y)\nmul = aten.mul.Tensor(add, self.z)\nreturn mul"
    program = listing(text, x, y, given("z", drawn(*sizes["z"]), "parameter"))
    first = tuple(shape_of(program))
    ups = st.tuples(*(st.integers(1, size) for size in first))
    least = draw(ups)
    odd, dice = draw(st.booleans()), draw(st.integers(0, 1000))

    def fails(p: PrintedProgram) -> bool:
        now = tuple(shape_of(p))
        if not odd or now == first:
            return all(a >= b for a, b in zip(now, least, strict=True))
        return random.Random(f"{dice} {now}").random() < 0.2

    return program, fails


def shape_of(program: PrintedProgram) -> list[int]:
    return [size for each in program.given for size in each.recipe().shape]


def smaller_by_hand(program: PrintedProgram) -> Iterator[PrintedProgram]:
    """Make each size its least, and one less: with its equals, and alone."""
    places = [(g, d) for g in program.given for d in range(len(g.recipe().shape))]
    groups = defaultdict(list)
    for g, d in places:
        groups[g.recipe().shape[d], d in dict(g.open_dims)].append((g, d))
    for (size, is_open), group in groups.items():
        for goal in {2 if is_open else 1, size - 1}:
            for some in (group, *([place] for place in group)):
                if (2 if is_open else 1) <= goal < size:
                    run = Run.EXAMPLE if is_open else None
                    resizes = (Resize(g.name, d, goal, run) for g, d in some)
                    yield apply_changes(program, tuple(resizes))


@given_cases(cases())
def test_reduced_sizes_cannot_shrink_to_the_minimum_or_by_one(
    case: tuple[PrintedProgram, Callable[[PrintedProgram], bool]],
) -> None:
    program, fails = case
    best, _ = searched(program, fails)
    assert not [shape_of(p) for p in smaller_by_hand(best) if fails(p)]


# --- of three equal sizes two that are tied


@dataclass(frozen=True)
class Tied(Fits):
    """As fake tensors: a size that an operator ties to another one follows it."""

    ties: tuple[tuple[str, str], ...] = ()

    def _fitted(self, program: PrintedProgram, rewrite: Rewrite) -> Rewrite | None:
        partners = {**dict(self.ties), **{b: a for a, b in self.ties}}
        changes = dict.fromkeys(rewrite.changes)
        for change in rewrite.changes:
            if isinstance(change, Resize) and change.name in partners:
                changes[replace(change, name=partners[change.name])] = None
        return super()._fitted(program, replace(rewrite, changes=(*changes,)))

    def is_tied(self, program: PrintedProgram) -> bool:
        return all(shape(program, a) == shape(program, b) for a, b in self.ties)


@settings(deadline=None)
@given_cases(
    st.sampled_from([8, 12, 17, 40]),
    st.sampled_from([("x", "y"), ("y", "z"), ("x", "z")]),
    st.tuples(*(st.integers(1, 40) for _ in "xyz")),
)
def test_two_tied_sizes_shrink_independently_of_a_third(
    size: int, tie: tuple[str, str], least: tuple[int, ...]
) -> None:
    text = "a = aten.cat.default([x, y, z])\nreturn a"
    program = listing(text, *(given(name, drawn(size)) for name in "xyz"))

    def fails(p: PrintedProgram) -> bool:
        return all(s >= min(size, n) for s, n in zip(shape_of(p), least, strict=True))

    fitter = Tied(ties=(tie,))
    best, _ = reduced(program, fails, ["shrink_sizes"], fitter.is_tied, fitter)
    needs = dict(zip("xyz", (min(size, n) for n in least), strict=True))
    needs |= dict.fromkeys(tie, max(needs[name] for name in tie))
    assert {name: shape(best, name) for name in "xyz"} == {
        name: (need,) for name, need in needs.items()
    }
