"""Operators handed over to one of their operands."""

from __future__ import annotations

from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Bypass, Drop
from shrinkfx.program.skeleton import Role
from shrinkfx.program.view import View
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose
from shrinkfx.strategies.operators import BypassOperators
from shrinkfx.testing import (
    HALVES,
    ROW,
    FakeOracle,
    Nodes,
    chain,
    feed,
    operator,
    projection,
    skeleton,
    whole,
)


def test_bypass_reads_the_operand_of_equal_type() -> None:
    view = View(whole(chain("x", "relu", "tanh")))
    assert list(BypassOperators().propose(view)) == [
        Bypass("tanh", "relu"),
        Bypass("relu", "x"),
    ]


def test_bypass_skips_operands_of_another_type() -> None:
    nodes: Nodes = {
        "x": feed(value=HALVES),
        "half": operator("x", value=HALVES),
        "up": "half",
        "b": "up",
    }
    view = View(whole(skeleton(nodes)))
    assert list(BypassOperators().propose(view)) == [
        Bypass("b", "up"),
        Bypass("half", "x"),
    ]


def test_bypass_reads_an_ancestor_above_operands_of_another_type() -> None:
    nodes: Nodes = {
        "x": "",
        "a": "x",
        "half": operator("a", value=HALVES),
        "mask": operator("x", value=HALVES),
        "mul": operator("half mask", value=HALVES),
        "back": "mul",
    }
    edited = apply(whole(skeleton(nodes)), [Bypass("mul", "half")])
    assert list(BypassOperators().propose(View(edited))) == [
        Bypass("back", "a"),
        Bypass("a", "x"),
    ]


def test_bypass_stops_at_inputs_of_a_cut_program() -> None:
    nodes: Nodes = {"x": "", "half": operator("x", value=HALVES), "back": "half"}
    cut = apply(whole(skeleton(nodes)), [Drop(frozenset({"half"}))])
    assert list(BypassOperators().propose(View(cut))) == []


def test_bypass_removes_an_expand_only_if_all_users_broadcast() -> None:
    nodes: Nodes = {
        "x": "",
        "norm": operator("x", value=ROW, storage=0),
        "expand": operator("norm", storage=0),
        "div": operator("x expand", pointwise=True),
    }
    without = [Bypass("div", "x"), Bypass("div", "expand")]
    view = View(whole(skeleton(nodes)))
    assert list(BypassOperators().propose(view)) == [*without, Bypass("expand", "norm")]
    view = View(whole(skeleton({**nodes, "mm": "x expand"})))
    assert Bypass("expand", "norm") not in set(BypassOperators().propose(view))


def test_search_removes_an_expand_between_two_culprits() -> None:
    nodes: Nodes = {
        "x": "",
        "sum": operator("x", value=ROW),
        "norm": operator("sum", value=ROW, storage=0),
        "expand": operator("norm", storage=0),
        "div": operator("x expand", pointwise=True),
    }

    def fails(candidate: Candidate) -> bool:
        return "div" in candidate.keep and "norm" in flowing(candidate)

    def flowing(candidate: Candidate) -> set[str]:
        read, stack = set[str](), ["div"]
        while stack:
            new = candidate.producers(stack.pop()) - read
            read |= new
            stack += new
        return read

    asker = Asker(FakeOracle(fails))
    reducer = Reducer(whole(skeleton(nodes)), asker, choose(None))
    assert reducer.run().operators == ("norm", "div")


def test_bypass_proposes_each_fitting_operand_once() -> None:
    nodes: Nodes = {"x": "", "w": feed(Role.PARAMETER), "a": "x", "add": "a w x"}
    edited = apply(whole(skeleton(nodes)), [Bypass("a", "x")])
    assert list(BypassOperators().propose(View(edited))) == [
        Bypass("add", "x"),
        Bypass("add", "w"),
    ]


def test_bypass_replaces_one_value_of_a_multi_output_operator() -> None:
    nodes: Nodes = {"x": "", "two": operator("x", value=None), "one": projection("two")}
    program = skeleton({**nodes, "half": projection("two", HALVES), "b": "one half"})
    assert list(BypassOperators().propose(View(whole(program)))) == [
        Bypass("b", "one"),
        Bypass("two", "x"),
    ]


def test_bypass_proposes_suspects_last() -> None:
    view = View(whole(chain("x", "relu", "tanh")), {"tanh": 0.5})
    assert list(BypassOperators().propose(view)) == [
        Bypass("relu", "x"),
        Bypass("tanh", "relu"),
    ]
