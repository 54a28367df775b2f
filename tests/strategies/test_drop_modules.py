"""Whole modules, outer ones first."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from shrinkfx.program.edits import Drop
from shrinkfx.program.view import NO_SUSPECTS, View
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.strategies.operators import DropModules
from shrinkfx.testing import (
    FakeOracle,
    Nodes,
    calls,
    check_strategy,
    needs,
    operator,
    skeleton,
    whole,
)


def model(**modules: int) -> Nodes:
    """A chain through modules of so many operators; ``_`` stands for a dot."""
    nodes: dict[str, object] = {"x": ""}
    for module, length in modules.items():
        for i in range(length):
            previous, scope = list(nodes)[-1], module.replace("_", ".")
            nodes[f"{module}{i}"] = operator(previous, scope=scope)
    return nodes  # type: ignore[return-value]


def proposed(nodes: Nodes) -> list[set[str]]:
    """Name the modules that are proposed, each by the scopes of its operators."""
    edits = list(DropModules().propose(View(whole(skeleton(nodes)))))
    assert all(isinstance(edit, Drop) for edit in edits)
    return [{name.rstrip("0123456789") for name in edit.nodes} for edit in edits]


def test_module_cuts_proposes_the_biggest_and_last_module_first() -> None:
    nodes = model(stem=4, one=6, two=6)
    assert proposed(nodes) == [{"two"}, {"one"}, {"stem"}]


def test_module_cuts_drops_nested_modules_together() -> None:
    nodes = model(block_attn=4, block_mlp=5, head=4)
    assert proposed(nodes) == [{"block_attn", "block_mlp"}, {"head"}]


def test_module_cuts_looks_inside_a_single_module() -> None:
    assert proposed(model(block_attn=4, block_mlp=5)) == [
        {"block_mlp"},
        {"block_attn"},
    ]


def test_module_cuts_leaves_small_modules_alone() -> None:
    assert proposed(model(body=100, tail=5, bit=3)) == [{"body"}]


def test_module_cuts_proposes_nothing_without_modules() -> None:
    nodes: Nodes = {"x": "", **{f"n{i}": operator("x") for i in range(9)}}
    assert proposed(nodes) == []


def test_module_cuts_obeys_the_strategy_laws() -> None:
    check_strategy(DropModules(), whole(skeleton(model(one=6, two_a=5, two_b=5))))


def test_one_module_of_twelve_is_found_in_thirteen_queries() -> None:
    names = [f"b{chr(97 + i)}" for i in range(12)]
    start = whole(skeleton(model(**dict.fromkeys(names, 8))))
    oracle = FakeOracle(needs("bf3"))
    reducer = Reducer(start, Asker(oracle), [DropModules()])
    assert len(reducer.run().operators) == 8
    assert len(oracle.asked) <= 13


def layers(count: int, length: int = 4) -> Nodes:
    """A chain through equal layers, then a head."""
    nodes: dict[str, object] = {"x": ""}
    for number in range(count):
        for i in range(length):
            nodes[f"op{i}_{number}"] = operator([*nodes][-1], scope=f"layers.{number}")
    for i in range(length):
        nodes[f"out{i}_0"] = operator([*nodes][-1], scope="layers.head")
    return nodes  # type: ignore[return-value]


def kept_layers(
    nodes: Nodes, suspects: Mapping[str, float] = NO_SUSPECTS
) -> list[set[str]]:
    """Name the layers that are left after each proposal."""
    view = View(whole(skeleton(nodes)), suspects)
    return [
        {view.skeleton.node(n).scope[7:] for n in {*view.operators} - edit.nodes}
        for edit in DropModules().propose(view)
    ]


@pytest.mark.parametrize("count", [4, 40])
def test_module_cuts_keeps_one_or_half_of_equal_layers(count: int) -> None:
    first, half = {str(i) for i in range(count // 2)}, count // 2
    last = {str(i) for i in range(half, count)}
    proposals = kept_layers(layers(count))
    assert proposals[:3] == [
        {str(count - 1), "head"},
        {*first, "head"},
        {*last, "head"},
    ]
    assert len(proposals) == (4 if count == 4 else 3)


def test_module_cuts_keeps_the_suspect_layer() -> None:
    assert kept_layers(layers(40), {"op2_7": 0.3}) == [
        {"7", "head"},
        {*map(str, range(20)), "head"},
    ]


def test_module_cuts_leaves_two_suspect_layers_alone() -> None:
    suspects = {"op2_7": 0.3, "op2_30": 0.1}
    assert kept_layers(layers(40), suspects) == []


def test_one_query_suffices_if_any_single_layer_fails() -> None:
    oracle = FakeOracle(calls("aten.op2.default"))
    reducer = Reducer(whole(skeleton(layers(40))), Asker(oracle), [DropModules()])
    assert len(reducer.run(lambda best: len(best.keep) <= 8).keep) == 8
    assert len(oracle.asked) == 1


def test_one_culprit_layer_of_forty_is_found_by_halving() -> None:
    oracle = FakeOracle(needs("op2_13"))
    reducer = Reducer(whole(skeleton(layers(40))), Asker(oracle), [DropModules()])
    assert {n.split("_")[1] for n in reducer.run().keep} == {"13"}
    assert len(oracle.asked) <= 16
