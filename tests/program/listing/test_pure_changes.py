"""Changes of a listing, and what they cannot do."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from support.listings import block, codes, floats, given, listed, listing
from support.random_listings import listings

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.apply import apply, remaining_edit
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import (
    Cast,
    Change,
    Convert,
    Declare,
    DropArgument,
    DropResult,
    Fix,
    Refill,
    Resize,
    Squeeze,
    Straighten,
    Write,
    apply_changes,
)
from shrinkfx.program.listing.names import require_defined
from shrinkfx.program.listing.printed_program import MAIN, Dim, PrintedProgram, Run
from shrinkfx.program.listing.tensor_specs import Constant, Counted, Seeded, Sparse

RUNS = st.none() | st.sampled_from(Run)
NAMES = st.sampled_from(["w", "x", "y", "nowhere"])
FILLS = st.sampled_from(
    [Constant(1.0), Counted(), Seeded("randn"), Sparse(0.0, ((2, 1.0), (30, 2.0)))]
)
BLOCKS = st.sampled_from([MAIN, "Block0", "Block1"])
LINES = st.sampled_from(["v0", "v1", "call", "p0", "last", "return"])
TEXTS = st.sampled_from(["", "1", "x", "[]", "v1", "self.w", "arg0"])
CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.builds(Write, BLOCKS, LINES, st.integers(0, 4), TEXTS),
    st.builds(Resize, NAMES, st.integers(0, 2), st.integers(1, 3), RUNS),
    st.builds(Refill, NAMES, FILLS, RUNS),
    st.builds(Cast, NAMES, st.sampled_from(["int64", "float64"])),
    st.builds(Straighten, NAMES),
    st.builds(Convert, NAMES, st.sampled_from(["input", "buffer"])),
    st.builds(Declare, st.sampled_from(["n", "k"]), st.just(1), st.none()),
    st.builds(Fix, NAMES, st.integers(0, 1)),
    st.builds(Squeeze, NAMES, st.integers(0, 2)),
    st.builds(DropArgument, BLOCKS, st.sampled_from(["arg0", "arg1", "x"])),
    st.builds(DropResult, BLOCKS, LINES, st.integers(0, 2)),
)


@drawn(change=CHANGES)
def test_change_round_trips_through_json(change: Change) -> None:
    text = json.dumps(change.to_json(), allow_nan=False)
    assert Change.from_json(json.loads(text)) == change


@drawn(made=listings(), changes=st.lists(CHANGES, max_size=4))
def test_changed_program_is_normalised_and_well_formed(
    made: PrintedProgram, changes: list[Change]
) -> None:
    with suppress(InvalidEdit):
        other = apply_changes(made, changes)
        assert other.normalised() == other
        require_defined(other)
        assert apply_changes(made, changes[::-1]) == other
        assert PrintedProgram.from_json(other.to_json()) == other


@drawn(made=listings())
def test_applying_no_changes_yields_normal_form(made: PrintedProgram) -> None:
    assert apply_changes(made, []) == made.normalised()


@drawn(change=CHANGES, other=CHANGES)
def test_different_changes_of_same_place_are_refused(
    change: Change, other: Change
) -> None:
    if change.place == other.place and change != other:
        with pytest.raises(InvalidEdit, match="one place"):
            apply_changes(MADE, [change, other])


MADE = listing(
    """
    mm = aten.mm.default(x, self.w)
    sum_1 = aten.sum.dim_IntList(mm, [0, 1], True)
    add = aten.add.Tensor(sum_1, y, alpha=2)
    return (add,)
    """,
    given("w", floats(2, 3), "parameter"),
    replace(given("x", floats(4, 2)), open_dims=((0, "n"),)),
    given("y", floats(1, 1)),
    dims=[Dim("n", 2, 9)],
)
SUM = "sum_1 = aten.sum.dim_IntList"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ([Write(MAIN, "sum_1", 4, "")], f"{SUM}(mm, [0, 1])"),
        (
            [Write(MAIN, "sum_1", 2, ""), Write(MAIN, "sum_1", 4, "False")],
            f"{SUM}(mm, [1], False)",
        ),
        ([Write(MAIN, "sum_1", 0, "self.w")], f"{SUM}(self.w, [0, 1], True)"),
        (
            [Convert("w", "input"), Write(MAIN, "sum_1", 0, "x")],
            f"{SUM}(x, [0, 1], True)",
        ),
    ],
)
def test_write_replaces_leaf_of_statement(changes: list[Change], line: str) -> None:
    assert line in codes(apply_changes(MADE, changes))


def test_values_without_readers_are_removed() -> None:
    made = apply_changes(MADE, [Write(MAIN, "add", 0, "y")])
    assert codes(made) == ["add = aten.add.Tensor(y, y, alpha=2)", "return (add,)"]
    assert [each.name for each in made.given] == ["y"]
    assert made.dims == ()


@pytest.mark.parametrize(
    ("change", "name", "made"),
    [
        (Resize("x", 0, 9), "x", floats(9, 2)),
        (Resize("x", 0, 9, Run.PASSING), "x", floats(4, 2)),
        (Refill("y", Counted()), "y", replace(floats(1, 1), fill=Counted())),
        (Cast("w", "float64"), "w", floats(2, 3, dtype="float64")),
    ],
)
def test_change_modifies_tensor_spec(change: Change, name: str, made: object) -> None:
    assert apply_changes(MADE, [change]).find(name).recipe() == made


def test_sparse_initializer_is_cut_to_resized_tensor() -> None:
    long = Sparse(0.0, ((1, 1.0), (7, 2.0)))
    made = apply_changes(MADE, [Refill("x", long), Resize("x", 0, 2)])
    assert made.find("x").recipe().fill == Sparse(0.0, ((1, 1.0),))


def test_tensor_spec_of_one_run_is_changed_alone() -> None:
    held = MADE.find("x").with_recipe(Run.PASSING, floats(8, 2))
    made = apply_changes(MADE.with_given(held), [Resize("x", 0, 3, Run.PASSING)])
    assert made.find("x").recipe(Run.PASSING) == floats(3, 2)
    assert made.find("x").recipe() == floats(4, 2)


def test_straighten_makes_layout_contiguous() -> None:
    columns = replace(floats(2, 3), stride=(1, 2))
    made = listing("a = aten.relu.default(x)\nreturn (a,)", given("x", columns))
    assert apply_changes(made, [Straighten("x")]).find("x").recipe() == floats(2, 3)


def test_dim_is_made_static_or_redeclared() -> None:
    made = apply_changes(MADE, [Fix("x", 0)])
    assert (made.find("x").open_dims, made.dims) == ((), ())
    assert apply_changes(MADE, [Declare("n", 3, None)]).dims == (Dim("n", 3, None),)


def test_weight_is_converted_to_input() -> None:
    made = apply_changes(MADE, [Convert("w", "input")])
    assert made.main.arguments == ("x", "y", "w")
    assert [each.name for each in made.given] == ["x", "y", "w"]
    assert codes(made)[0] == "mm = aten.mm.default(x, w)"
    assert apply_changes(MADE, [Convert("w", "buffer")]).find("w").kind == "buffer"


def test_conversion_to_taken_name_is_refused() -> None:
    held = given("mm", floats(2, 3), "parameter"), given("x", floats(4, 2))
    made = listing("mm = aten.mm.default(x, self.mm)\nreturn (mm,)", *held)
    with pytest.raises(InvalidEdit, match="called mm"):
        apply_changes(made, [Convert("mm", "input")])


def test_written_buffer_cannot_become_input() -> None:
    held = given("b", floats(2), "buffer"), given("x", floats(2))
    made = listing("a = aten.relu.default(x)\nself.b.copy_(a)\nreturn (a,)", *held)
    with pytest.raises(InvalidEdit, match=r"self\.b"):
        apply_changes(made, [Convert("b", "input")])


@pytest.mark.parametrize(
    "changes",
    [
        [Write(MAIN, "nowhere", 0, "x")],
        [Write("Nowhere", "mm", 0, "x")],
        [Write(MAIN, "mm", 2, "x")],
        [Write(MAIN, "mm", 0, "add")],
        [Write(MAIN, "mm", 0, "nowhere")],
        [Write(MAIN, "return", 1, "")],
        [Resize("nowhere", 0, 1)],
        [Resize("x", 2, 1)],
        [Declare("m", 1, 2)],
        [Convert("x", "buffer")],
        [DropArgument(MAIN, "x")],
        [DropArgument("Nowhere", "x")],
        [DropResult(MAIN, "mm", 0)],
    ],
)
def test_change_that_does_not_fit_is_refused(changes: list[Change]) -> None:
    with pytest.raises(InvalidEdit):
        apply_changes(MADE, changes)


HELD = given("p", floats()), given("x", floats(2)), given("y", floats(2))
COND = listing(
    """
    exp = aten.exp.default(y)
    cond = torch.cond(p, self.t, self.f, (exp, x))
    getitem = cond[1]
    return (getitem,)
    """,
    *HELD,
    blocks=[
        block(
            "T",
            "a b",
            "c = aten.relu.default(b)\nd = aten.exp.default(a)\nreturn (d, c)",
        ),
        block("F", "i j", "k = aten.neg.default(i)\nreturn (k, j)"),
    ],
    members="t=T f=F",
)


def test_result_and_argument_are_dropped_from_both_cond_branches() -> None:
    made = apply_changes(COND, [DropResult(MAIN, "cond", 0)])
    assert codes(made, "T") == ["c = aten.relu.default(b)", "return (c,)"]
    assert codes(made, "F") == ["return (j,)"]
    assert "getitem = cond[0]" in codes(made)
    made = apply_changes(made, [DropArgument("F", "i")])
    assert [b.arguments for b in made.blocks] == [("b",), ("j",), ("p", "x")]
    assert codes(made)[0] == "cond = torch.cond(p, self.t, self.f, (x,))"
    assert (
        apply_changes(COND, [DropArgument("T", "a"), DropResult(MAIN, "cond", 0)])
        == made
    )


@pytest.mark.parametrize(
    "change",
    [DropResult(MAIN, "cond", 1), DropArgument("T", "a"), DropArgument("F", "j")],
)
def test_result_or_argument_with_reader_cannot_be_dropped(change: Change) -> None:
    with pytest.raises(InvalidEdit):
        apply_changes(COND, [change])


LOOP = listing(
    """
    while_loop = torch.ops.higher_order.while_loop(self.c, self.b, (p, x, y), (y,))
    getitem = while_loop[2]
    getitem_1 = while_loop[0]
    return (getitem, getitem_1)
    """,
    *HELD,
    blocks=[
        block("C", "a b c d", "lt = aten.lt.Scalar(a, 5)\nreturn lt"),
        block(
            "B",
            "a b c d",
            """
            add = aten.add.Tensor(a, 1)
            exp = aten.exp.default(b)
            mul = aten.mul.Tensor(c, d)
            return (add, exp, mul)
            """,
        ),
    ],
    members="c=C b=B",
)


def test_unread_loop_carried_value_is_dropped() -> None:
    made = apply_changes(LOOP, [DropResult(MAIN, "while_loop", 1)])
    assert codes(made) == [
        "while_loop = torch.ops.higher_order.while_loop(self.c, self.b, (p, y), (y,))",
        "getitem = while_loop[1]",
        "getitem_1 = while_loop[0]",
        "return (getitem, getitem_1)",
    ]
    assert made.block("C").arguments == made.block("B").arguments == ("a", "c", "d")
    assert codes(made, "B")[-1] == "return (add, mul)"


def test_read_loop_carried_value_cannot_be_dropped() -> None:
    for change in (DropArgument("B", "b"), DropResult(MAIN, "while_loop", 2)):
        with pytest.raises(InvalidEdit):
            apply_changes(LOOP, [change])


def test_unread_additional_loop_input_is_dropped() -> None:
    body = LOOP.block("B").statement("mul").leaves[1]
    made = apply_changes(
        LOOP, [Write("B", "mul", body.number, "c"), DropArgument("C", "d")]
    )
    assert "(self.c, self.b, (p, x, y), ())" in codes(made)[0]
    assert made.block("B").arguments == ("a", "b", "c")


def test_several_results_are_dropped_at_once() -> None:
    text = """
        scan = torch.ops.higher_order.scan(self.b, [x], [y], ())
        last = scan[2]
        return (last,)
    """
    body = block(
        "B", "a b", "c = aten.exp.default(b)\nd = aten.exp.default(c)\nreturn [a, c, d]"
    )
    made = listing(text, *HELD[1:], blocks=[body], members="b=B")
    drops = [DropResult(MAIN, "scan", 0), DropResult(MAIN, "scan", 1)]
    small = apply_changes(made, drops)
    assert codes(small)[:2] == [
        "scan = torch.ops.higher_order.scan(self.b, [], [y], ())",
        "last = scan[0]",
    ]
    assert codes(small, "B")[-1] == "return [d]"


def test_rewrite_of_dependent_changes_remains_until_applied() -> None:
    """``d`` goes once the body reads ``c`` for it, and not before."""
    leaf = LOOP.block("B").statement("mul").leaves[1]
    both = Rewrite((Write("B", "mul", leaf.number, "c"), DropArgument("C", "d")))
    candidate = listed(LOOP)
    assert remaining_edit(both, candidate) == both
    done = Rewrite((*both.changes, Write("C", "lt", 1, "5")))
    assert remaining_edit(done, candidate) == both
    assert remaining_edit(both, apply(candidate, [both])) is None


def test_last_returned_value_cannot_be_dropped() -> None:
    made = listing(
        """
        done = aten.add_.Tensor(x, 1)
        add = aten.add.Tensor(x, 1)
        return (x, add)
        """,
        given("x", floats(2)),
    )
    one, other = (Write(MAIN, "return", leaf, "") for leaf in (1, 2))
    assert codes(apply_changes(made, [other]))[-1] == "return (x,)"
    with pytest.raises(InvalidEdit, match="returned"):
        apply_changes(made, [one, other])
