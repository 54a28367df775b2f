"""Slices, dominators, modules and storage, on graphs small enough to see."""

from __future__ import annotations

from shrinkfx.program.queries import (
    backward_slice,
    convex_region,
    dominators,
    forward_slice,
    module_tree,
    storage_groups,
)
from shrinkfx.program.skeleton import Role
from shrinkfx.testing import Nodes, chain, feed, operator, skeleton

#     x -> a -> b -> d -> e
#           \-> c -/
DIAMOND = skeleton({"x": "", "a": "x", "b": "a", "c": "a", "d": "b c", "e": "d"})


def test_backward_slice_holds_what_a_node_is_computed_from() -> None:
    assert backward_slice(DIAMOND, ["b"]) == {"x", "a", "b"}
    assert backward_slice(DIAMOND, ["b", "c"]) == {"x", "a", "b", "c"}
    assert backward_slice(DIAMOND, []) == set()


def test_forward_slice_holds_what_is_computed_from_a_node() -> None:
    assert forward_slice(DIAMOND, ["c"]) == {"c", "d", "e"}
    assert forward_slice(DIAMOND, []) == set()


def test_convex_region_adds_what_lies_between() -> None:
    assert convex_region(DIAMOND, {"a", "d"}) == {"a", "b", "c", "d"}
    assert convex_region(DIAMOND, {"b", "c"}) == {"b", "c"}
    assert convex_region(DIAMOND, {"e"}) == {"e"}


def test_dominators_are_on_every_path_nearest_first() -> None:
    assert dominators(DIAMOND, "e") == ["d", "a", "x"]
    assert dominators(DIAMOND, "d") == ["a", "x"]
    assert dominators(DIAMOND, "x") == []


def test_dominators_do_not_count_weights_as_paths() -> None:
    nodes: Nodes = {
        "x": "",
        "w": feed(Role.PARAMETER),
        "a": "x",
        "mm": "a w",
        "b": "mm",
    }
    program = skeleton(nodes)
    assert dominators(program, "b") == ["mm", "a", "x"]
    assert dominators(program, "w") == []


def test_dominators_of_what_two_inputs_feed_are_none() -> None:
    assert dominators(skeleton({"x": "", "y": "", "add": "x y"}), "add") == []


def test_dominators_of_what_only_weights_feed_are_none() -> None:
    assert dominators(skeleton({"w": feed(Role.BUFFER), "a": "w"}), "a") == []


def test_module_tree_hangs_calls_below_their_modules() -> None:
    program = skeleton(
        {
            "x": "",
            "a": "x",
            "b": operator("a", scope="blocks.0.attn"),
            "c": operator("b", scope="blocks.1"),
            "d": operator("c", scope="blocks.0.attn"),
        }
    )
    tree = module_tree(program)
    assert sorted(tree.edges) == [
        ("", "blocks"),
        ("blocks", "blocks.0"),
        ("blocks", "blocks.1"),
        ("blocks.0", "blocks.0.attn"),
    ]
    operators = {path: tree.nodes[path]["operators"] for path in tree}
    assert operators == {
        "": ["a"],
        "blocks": [],
        "blocks.0": [],
        "blocks.0.attn": ["b", "d"],
        "blocks.1": ["c"],
    }


def test_storage_groups_leave_loners_out() -> None:
    program = skeleton(
        {
            "x": "",
            "a": operator("x", storage=0),
            "view": operator("a", storage=0),
            "b": operator("view", storage=1),
            "c": "b",
        }
    )
    assert storage_groups(program) == [["a", "view"]]
    assert storage_groups(chain("x", "relu")) == []
