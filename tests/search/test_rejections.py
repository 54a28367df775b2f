"""What rejected edits say about bigger ones."""

from __future__ import annotations

import pytest

from shrinkfx.failure.verdict import Outcome
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Outputs
from shrinkfx.program.edits import Bypass, Drop, Edit
from shrinkfx.search.search_state import Rejections, dropped_operators
from shrinkfx.testing import chain, skeleton, whole

START = whole(chain("x", "a", "b", "c", "d", "e"))


def drop(nodes: str) -> Drop:
    return Drop(frozenset(nodes))


def rejected(*edits: Edit, outcome: Outcome = Outcome.PASSED) -> Rejections:
    rejections = Rejections()
    rejections.note(edits, apply(START, edits), outcome)
    return rejections


def rules_out(rejections: Rejections, *edits: Edit) -> bool:
    return rejections.rule_out(edits, apply(START, edits))


def test_superset_of_a_rejected_drop_is_ruled_out() -> None:
    rejections = rejected(drop("b"), drop("c"))
    assert rules_out(rejections, drop("bcd"))
    assert rules_out(rejections, drop("cd"), drop("b"))
    assert rules_out(rejections, drop("bc"))
    assert not rules_out(rejections, drop("cde"))


def test_drop_of_a_single_operator_is_never_ruled_out() -> None:
    rejections = rejected(drop("b"))
    assert rules_out(rejections, drop("bc"))
    assert not rules_out(rejections, drop("b"))


def test_drop_that_only_overlaps_a_rejected_drop_is_not_ruled_out() -> None:
    assert not rules_out(rejected(drop("bc")), drop("bd"))


@pytest.mark.parametrize(
    "outcome", [Outcome.DIFFERENT, Outcome.INVALID, Outcome.UNRESOLVED]
)
def test_only_a_passed_verdict_rules_out_larger_drops(outcome: Outcome) -> None:
    assert not rules_out(rejected(drop("b"), outcome=outcome), drop("bc"))


def test_rejection_does_not_apply_to_candidates_with_other_outputs() -> None:
    nodes = {"x": "", "a": "x", "b": "a", "c": "b", "d": "c"}
    start = whole(skeleton(nodes, "a b c d"))
    fewer, more = apply(start, [drop("d")]), apply(start, [drop("cd")])
    rejections = Rejections()
    rejections.note([drop("d")], fewer.returning(Outputs.SINKS), Outcome.PASSED)
    assert rejections.rule_out([drop("cd")], more.returning(Outputs.SINKS))
    assert more.outputs is Outputs.ORIGINAL
    assert not rejections.rule_out([drop("cd")], more)


def test_bypasses_neither_rule_out_nor_are_ruled_out() -> None:
    assert dropped_operators([drop("b"), Bypass("c", "b")]) == frozenset()
    assert not rules_out(rejected(Bypass("b", "a")), drop("bc"))
    assert not rules_out(rejected(drop("b")), Bypass("b", "a"), Bypass("c", "b"))
