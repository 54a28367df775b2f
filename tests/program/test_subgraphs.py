"""What is inside of operators: bypassed, never cut."""

from __future__ import annotations

import pytest
from hypothesis import given

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Bypass, Drop
from shrinkfx.testing import (
    HALVES,
    candidates,
    inner,
    operator,
    projection,
    skeleton,
    subgraph,
    whole,
)

LOOP = skeleton(
    {
        "x": "",
        "relu": "x",
        "body.h": inner(),
        "body.half": inner("body.h", HALVES),
        "body.sin": inner("body.half"),
        "body.tanh": inner("body.sin"),
        "body.dead": inner("body.h"),
        "body.exp": inner("body.tanh"),
        "body": subgraph("body.exp"),
        "loop": operator("relu body", value=None, operators=6),
        "h": projection("loop"),
        "exp": "h",
    }
)
INSIDE = ("body.h", "body.half", "body.sin", "body.tanh", "body.exp")


def test_subgraph_nodes_are_those_needed_by_kept_operators() -> None:
    program = whole(LOOP)
    assert program.subgraph_nodes == INSIDE
    assert apply(program, [Drop(frozenset({"loop"}))]).subgraph_nodes == ()
    assert "body.h" not in program.inputs
    assert program.feeds == ("x",)


def test_bypass_removes_nodes_that_become_unused() -> None:
    program = whole(LOOP)
    shorter = apply(program, [Bypass("body.sin", "body.h")])
    assert shorter.subgraph_nodes == ("body.h", "body.tanh", "body.exp")
    assert shorter.cost[0] == program.cost[0] - 2
    assert shorter.operators == program.operators
    assert Candidate.from_json(LOOP, shorter.to_json()) == shorter


def test_bypasses_inside_subgraph_have_normal_form() -> None:
    program = whole(LOOP)
    first, second = Bypass("body.tanh", "body.sin"), Bypass("body.sin", "body.h")
    both = apply(program, [first, second])
    assert both.bypass == {"body.tanh": "body.h"}
    assert apply(apply(program, [second]), [first]).digest == both.digest
    without = apply(both, [Drop(frozenset({"loop"}))])
    assert without == apply(program, [Drop(frozenset({"loop"}))])


@pytest.mark.parametrize(
    "edit",
    [
        Bypass("body.tanh", "relu"),
        Bypass("exp", "body.h"),
        Bypass("body.sin", "body.half"),
        Bypass("body.sin", "body.tanh"),
        Bypass("body.dead", "body.h"),
        Drop(frozenset({"body.sin"})),
    ],
    ids=str,
)
def test_edit_that_does_not_fit_subgraph_is_refused(edit: Bypass | Drop) -> None:
    with pytest.raises(InvalidEdit):
        apply(whole(LOOP), [edit])


def test_subgraph_cannot_be_bypassed_to_return_its_input() -> None:
    program = whole(LOOP)
    with pytest.raises(InvalidEdit, match=r"without body\.exp"):
        apply(program, [Bypass("body.exp", "body.h")])
    shorter = apply(program, [Bypass("body.exp", "body.sin")])
    with pytest.raises(InvalidEdit, match=r"without body\.sin"):
        apply(shorter, [Bypass("body.sin", "body.h")])


@given(candidate=candidates())
def test_normal_form_is_stable(candidate: Candidate) -> None:
    again = Candidate.from_json(candidate.skeleton, candidate.to_json())
    assert apply(again, [Drop(frozenset())]) == candidate
