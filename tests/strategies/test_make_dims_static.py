"""Dims that need not be dynamic, and ranges that need not be there."""

from __future__ import annotations

from dataclasses import replace

from support.listings import given, listing
from support.small import called, drawn, reduced, shape, view

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Declare, Fix, Refill, Resize
from shrinkfx.program.listing.printed_program import Dim, PrintedProgram, Run
from shrinkfx.program.listing.tensor_specs import Seeded
from shrinkfx.strategies.tensors import MakeDimsStatic

CAT = "cat = aten.cat.default([x, y], 1)\nreturn cat"


def program(**runs: int) -> PrintedProgram:
    """Make one of ``n`` by ``m`` and ``n`` by 8, with sizes of ``n`` in runs."""
    sizes = {run: drawn(size, 5) for run, size in runs.items()}
    also = {run: drawn(size, 8) for run, size in runs.items()}
    x = called("x", sizes.pop("example"), {0: "n", 1: "m"}, **sizes)
    y = called("y", also.pop("example"), {0: "n"}, **also)
    return listing(CAT, x, y, dims=[Dim("n", 2, 128), Dim("m", 0, None)])


def searched(start: PrintedProgram, fails: object) -> tuple[PrintedProgram, int]:
    assert callable(fails)
    return reduced(start, fails, ["make_dims_static"])


def opened(listing: PrintedProgram) -> list[str]:
    return [how for each in listing.given for _, how in each.open_dims]


def test_program_becomes_static_in_one_query() -> None:
    best, questions = searched(program(example=4, failing=33), lambda p: True)
    assert (opened(best), best.dims) == ([], ())
    assert [len(each.recipes) for each in best.inputs] == [1, 1]
    assert (shape(best, "x"), shape(best, "y")) == ((33, 5), (33, 8))
    assert questions == 1


def test_static_dim_has_the_failing_size_in_all_runs() -> None:
    first, *_ = MakeDimsStatic().propose(
        view(program(example=4, passing=32, failing=33))
    )
    assert first.changes[:3] == (
        Fix("x", 0),
        Resize("x", 0, 33, Run.EXAMPLE),
        Resize("x", 0, 33, Run.PASSING),
    )
    assert first.changes[-1] == Refill("y", Seeded("randn"))


def test_relevant_dim_stays_dynamic_in_both_inputs() -> None:
    best, questions = searched(program(example=4), lambda p: opened(p).count("n") == 2)
    assert opened(best) == ["n", "n"]
    assert best.dims == (Dim("n", 0, None),)
    assert questions <= 4


def test_relevant_range_shrinks_to_the_sizes_that_run() -> None:
    def fails(p: PrintedProgram) -> bool:
        held = {dim.name: dim for dim in p.dims}
        return "n" in held and held["n"].high is not None

    best, questions = searched(program(example=4, failing=33), fails)
    assert best.dims == (Dim("n", 2, 33),)
    assert questions <= 7


def test_auto_dims_become_static_too() -> None:
    auto = {0: "torch.export.Dim.AUTO(min=2)"}
    made = listing(CAT, called("x", drawn(4), auto), given("y", drawn(4)))
    assert next(MakeDimsStatic().propose(view(made))) == Rewrite((Fix("x", 0),))


def test_static_program_gives_no_proposals() -> None:
    made = listing(CAT, given("x", drawn(4)), given("y", drawn(4)))
    assert list(MakeDimsStatic().propose(view(made))) == []


def test_unbounded_ranges_are_proposed_before_small_ones() -> None:
    edits = list(MakeDimsStatic().propose(view(program(example=4, failing=33))))
    assert [edit.changes for edit in edits[-4:]] == [
        (Declare("n", 0, None),),
        (Declare("n", 2, 33),),
        (Declare("n", 4, 33),),
        (Declare("m", 0, None),),
    ] or edits


# --- what fails because it lies outside of its range


def is_outside(p: PrintedProgram) -> bool:
    held = {dim.name: dim for dim in p.dims}
    fails = shape(p, "x", Run.FAILING)[0]
    return "n" in held and not held["n"].holds(fails) and fails > held["n"].low


def test_size_outside_of_its_range_shrinks_with_the_range() -> None:
    best, questions = searched(program(example=40, failing=200), is_outside)
    assert best.dims[0] == Dim("n", 0, 3)
    assert [shape(best, each, run)[0] for each in "xy" for run in Run] == [2, 2, 4] * 2
    assert questions <= 9


def test_size_shrinks_to_the_end_of_a_needed_range() -> None:
    def fails(p: PrintedProgram) -> bool:
        return is_outside(p) and p.dims[0].high == 128

    start = program(example=40, failing=200)
    best, questions = reduced(start, fails, ["shrink_sizes", "make_dims_static"])
    assert best.dims[0].high == 128
    assert shape(best, "x", Run.FAILING)[0] == 129
    assert shape(best, "x")[0] == 2
    assert questions <= 36


def test_size_below_its_range_stays_below() -> None:
    def fails(p: PrintedProgram) -> bool:
        sizes = {run: shape(p, "x", run)[0] for run in Run}
        return [d.low for d in p.dims if d.name == "n"] > [sizes[Run.FAILING]]

    start = program(example=40, failing=5)
    start = replace(start, dims=(Dim("n", 16, None), start.dims[1]))
    best, _ = searched(start, fails)
    assert best.dims[0] == Dim("n", 3, None)
    assert [shape(best, "x", run)[0] for run in (Run.EXAMPLE, Run.FAILING)] == [3, 2]


def test_ranges_that_export_rejects_are_not_proposed() -> None:
    """A dim of one size is none."""
    edits = MakeDimsStatic().propose(view(program(example=2)))
    ranges = [c for edit in edits for c in edit.changes if isinstance(c, Declare)]
    assert all(c.high is None or c.high > max(c.low, 2) for c in ranges)
