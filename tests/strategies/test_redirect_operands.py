"""Redirects of operands: what is proposed, and what fits."""

from __future__ import annotations

from support.fake_fitter import FakeFitter
from support.listings import block, codes, floats, given, listed, listing

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Write, apply_changes
from shrinkfx.program.listing.printed_program import (
    UNTYPED,
    InputOrWeight,
    PrintedProgram,
    Types,
)
from shrinkfx.program.skeleton import TensorType
from shrinkfx.search.strategy import collect_proposals
from shrinkfx.strategies.statements import RedirectOperands
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


def test_equal_operators_are_merged() -> None:
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


def test_operand_is_redirected_to_the_nearest_value_of_equal_type() -> None:
    text = """
        a = aten.relu.default(x)
        view = aten.view.default(a, [3, 2])
        b = aten.transpose.int(view, 0, 1)
        c = aten.add.Tensor(b, y)
        return (c,)
    """
    bypassed = ["a = aten.relu.default(x)", "c = aten.add.Tensor(a, y)", "return (c,)"]
    assert bypassed in made_of(program(text))


def test_input_replaces_another_input_or_a_weight() -> None:
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


def test_list_operands_and_duplicate_outputs_are_removed() -> None:
    text = """
        a = aten.relu.default(x)
        b = aten.exp.default(y)
        c = aten.cat.default([a, b], 1)
        return (c, c)
    """
    made = made_of(program(text))
    assert any("c = aten.cat.default([a], 1)" in lines for lines in made)
    assert any(lines[-1] == "return (c,)" for lines in made)


def test_all_results_of_one_operator_are_redirected_together() -> None:
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


def test_operand_of_any_type_is_returned_in_place_of_an_output() -> None:
    text = """
        a = aten.relu.default(x)
        b = aten.sum.default(a)
        return (b,)
    """
    assert ["a = aten.relu.default(x)", "return (a,)"] in made_of(program(text))


def test_equal_operators_are_merged_without_types() -> None:
    text = """
        a = aten.relu.default(x)
        b = aten.relu.default(x)
        c = aten.add.Tensor(a, b)
        return (c,)
    """
    made = made_of(program(text), UNTYPED)
    assert [a for a in made if "c = aten.add.Tensor(a, a)" in a]


def test_mutating_operator_is_not_cut() -> None:
    text = """
        a = aten.add_.Tensor(x, y)
        b = aten.relu.default(a)
        return (b,)
    """
    assert all("add_" in made[0] for made in made_of(program(text)))


def test_redirects_tried_in_the_operator_search_are_not_repeated() -> None:
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


def test_second_view_reads_the_operand_of_the_first() -> None:
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


def test_only_views_with_a_shape_are_composed() -> None:
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


def test_rank_is_ignored_for_single_element_tensors() -> None:
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
