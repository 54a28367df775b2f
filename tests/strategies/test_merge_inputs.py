"""Pairs of inputs of one type."""

from __future__ import annotations

from shrinkfx.program.apply import apply
from shrinkfx.program.edits import Drop, Merge
from shrinkfx.program.skeleton import Role
from shrinkfx.program.view import View
from shrinkfx.strategies.operators import MergeInputs
from shrinkfx.testing import HALVES, Nodes, feed, operator, skeleton, whole


def merge(*inputs: str) -> Merge:
    return Merge(frozenset(inputs))


def test_merge_pairs_adjacent_inputs_before_distant_ones() -> None:
    view = View(whole(skeleton({"x": "", "y": "", "z": "", "fma": "x y z"})))
    assert list(MergeInputs().propose(view)) == [
        merge("x", "y"),
        merge("y", "z"),
        merge("x", "z"),
    ]


def test_merge_pairs_only_inputs_of_equal_type() -> None:
    nodes: Nodes = {"x": "", "h": feed(value=HALVES), "y": "", "k": feed(value=HALVES)}
    view = View(whole(skeleton({**nodes, "cat": "x h y k"})))
    assert list(MergeInputs().propose(view)) == [merge("x", "y"), merge("h", "k")]


def test_merge_leaves_weights_alone() -> None:
    weights: Nodes = {"w": feed(Role.PARAMETER), "b": feed(Role.BUFFER)}
    view = View(whole(skeleton({"x": "", **weights, "fma": "x w b"})))
    assert list(MergeInputs().propose(view)) == []


def test_merge_pairs_values_that_were_cut() -> None:
    program = skeleton({"x": "", "a": "x", "b": "x", "add": "a b"})
    cut = apply(whole(program), [Drop(frozenset({"a", "b"}))])
    assert list(MergeInputs().propose(View(cut))) == [merge("a", "b")]


def test_merge_skips_inputs_that_are_not_tensors() -> None:
    numbers: Nodes = {"x": "", "n": operator("x", value=None)}
    program = skeleton({**numbers, "m": operator("x", value=None), "a": "x n m"})
    cut = apply(whole(program), [Drop(frozenset({"n", "m"}))])
    assert cut.inputs == ("x", "n", "m")
    assert list(MergeInputs().propose(View(cut))) == []
