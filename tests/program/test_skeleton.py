"""The program's graph, and its way through JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from shrinkfx.program.skeleton import Node, Role, Skeleton
from shrinkfx.testing import (
    FLOATS,
    HALVES,
    chain,
    feed,
    operator,
    projection,
    size,
    skeleton,
    skeletons,
)

SPLIT = skeleton(
    {
        "x": "",
        "w": feed(Role.PARAMETER),
        "split": operator("x", value=None),
        "second": projection("split", HALVES),
        "inner": projection("split", None),
        "first": projection("inner"),
        "n": size("first"),
        "add": "first w n",
    }
)


def test_skeleton_lists_operators_and_inputs_in_program_order() -> None:
    assert SPLIT.operators == ("split", "add")
    assert SPLIT.inputs == ("x",)
    assert SPLIT.in_order(["add", "x", "add", "first"]) == ["x", "first", "add"]


def test_skeleton_finds_the_producer_through_projections() -> None:
    assert SPLIT.producer("first") == "split"
    assert SPLIT.producer("add") == "add"
    assert SPLIT.producer("n") == "n"


def test_skeleton_lists_the_values_of_an_operator() -> None:
    assert SPLIT.projections("split") == ["second", "inner"]
    assert SPLIT.values("split") == ["second", "first"]
    assert SPLIT.values("add") == ["add"]


def test_skeleton_contains_its_nodes() -> None:
    assert "first" in SPLIT
    assert "third" not in SPLIT
    assert SPLIT.node("second").value == HALVES


def test_skeleton_refuses_an_operand_that_comes_later() -> None:
    nodes = [Node("a", Role.OPERATOR, operands=("b",)), Node("b", Role.INPUT)]
    with pytest.raises(ValueError, match="a uses b before it is there"):
        Skeleton(nodes, ["a"])


def test_original_nodes_are_counted_unless_passed_explicitly() -> None:
    nodes = [
        Node("x", Role.INPUT, value=FLOATS),
        Node("size", Role.SIZE, operands=("x",)),
        Node("cond", Role.OPERATOR, operands=("x",), value=FLOATS, operators=3),
    ]
    assert Skeleton(nodes, ["cond"]).original_nodes == 4
    assert Skeleton(nodes, ["cond"], original_nodes=9).original_nodes == 9


def test_skeleton_written_by_older_version_is_read() -> None:
    program = chain("x", "relu")
    older = {**program.to_json(), "original_operators": 7}
    assert Skeleton.from_json(older).digest == program.digest


def test_skeleton_digest_covers_graph_and_content() -> None:
    program, other = chain("x", "relu"), chain("x", "tanh")
    nodes = [program.node(name) for name in program.graph]
    weighed = Skeleton(nodes, program.outputs, content="other weights")
    assert program.digest == chain("x", "relu").digest
    assert len({program.digest, other.digest, weighed.digest}) == 3


@given(skeletons())
def test_skeleton_round_trips_through_json(program: Skeleton) -> None:
    data = json.loads(json.dumps(program.to_json()))
    again = Skeleton.from_json(data)
    assert again.to_json() == program.to_json()
    assert again.digest == program.digest
    assert list(again.graph.edges) == list(program.graph.edges)
