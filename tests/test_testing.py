"""The doubles that strategy authors test with."""

from __future__ import annotations

import pytest
from hypothesis import given

from shrinkfx.failure.verdict import Outcome, judge
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop
from shrinkfx.program.skeleton import Role, Skeleton
from shrinkfx.testing import (
    FLOATS,
    PLANTED,
    Answer,
    FakeOracle,
    Nodes,
    calls,
    candidates,
    chain,
    feed,
    needs,
    operator,
    skeleton,
    skeletons,
    whole,
)

PROGRAM = chain("x", "relu", "tanh", "tanh_1")


def test_chain_operator_reads_its_predecessor() -> None:
    assert PROGRAM.operators == ("relu", "tanh", "tanh_1")
    assert PROGRAM.node("tanh_1").operands == ("tanh",)
    assert PROGRAM.node("tanh_1").target == "aten.tanh.default"
    assert PROGRAM.outputs == ("tanh_1",)


def test_skeleton_accepts_texts_for_inputs_and_operators() -> None:
    fill = operator(target="aten.full.default")
    nodes: Nodes = {"x": "", "w": feed(Role.BUFFER), "full": fill, "add": "x w full"}
    program = skeleton({**nodes, "mul": "add"}, "mul add")
    assert program.inputs == ("x",)
    assert program.operators == ("full", "add", "mul")
    assert program.node("add").value == FLOATS
    assert program.outputs == ("mul", "add")


def test_needs_and_calls_check_the_kept_operators() -> None:
    start = whole(PROGRAM)
    cut = apply(start, [Drop(frozenset({"tanh"}))])
    assert needs("relu", "tanh_1")(cut)
    assert not needs("relu", "tanh")(cut)
    assert calls("aten.tanh.default")(cut)
    assert not calls("aten.tanh.default")(apply(cut, [Drop(frozenset({"tanh_1"}))]))


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (lambda candidate: True, Outcome.REPRODUCED),
        (lambda candidate: False, Outcome.PASSED),
        *[(lambda candidate, o=outcome: o, outcome) for outcome in Outcome],
    ],
)
def test_fake_oracle_returns_a_consistent_observation(
    answer: Answer, outcome: Outcome
) -> None:
    verdict = FakeOracle(answer).check(whole(PROGRAM))
    assert verdict.outcome is outcome
    assert judge(verdict.observation, PLANTED) is outcome


def test_fake_oracle_refuses_a_repeated_query() -> None:
    oracle = FakeOracle(needs("relu"))
    start = whole(PROGRAM)
    oracle.check(start)
    assert oracle.asked == [start]
    with pytest.raises(AssertionError, match="asked twice"):
        oracle.check(start)


@given(skeletons())
def test_random_programs_have_operators_and_outputs(program: Skeleton) -> None:
    assert program.operators
    assert program.outputs
    assert whole(program).sinks


@given(candidates(max_operators=4))
def test_random_candidates_keep_at_least_one_operator(candidate: Candidate) -> None:
    assert 1 <= len(candidate.keep) <= 4
