"""Operators of branches and bodies handed over to a value inside."""

from __future__ import annotations

from shrinkfx.program.edits import Bypass
from shrinkfx.program.view import View
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.strategies.operators import BypassInBranches
from shrinkfx.testing import (
    HALVES,
    FakeOracle,
    Nodes,
    chain,
    inner,
    operator,
    projection,
    skeleton,
    subgraph,
    whole,
)

BODY: Nodes = {
    "body.h": inner(),
    "body.half": inner("body.h", HALVES),
    "body.sin": inner("body.half"),
    "body.tanh": inner("body.sin"),
}


def test_bypass_inside_reads_an_operand_or_an_earlier_value() -> None:
    loop = operator("x body")
    program = skeleton({"x": "", **BODY, "body": subgraph("body.tanh"), "loop": loop})
    assert list(BypassInBranches().propose(View(whole(program)))) == [
        Bypass("body.tanh", "body.sin"),
        Bypass("body.sin", "body.h"),
    ]


def test_bypass_inside_does_not_read_values_of_another_subgraph() -> None:
    nodes: Nodes = {"x": "", **BODY, "body": subgraph("body.half")}
    other: Nodes = {"cond.h": inner(value=HALVES), "cond.up": inner("cond.h")}
    both = operator("x body cond")
    program = skeleton({**nodes, **other, "cond": subgraph("cond.up"), "loop": both})
    assert list(BypassInBranches().propose(View(whole(program)))) == []


def test_program_without_subgraphs_gives_no_proposals() -> None:
    assert list(BypassInBranches().propose(View(whole(chain("x", "relu"))))) == []


def test_search_keeps_only_the_culprit_in_a_loop_body() -> None:
    names = [f"body.n{i}" for i in range(40)]
    nodes = dict(zip(names, (inner(), *map(inner, names)), strict=False))
    loop = operator("x body", value=None, operators=40)
    program = skeleton(
        {
            "x": "",
            **nodes,
            "body": subgraph(names[-1]),
            "loop": loop,
            "h": projection("loop"),
        }
    )
    oracle = FakeOracle(lambda c: "body.n17" in c.subgraph_nodes)
    reducer = Reducer(whole(program), Asker(oracle), [BypassInBranches()])
    assert reducer.run().subgraph_nodes == ("body.n0", "body.n17")
    assert reducer.best.cost[0] == 2
    assert len(oracle.asked) < 20
