"""What refused edits say about bigger ones."""

from __future__ import annotations

import pytest

from shrinkfx.failure.verdict import Outcome
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Outputs
from shrinkfx.program.edits import Bypass, Drop, Edit
from shrinkfx.search.rejections import Refusals, dropped
from shrinkfx.testing import chain, skeleton, whole

START = whole(chain("x", "a", "b", "c", "d", "e"))


def drop(nodes: str) -> Drop:
    return Drop(frozenset(nodes))


def refused(*edits: Edit, outcome: Outcome = Outcome.PASSED) -> Refusals:
    refusals = Refusals()
    refusals.note(edits, apply(START, edits), outcome)
    return refusals


def rules_out(refusals: Refusals, *edits: Edit) -> bool:
    return refusals.rule_out(edits, apply(START, edits))


def test_more_than_what_was_refused_is_ruled_out() -> None:
    refusals = refused(drop("b"), drop("c"))
    assert rules_out(refusals, drop("bcd"))
    assert rules_out(refusals, drop("cd"), drop("b"))
    assert rules_out(refusals, drop("bc"))
    assert not rules_out(refusals, drop("cde"))


def test_one_operator_alone_is_never_ruled_out() -> None:
    refusals = refused(drop("b"))
    assert rules_out(refusals, drop("bc"))
    assert not rules_out(refusals, drop("b"))


def test_a_refusal_says_nothing_when_a_part_of_it_is_gone() -> None:
    assert not rules_out(refused(drop("bc")), drop("bd"))


@pytest.mark.parametrize(
    "outcome", [Outcome.DIFFERENT, Outcome.INVALID, Outcome.UNRESOLVED]
)
def test_only_what_passed_rules_anything_out(outcome: Outcome) -> None:
    assert not rules_out(refused(drop("b"), outcome=outcome), drop("bc"))


def test_other_outputs_are_another_question() -> None:
    nodes = {"x": "", "a": "x", "b": "a", "c": "b", "d": "c"}
    start = whole(skeleton(nodes, "a b c d"))
    fewer, more = apply(start, [drop("d")]), apply(start, [drop("cd")])
    refusals = Refusals()
    refusals.note([drop("d")], fewer.returning(Outputs.SINKS), Outcome.PASSED)
    assert refusals.rule_out([drop("cd")], more.returning(Outputs.SINKS))
    assert more.outputs is Outputs.ORIGINAL
    assert not refusals.rule_out([drop("cd")], more)


def test_bypasses_neither_rule_out_nor_are_ruled_out() -> None:
    assert dropped([drop("b"), Bypass("c", "b")]) == frozenset()
    assert not rules_out(refused(Bypass("b", "a")), drop("bc"))
    assert not rules_out(refused(drop("b")), Bypass("b", "a"), Bypass("c", "b"))
