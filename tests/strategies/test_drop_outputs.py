"""Returned values, each with the slice that serves only it."""

from __future__ import annotations

from shrinkfx.program.apply import apply
from shrinkfx.program.edits import Drop
from shrinkfx.program.view import View
from shrinkfx.strategies.operators import DropOutputs
from shrinkfx.testing import Nodes, chain, skeleton, whole


def test_keep_outputs_drops_each_slice_biggest_first() -> None:
    nodes: Nodes = {"x": "", "both": "x", "a": "both", "b": "both", "c": "b", "d": "c"}
    view = View(whole(skeleton(nodes)))
    assert list(DropOutputs().propose(view)) == [
        Drop(frozenset({"b", "c", "d"})),
        Drop(frozenset({"a"})),
    ]


def test_keep_outputs_leaves_a_single_output_alone() -> None:
    assert list(DropOutputs().propose(View(whole(chain("x", "relu"))))) == []


def test_keep_outputs_separates_the_parts_of_a_cut_program() -> None:
    cut = apply(whole(chain("x", "a", "b", "c", "d")), [Drop(frozenset({"b"}))])
    assert list(DropOutputs().propose(View(cut))) == [
        Drop(frozenset({"c", "d"})),
        Drop(frozenset({"a"})),
    ]


def test_keep_outputs_drops_suspects_last() -> None:
    nodes: Nodes = {"x": "", "both": "x", "a": "both", "b": "both", "c": "b", "d": "c"}
    view = View(whole(skeleton(nodes)), {"c": 0.5})
    assert list(DropOutputs().propose(view)) == [
        Drop(frozenset({"a"})),
        Drop(frozenset({"b", "c", "d"})),
    ]


def test_keep_outputs_leaves_small_slices_alone() -> None:
    line = {"x": "", **{f"n{i}": f"n{i - 1}" for i in range(1, 20)}, "a": "x"}
    program = skeleton({"x": "", "n0": "x", **line})
    edits = list(DropOutputs().propose(View(whole(program))))
    assert [len(edit.nodes) for edit in edits] == [20]
