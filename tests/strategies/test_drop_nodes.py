"""Single operators, last first."""

from __future__ import annotations

from shrinkfx.program.edits import Drop
from shrinkfx.program.view import View
from shrinkfx.strategies.operators import DropNodes
from shrinkfx.testing import Nodes, chain, operator, projection, skeleton, whole


def test_drop_nodes_proposes_every_operator_last_first() -> None:
    view = View(whole(chain("x", "relu", "tanh")))
    assert list(DropNodes().propose(view)) == [
        Drop(frozenset({"tanh"})),
        Drop(frozenset({"relu"})),
    ]


def test_drop_nodes_drops_an_operator_with_its_projections() -> None:
    nodes: Nodes = {"x": "", "two": operator("x", value=None), "one": projection("two")}
    view = View(whole(skeleton(nodes)))
    assert list(DropNodes().propose(view)) == [Drop(frozenset({"two"}))]


def test_drop_nodes_drops_suspects_last_by_rising_weight() -> None:
    suspects = {"tanh": 1.0, "exp": 0.2}
    view = View(whole(chain("x", "relu", "tanh", "abs", "exp")), suspects)
    order = [name for edit in DropNodes().propose(view) for name in edit.nodes]
    assert order == ["abs", "relu", "exp", "tanh"]
