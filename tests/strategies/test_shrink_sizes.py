"""Sizes that belong together fall together, after few questions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.listings import given, listing
from support.small import called, drawn, reduced, shape, view

from shrinkfx.program.listing.changes import Declare, Refill, Resize, Write
from shrinkfx.program.listing.listing import MAIN, Dim, Listing, Run
from shrinkfx.program.listing.recipes import Seeded
from shrinkfx.strategies.shrink_sizes import ShrinkSizes

RELU = "relu = aten.relu.default(x)\nreturn relu"
ADD = "add = aten.add.Tensor(x, y)\nreturn add"
MM = "mm = aten.mm.default(x, self.w)\nreturn mm"


def searched(
    program: Listing,
    fails: Callable[[Listing], bool],
    **kind: Callable[[Listing], bool],
) -> tuple[Listing, int]:
    return reduced(program, fails, ["shrink_sizes"], **kind)


def test_all_sizes_are_one_after_one_question() -> None:
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
def test_a_size_falls_to_the_least_that_fails(
    needs: Callable[[int], bool], least: int, questions: int
) -> None:
    program = listing(RELU, given("x", drawn(40)))
    best, asked = searched(program, lambda p: needs(shape(p, "x")[0]))
    assert shape(best, "x") == (least,)
    assert asked <= questions


@pytest.mark.parametrize("least", [600, 601, 513, 999])
def test_a_threshold_is_found_by_bisection(least: int) -> None:
    program = listing(RELU, given("x", drawn(1000)))
    best, asked = searched(program, lambda p: shape(p, "x")[0] >= least)
    assert shape(best, "x") == (least,)
    assert asked <= 26


def test_two_dims_that_must_be_equal_fall_together() -> None:
    program = listing(ADD, given("x", drawn(4, 12)), given("y", drawn(12, 5)))

    def fails(p: Listing) -> bool:
        return shape(p, "x")[1] == shape(p, "y")[0] > 1

    best, asked = searched(program, fails)
    assert (shape(best, "x"), shape(best, "y")) == ((1, 2), (2, 1))
    assert asked <= 8


def test_dims_that_are_equal_by_chance_are_told_apart() -> None:
    program = listing(ADD, given("x", drawn(40, 40)), given("y", drawn(40)))
    best, asked = searched(program, lambda p: shape(p, "x")[1] > 16)
    assert (shape(best, "x"), shape(best, "y")) == ((1, 17), (1,))
    assert asked <= 14


def test_of_many_sizes_one_that_matters_stays() -> None:
    program = listing(ADD, given("x", drawn(40, 7, 6)), given("y", drawn(5, 9, 3)))
    best, asked = searched(program, lambda p: shape(p, "y")[1] > 8)
    assert (shape(best, "x"), shape(best, "y")) == ((1, 1, 1), (1, 9, 1))
    assert asked <= 12


def test_what_does_not_fit_is_not_asked_about() -> None:
    """A window of 7 needs as many elements."""
    program = listing(RELU, given("x", drawn(3, 40)))

    def fits(p: Listing) -> bool:
        return shape(p, "x")[1] >= 7

    best, asked = searched(program, lambda p: True, fits=fits)
    assert shape(best, "x") == (1, 7)
    assert asked <= 5


def test_lists_follow_and_single_numbers_do_not() -> None:
    text = """
        expand = aten.expand.default(x, [12, 2])
        mul = aten.mul.Tensor(expand, 12)
        return mul"""
    program = listing(text, given("x", drawn(12, 1)))
    first, *_ = ShrinkSizes().propose(view(program))
    assert first.changes == (Resize("x", 0, 1), Write(MAIN, "expand", 2, "1"))


def test_small_numbers_in_lists_are_left_to_what_follows() -> None:
    text = "permute = aten.permute.default(x, [0, 2, 1])\nreturn permute"
    program = listing(text, given("x", drawn(2, 1, 1)))
    assert {
        type(c) for e in ShrinkSizes().propose(view(program)) for c in e.changes
    } == {Resize}


def test_indices_below_a_size_are_drawn_below_the_new_one() -> None:
    indices = replace(drawn(3, dtype="int64"), fill=Seeded("randint", 0, 100))
    program = listing(MM, given("w", drawn(100), "buffer"), given("x", indices))
    edits = [edit.changes for edit in ShrinkSizes().propose(view(program))]
    refill = Refill("x", Seeded("randint", 0, 2), Run.EXAMPLE)
    assert (Resize("w", 0, 2, None), refill) in edits


def test_nothing_is_proposed_where_all_is_one() -> None:
    program = listing(ADD, given("x", drawn(1, 1)), given("y", drawn()))
    assert list(ShrinkSizes().propose(view(program))) == []


# --- dynamic dims

DYNAMIC = {0: "n"}


def dynamic(**runs: int) -> Listing:
    """Make a program of ``n`` and ``2*n + 1``, by its sizes in runs."""
    fed = {run: drawn(size) for run, size in runs.items()}
    wide = {run: drawn(2 * size + 1) for run, size in runs.items()}
    x = called("x", fed.pop("example"), DYNAMIC, **fed)
    y = called("y", wide.pop("example"), {0: "2*n + 1"}, **wide)
    return listing(ADD, x, y, dims=[Dim("n", 8, 64)])


def test_what_follows_from_a_dim_falls_with_it_and_the_range_has_room() -> None:
    first, *_ = ShrinkSizes().propose(view(dynamic(example=40)))
    assert first.changes == (
        Resize("x", 0, 2, Run.EXAMPLE),
        Resize("y", 0, 5, Run.EXAMPLE),
        Declare("n", 2, 64),
    )


def test_runs_have_the_least_sizes_that_they_need() -> None:
    program = dynamic(example=40, passing=32, failing=50)

    def fails(p: Listing) -> bool:
        sizes = [shape(p, "x", run)[0] for run in Run]
        assert [shape(p, "y", run)[0] for run in Run] == [2 * s + 1 for s in sizes]
        wrong = [s % 16 != 0 and s > 16 for s in sizes]
        return not wrong[1] and wrong[2]

    best, asked = searched(program, fails)
    passes, fails_at = (shape(best, "x", run)[0] for run in (Run.PASSING, Run.FAILING))
    assert (passes, fails_at) == (2, 17)
    assert len(best.find("x").recipes) == 2  # it is exported with what passes
    assert asked <= 12


def test_dims_that_export_names_fall_by_their_sizes() -> None:
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
def test_sizes_that_only_go_together_do(
    sizes: tuple[int, int], needs: Callable[[int, int], bool], least: tuple[int, int]
) -> None:
    x, y = sizes
    program = listing(ADD, given("x", drawn(x)), given("y", drawn(y)))
    best, asked = searched(program, lambda p: needs(shape(p, "x")[0], shape(p, "y")[0]))
    assert (shape(best, "x")[0], shape(best, "y")[0]) == least
    assert asked <= 40
