"""Listings: their normal form, their cost, and JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given as drawn
from support.listings import ATEN, block, codes, floats, given, listing
from support.random_listings import listings

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.listing.printed_program import Dim, PrintedProgram, Run

RELU = "relu = aten.relu.default(x)"


@drawn(made=listings())
def test_printed_program_round_trips_through_json(made: PrintedProgram) -> None:
    assert PrintedProgram.from_json(json.loads(json.dumps(made.to_json()))) == made


@drawn(made=listings())
def test_normal_form_is_idempotent_and_costs_no_more(made: PrintedProgram) -> None:
    normal = made.normalised()
    assert normal.normalised() == normal
    assert normal.cost <= made.cost


@drawn(made=listings())
def test_normal_form_contains_no_unread_values(made: PrintedProgram) -> None:
    normal = made.normalised()
    for each in normal.blocks:
        reads = frozenset[str]().union(*(s.reads for s in each.statements))
        for statement in each.statements:
            assert (
                not statement.yields
                or statement.may_have_effects
                or statement.name in reads
            )
        assert {f"self.{attribute}" for attribute, _ in each.members} <= reads
    kinds = {kind for each in normal.blocks for _, kind in each.members}
    assert {each.name for each in normal.blocks[:-1]} == kinds


def test_normal_form_omits_dead_code_and_unread_inputs() -> None:
    made = listing(
        f"{RELU}\ndead = aten.mm.default(y, self.w)\nreturn (relu,)",
        given("w", floats(2), "parameter"),
        given("x", floats(2)),
        replace(given("y", floats(2)), open_dims=((0, "2*n"),)),
        dims=[Dim("n", 2, 9)],
    )
    normal = made.normalised()
    assert codes(normal) == ["relu = aten.relu.default(x)", "return (relu,)"]
    assert [each.name for each in normal.given] == ["x"]
    assert (normal.main.arguments, normal.dims) == (("x",), ())


def test_normal_form_keeps_mutations_and_their_operands() -> None:
    lines = (
        f"{RELU}\nexp = aten.exp.default(x)\nadd_ = aten.add_.Tensor(relu, exp)\n"
        "self.held.copy_(exp)\nreturn (relu,)"
    )
    held = given("held", floats(2), "buffer"), given("x", floats(2))
    made = listing(lines, *held)
    assert made.normalised() == made


def test_normal_form_removes_unread_blocks_and_dead_code_in_blocks() -> None:
    branch = block("True0", "a inner=Inner0", "b = aten.exp.default(a)\nreturn (a,)")
    inner = block("Inner0", "a", "return (a,)")
    other = block("False0", "a", "return (a,)")
    text = (
        "cond = torch.cond(p, self.t, self.f, (x,))\n"
        "getitem = cond[0]\nrelu = aten.relu.default(getitem)\nreturn (relu,)"
    )
    inputs = given("p", floats()), given("x", floats(2))
    made = listing(
        text, *inputs, blocks=[inner, branch, other], members="t=True0 f=False0"
    )
    normal = made.normalised()
    assert [each.name for each in normal.blocks] == ["True0", "False0", "Repro"]
    assert codes(normal, "True0") == ["return (a,)"]
    text = text.replace("(getitem)", "(x)")
    unread = listing(text, *inputs, blocks=made.blocks[:-1], members="t=True0 f=False0")
    assert [each.name for each in unread.normalised().blocks] == ["Repro"]
    assert unread.normalised().main.members == ()


def test_normal_form_without_operators_is_refused() -> None:
    with pytest.raises(InvalidEdit, match="nothing would be left"):
        listing(f"{RELU}\nreturn (x,)", given("x", floats(2))).normalised()


def test_cost_counts_operators_of_blocks() -> None:
    body = block("Body", "a", "b = aten.exp.default(a)\nreturn (b,)")
    text = "m = torch.ops.higher_order.map_impl(self.body, [x], [])\nreturn (m,)"
    made = listing(text, given("x", floats(2)), blocks=[body], members="body=Body")
    assert made.cost[0] == 2


def test_input_holds_separate_tensor_spec_per_run() -> None:
    example, other = floats(2), replace(floats(2), dtype="int64")
    held = given("x", example).with_recipe(Run.FAILING, other)
    assert (held.recipe(Run.FAILING), held.recipe(Run.PASSING)) == (other, example)
    again = held.with_recipe(Run.FAILING, example)
    assert again == given("x", example)
    assert held.with_recipe(Run.EXAMPLE, other) == given("x", other)


@pytest.mark.parametrize(
    ("dim", "line"),
    [
        (Dim("n", 2, 9), "n = torch.export.Dim('n', min=2, max=9)"),
        (Dim("n", 0, None), "n = torch.export.Dim('n')"),
    ],
)
def test_dim_is_printed_as_declaration(dim: Dim, line: str) -> None:
    assert dim.line() == line


@pytest.mark.parametrize("name", ["nowhere", ATEN])
def test_lookup_of_missing_name_is_refused(name: str) -> None:
    made = listing(f"{RELU}\nreturn (relu,)", given("x", floats(2)))
    for find in (made.block, made.find, made.main.statement):
        with pytest.raises(InvalidEdit, match="no"):
            find(name)
