"""Dear operators, with what the plain ones in their place would read."""

from __future__ import annotations

from shrinkfx.program.apply import apply
from shrinkfx.program.edits import Bypass, Replace
from shrinkfx.program.skeleton import Role
from shrinkfx.program.view import View
from shrinkfx.strategies.operators import ReplaceOperators
from shrinkfx.testing import (
    HALVES,
    Nodes,
    chain,
    feed,
    operator,
    projection,
    skeleton,
    whole,
)


def test_replace_reads_the_operand_of_equal_type() -> None:
    view = View(whole(chain("x", "gelu", "roll")))
    assert list(ReplaceOperators().propose(view)) == [
        Replace("roll", "gelu"),
        Replace("gelu", "x"),
    ]


def test_replace_reads_its_own_value_if_no_operand_fits() -> None:
    weight = feed(Role.PARAMETER, HALVES)
    view = View(whole(skeleton({"h": feed(value=HALVES), "w": weight, "mm": "h w"})))
    assert list(ReplaceOperators().propose(view)) == [Replace("mm", "mm")]


def test_replace_reads_the_source_of_a_bypass() -> None:
    cut = apply(whole(chain("x", "gelu", "roll")), [Bypass("gelu", "x")])
    assert list(ReplaceOperators().propose(View(cut))) == [Replace("roll", "x")]


def test_replace_skips_simple_and_non_tensor_operators() -> None:
    nodes: Nodes = {"x": "", "relu": "x", "sort": operator("relu", value=None)}
    view = View(whole(skeleton({**nodes, "one": projection("sort"), "add": "one x"})))
    assert list(ReplaceOperators().propose(view)) == []


def test_replace_does_not_repeat_a_proposal() -> None:
    plain = apply(whole(chain("x", "gelu", "roll")), [Replace("gelu", "gelu")])
    assert list(ReplaceOperators().propose(View(plain))) == [Replace("roll", "gelu")]


def test_replace_applies_to_impure_operators() -> None:
    rand = operator("", impure=True)
    view = View(whole(skeleton({"rand": rand, "relu": "rand"})))
    assert list(ReplaceOperators().propose(view)) == [Replace("rand", "rand")]


def test_replace_proposes_suspects_last() -> None:
    view = View(whole(chain("x", "gelu", "roll")), {"roll": 0.5})
    assert list(ReplaceOperators().propose(view)) == [
        Replace("gelu", "x"),
        Replace("roll", "gelu"),
    ]
