"""Short names, there and back."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sympy
from hypothesis import given as drawn
from support.listings import block, codes, floats, given, listing
from support.random_listings import listings

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.listing.names import (
    rename_values,
    require_defined,
    short_names,
    sort_by_use,
)
from shrinkfx.program.listing.printed_program import MAIN, Dim, PrintedProgram


@drawn(made=listings())
def test_renaming_is_reversible(made: PrintedProgram) -> None:
    names = short_names(made)
    short = rename_values(made, names)
    require_defined(short)
    assert rename_values(short, names.inverse()) == made
    assert short.cost[:2] == made.cost[:2]
    assert rename_values(short, short_names(short)) == short


@drawn(made=listings())
def test_short_names_are_unique_in_their_block(made: PrintedProgram) -> None:
    for each in rename_values(made, short_names(made)).blocks:
        names = [*each.arguments, *(s.name for s in each.statements if s.yields)]
        assert len({*names}) == len(names)


def test_short_names_follow_operators_and_roles() -> None:
    body = block(
        "Body", "arg0_1 arg1_1", "exp_9 = aten.exp.default(arg1_1)\nreturn (exp_9,)"
    )
    text = """
        view_3 = aten.view.default(arg0_1, [arg4_1.shape[0]])
        view_7 = aten.view.default(view_3, [4])  # model.py:3
        sum_2 = aten.sum.default(self.layers_0_w)
        x = aten.add_.Tensor(arg1_1, self.layers_1_w)
        map_impl = torch.ops.higher_order.map_impl(self.body, [arg2_1], [x, sum_2])
        getitem_4 = map_impl[1]
        mul = arg4_1.shape[0] * 2
        self.held.copy_(view_7)
        return (getitem_4, mul)
    """
    made = listing(
        text,
        given("layers_0_w", floats(2), "parameter"),
        given("layers_1_w", floats(2), "parameter"),
        given("held", floats(2), "buffer"),
        *(
            replace(given(f"arg{i}_1", floats(2)), open_dims=((0, "2*s0 + 1"),))
            for i in range(5)
        ),
        blocks=[body],
        members="body=Body",
        dims=[Dim("s0", 2, 9), Dim("s1", 2, 9)],
    )
    short = rename_values(made, short_names(made))
    assert codes(short) == [
        "view = aten.view.default(x, [x2.shape[0]])",
        "view_1 = aten.view.default(view, [4])  # model.py:3",
        "sum_1 = aten.sum.default(self.weight)",
        "add = aten.add_.Tensor(y, self.weight_1)",
        "map_impl = torch.ops.higher_order.map_impl(self.body, [z], [add, sum_1])",
        "map_impl_1 = map_impl[1]",
        "size = x2.shape[0] * 2",
        "self.buffer.copy_(view_1)",
        "return (map_impl_1, size)",
    ]
    assert codes(short, "Body") == ["exp = aten.exp.default(y)", "return (exp,)"]
    assert [each.name for each in short.given] == [
        *("weight", "weight_1", "buffer", "x", "y", "z", "x1", "x2")
    ]
    assert short.given[-1].open_dims == ((0, "2*M + 1"),)
    assert [dim.name for dim in short.dims] == ["M", "K"]


@pytest.mark.parametrize(
    "text",
    ["b = aten.exp.default(a)\na = aten.exp.default(x)\nreturn (b,)", "return (a,)"],
)
def test_use_of_undefined_value_is_refused(text: str) -> None:
    with pytest.raises(InvalidEdit, match="is a"):
        require_defined(listing(text, given("x", floats(2))))


def test_statements_and_inputs_are_sorted_by_use() -> None:
    text = """
        a = aten.relu.default(x)
        b = aten.exp.default(y)
        c = aten.neg.default(a)
        d = aten.add.Tensor(c, b)
        return (d, a)
    """
    made = listing(text, given("y", floats(2)), given("x", floats(2)))
    ordered = sort_by_use(made)
    assert [s.name for s in ordered.main.statements] == ["a", "c", "b", "d", "return"]
    assert ordered.main.arguments == ("x", "y")
    assert [each.name for each in ordered.given] == ["x", "y"]


@drawn(made=listings(most=8))
def test_sorting_by_use_only_reorders_statements(made: PrintedProgram) -> None:
    ordered = sort_by_use(made)
    require_defined(ordered)
    assert sort_by_use(ordered) == ordered
    assert ordered.cost == made.cost
    for name in [each.name for each in made.blocks]:
        assert sorted(codes(ordered, name)) == sorted(codes(made, name))
    if any(s.may_have_effects or not s.yields for s in made.main.statements[:-1]):
        assert codes(ordered, MAIN) == codes(made, MAIN)


def test_single_results_follow_the_call_that_yields_them() -> None:
    text = """
        pair = aten.split.default(x)
        two = pair[1]
        one = pair[0]
        sum_1 = aten.sub.Tensor(two, one)
        return (sum_1,)
    """
    ordered = sort_by_use(listing(text, given("x", floats(2))))
    names = [statement.name for statement in ordered.main.statements]
    assert names == ["pair", "one", "two", "sum_1", "return"]


def test_base_dims_of_derived_dims_are_named_as_sympy_symbols() -> None:
    """Export multiplies what SymPy reads in a dim's name."""
    x = replace(given("x", floats(4)), open_dims=((0, "s0"),))
    y = replace(x, name="y", open_dims=((0, "2*s0"),))
    dims = [Dim(f"s{number}", 2, 9) for number in range(5)]
    alone, derived = (
        rename_values(made, short_names(made)).dims
        for made in (
            listing("return (x,)", x, dims=dims),
            listing("return (x, y)", x, y, dims=dims),
        )
    )
    assert [dim.name for dim in alone] == ["N", "M", "K", "L", "N1"]
    assert all(isinstance(sympy.sympify(dim.name), sympy.Symbol) for dim in derived)
