"""Redirects of operands: what is proposed, and what fits."""

from __future__ import annotations

from support.fake_fitter import FakeFitter
from support.listings import block, codes, floats, given, listed, listing

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Write, apply_changes
from shrinkfx.program.listing.printed_program import InputOrWeight, PrintedProgram
from shrinkfx.program.listing.types import UNTYPED, Types
from shrinkfx.program.skeleton import TensorType
from shrinkfx.search.strategy import collect_proposals
from shrinkfx.strategies.redirect_operands import RedirectOperands
from shrinkfx.testing import Nodes, operator, skeleton, whole


def made_of(start: PrintedProgram, types: Types | None = None) -> list[list[str]]:
    """List the programs that come of each edit that fits and makes it cheaper."""
    candidate, fitter = listed(start), FakeFitter()
    known = fitter.types(candidate) if types is None else types
    edits = collect_proposals(RedirectOperands(), candidate, types=known)
    rewrites = [edit for edit in edits if isinstance(edit, Rewrite)]
    fits = fitter.fit(candidate, rewrites)
    programs = [apply_changes(start.normalised(), fit.changes) for fit in fits if fit]
    return [codes(p) for p in programs if p.cost < candidate.cost]


def program(text: str, *held: InputOrWeight) -> PrintedProgram:
    x, y = given("x", floats(2, 3)), given("y", floats(2, 3))
    return listing(text, *(held or (x, y)))


def test_two_equal_operators_become_one() -> None:
    text = """
        view = aten.view.default(x, [3, 2])
        a = aten.transpose.int(view, 0, 1)
        b = aten.transpose.int(view, 0, 1)
        add = aten.add.Tensor(a, b)
        return (add,)
    """
    one = [
        "view = aten.view.default(x, [3, 2])",
        "a = aten.transpose.int(view, 0, 1)",
        "add = aten.add.Tensor(a, a)",
        "return (add,)",
    ]
    assert one in made_of(program(text))


def test_the_nearest_value_of_the_type_is_read_instead() -> None:
    text = """
        a = aten.relu.default(x)
        view = aten.view.default(a, [3, 2])
        b = aten.transpose.int(view, 0, 1)
        c = aten.add.Tensor(b, y)
        return (c,)
    """
    bypassed = ["a = aten.relu.default(x)", "c = aten.add.Tensor(a, y)", "return (c,)"]
    assert bypassed in made_of(program(text))


def test_an_input_takes_the_place_of_another_and_of_a_weight() -> None:
    text = """
        a = aten.add.Tensor(x, y)
        b = aten.mul.Tensor(a, self.w)
        return (b,)
    """
    held = given("w", floats(2, 3), "parameter"), *program(text).given
    made = made_of(program(text, *held))
    assert [
        "a = aten.add.Tensor(x, x)",
        "b = aten.mul.Tensor(a, self.w)",
        "return (b,)",
    ] in made
    assert [
        "a = aten.add.Tensor(x, y)",
        "b = aten.mul.Tensor(a, x)",
        "return (b,)",
    ] in made


def test_an_operand_goes_from_a_list_and_a_value_that_is_returned_twice() -> None:
    text = """
        a = aten.relu.default(x)
        b = aten.exp.default(y)
        c = aten.cat.default([a, b], 1)
        return (c, c)
    """
    made = made_of(program(text))
    assert any("c = aten.cat.default([a], 1)" in lines for lines in made)
    assert any(lines[-1] == "return (c,)" for lines in made)


def test_all_results_of_one_operator_are_redirected_at_once() -> None:
    branch = block("T", "a b", "c = aten.exp.default(a)\nreturn (c, b)")
    text = """
        cond = torch.cond(p, self.t, self.t, (x, y))
        one = cond[0]
        two = cond[1]
        c = aten.add.Tensor(one, two)
        return (c,)
    """
    held = given("p", floats(dtype="bool")), *program(text).given
    start = listing(text, *held, blocks=[branch], members="t=T")
    assert ["c = aten.add.Tensor(x, x)", "return (c,)"] in made_of(start)


def test_what_a_value_is_computed_from_is_returned_whatever_its_type() -> None:
    text = """
        a = aten.relu.default(x)
        b = aten.sum.default(a)
        return (b,)
    """
    assert ["a = aten.relu.default(x)", "return (a,)"] in made_of(program(text))


def test_without_types_equal_operators_become_one_all_the_same() -> None:
    text = """
        a = aten.relu.default(x)
        b = aten.relu.default(x)
        c = aten.add.Tensor(a, b)
        return (c,)
    """
    made = made_of(program(text), UNTYPED)
    assert [a for a in made if "c = aten.add.Tensor(a, a)" in a]


def test_what_acts_is_not_cut() -> None:
    text = """
        a = aten.add_.Tensor(x, y)
        b = aten.relu.default(a)
        return (b,)
    """
    assert all("add_" in made[0] for made in made_of(program(text)))


def test_what_was_answered_of_operators_is_not_asked_about_again() -> None:
    """Sizes have become 1 meanwhile: what the sum reads is of its type now."""
    text = """
        relu = aten.relu.default(x)
        sum_1 = aten.sum.dim_IntList(relu, [1], True)
        tanh = aten.tanh.default(sum_1)
        return (tanh,)
    """
    row = TensorType("float32", ("2", "1"))
    nodes: Nodes = {
        "x": "",
        "relu": "x",
        "sum_1": operator("relu", value=row),
        "tanh": operator("sum_1", value=row),
    }
    start = whole(skeleton(nodes)).with_listing(listing(text, given("x", floats(1, 1))))
    types = FakeFitter().types(start)
    edits = collect_proposals(RedirectOperands(), start, types=types)
    changes = [c for edit in edits if isinstance(edit, Rewrite) for c in edit.changes]
    redirects = [
        c for c in changes if isinstance(c, Write) and c.text not in ("", "None")
    ]
    assert redirects == [Write("Repro", "tanh", 0, "relu")]


def test_second_of_two_views_reads_what_the_first_one_reads() -> None:
    text = """
        a = aten.view.default(x, [3, 2])
        b = aten.view.default(a, [6])
        c = aten.relu.default(b)
        return (c,)
    """
    assert [
        "b = aten.view.default(x, [6])",
        "c = aten.relu.default(b)",
        "return (c,)",
    ] in made_of(program(text))


def test_operator_that_is_no_view_or_is_given_no_shape_keeps_its_operand() -> None:
    for first, second in (
        ("sum.dim_IntList(x, [0])", "view.default(a, [3])"),
        ("view.default(x, [3, 2])", "transpose.int(a, 0, 1)"),
    ):
        text = f"""
            a = aten.{first}
            b = aten.{second}
            c = aten.relu.default(b)
            return (c,)
        """
        composed = f"b = aten.{second.replace('(a,', '(x,')}"
        made = [code for codes in made_of(program(text)) for code in codes]
        assert composed not in made


def test_rank_does_not_count_where_there_is_one_element() -> None:
    text = """
        sum_1 = aten.sum.default(x)
        add = aten.add.Tensor(y, sum_1)
        return (add,)
    """
    without = ["add = aten.add.Tensor(y, x)", "return (add,)"]
    one, more = (program(text, given("x", r), Y) for r in (floats(1), floats(2)))
    assert without in made_of(one)
    assert without not in made_of(more)


Y = given("y", floats(2))
