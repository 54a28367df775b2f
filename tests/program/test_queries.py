"""Questions to a program's graph, on graphs small enough to see."""

from __future__ import annotations

import pytest

from shrinkfx.program.skeleton import TensorType, ancestors, upstream, with_users
from shrinkfx.testing import Nodes, chain, operator, projection, size, skeleton

INDICES = TensorType("int64", ("2",))

LINE = chain("x", "a", "b", "c", "d", "e")


@pytest.mark.parametrize(
    ("hops", "found"), [(0, "e"), (1, "de"), (2, "cde"), (4, "abcde"), (8, "abcde")]
)
def test_upstream_includes_operators_within_given_hops(hops: int, found: str) -> None:
    assert upstream(LINE, ["e"], hops) == {*found}


def test_upstream_starts_from_each_name() -> None:
    assert upstream(LINE, ["e", "c"], 1) == {"b", "c", "d", "e"}
    assert upstream(LINE, [], 8) == frozenset()


def test_upstream_includes_index_computations_at_any_distance() -> None:
    indices: Nodes = {
        "floats": "x",
        "rank": operator("floats", value=INDICES),
        "shift": operator("rank", value=INDICES),
    }
    nodes: Nodes = {"x": "", **indices, "a": "x", "b": "a", "gather": "b shift"}
    program = skeleton(nodes)
    assert upstream(program, ["gather"], 0) == {"gather", "shift", "rank"}
    assert upstream(program, ["gather"], 1) == {
        *("gather", "shift", "rank"),
        *("b", "floats"),
    }


def test_upstream_includes_operators_whose_size_is_read() -> None:
    nodes: Nodes = {"x": "", "a": "x", "b": "a", "length": size("b"), "full": "length"}
    program = skeleton({**nodes, "c": "full", "d": "c"})
    assert upstream(program, ["c"], 0) == {"c"}
    assert upstream(program, ["full"], 0) == {"full", "b"}
    assert upstream(program, ["d"], 2) == {"d", "c", "full", "b"}


def test_upstream_counts_a_value_and_its_size_as_one_step() -> None:
    nodes: Nodes = {"x": "", "a": "x", "length": size("a"), "view": "a length"}
    assert upstream(skeleton(nodes), ["view"], 0) == {"view"}
    assert upstream(skeleton(nodes), ["view"], 1) == {"view", "a"}


def test_upstream_sees_through_projections() -> None:
    nodes: Nodes = {"x": "", "two": operator("x", value=None), "one": projection("two")}
    assert upstream(skeleton({**nodes, "b": "one"}), ["b"], 1) == {"b", "two"}


def test_ancestors_are_all_operators_a_value_is_computed_from() -> None:
    program = skeleton({"x": "", "a": "x", "b": "a", "c": "a", "d": "b c", "e": "d"})
    assert ancestors(program, ["b"]) == {"a", "b"}
    assert ancestors(program, ["b", "c"]) == {"a", "b", "c"}
    assert ancestors(program, []) == frozenset()


def test_with_users_adds_readers_of_the_values() -> None:
    nodes: Nodes = {"x": "", "a": "x", "b": "a", "c": "x a", "length": size("a")}
    program = skeleton({**nodes, "d": "c", "full": "length"})
    assert with_users(program, {"a"}) == {"a", "b", "c", "full"}
    assert with_users(program, {"d"}) == {"d"}
