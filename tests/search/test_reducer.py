"""The reducer: what it finds, how often it asks, and what it withstands."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shrinkfx.errors import BudgetExhausted, InvalidEdit, StrategyError
from shrinkfx.events import Event, QueryAnswered, StepTaken
from shrinkfx.failure.verdict import Outcome
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.edits import Bypass, Drop, Edit, Merge, Replace
from shrinkfx.program.skeleton import Role, Skeleton
from shrinkfx.program.view import View
from shrinkfx.search.asker import Asker, Budget
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import Strategy, choose
from shrinkfx.strategies.operators import DropNodes
from shrinkfx.testing import (
    Answer,
    FakeOracle,
    Nodes,
    candidates,
    chain,
    feed,
    needs,
    skeleton,
    skeletons,
    whole,
)

# What the search finds, and how many questions it takes: a price list.


def long_chain(operators: int) -> Candidate:
    """Make ``x -> n0 -> n1 -> ...``."""
    return whole(chain("x", *(f"n{i}" for i in range(operators))))


def reduce(
    start: Candidate, answer: Answer, strategies: Sequence[str] | None = None
) -> tuple[Reducer, FakeOracle]:
    oracle = FakeOracle(answer)
    reducer = Reducer(start, Asker(oracle), choose(strategies))
    reducer.run()
    return reducer, oracle


def reaches(producer: str, user: str) -> Callable[[Candidate], bool]:
    """Fail as long as a value flows from one operator into another."""

    def flows(candidate: Candidate, name: str) -> bool:
        return name == producer or any(
            flows(candidate, above) for above in candidate.producers(name)
        )

    return lambda candidate: needs(producer, user)(candidate) and flows(candidate, user)


# --- the price list


@pytest.mark.parametrize(
    ("operators", "needed", "questions"),
    [
        (100, [0], 7),
        (100, [50], 7),
        (100, [99], 12),
        (100, [20, 50, 80], 40),
        (200, [7, 32, 57, 82, 107, 132, 157, 182], 122),
        (300, [10, 11, 12], 26),
    ],
)
def test_reducer_finds_the_needed_operators_of_a_chain(
    operators: int, needed: list[int], questions: int
) -> None:
    names = [f"n{number}" for number in needed]
    reducer, oracle = reduce(long_chain(operators), needs(*names))
    assert reducer.best.operators == tuple(names)
    assert reducer.minimal
    assert len(oracle.asked) <= questions


def test_reducer_keeps_two_operators_that_fail_only_together() -> None:
    reducer, _ = reduce(long_chain(40), needs("n3", "n33"))
    assert reducer.best.operators == ("n3", "n33")
    assert reducer.best.feeds == ("n2",)


def test_reducer_bypasses_operators_to_keep_a_needed_path() -> None:
    reducer, oracle = reduce(long_chain(40), reaches("n3", "n33"))
    assert reducer.best.operators == ("n3", "n33")
    assert reducer.best.bypass == {"n32": "n3"}
    assert reducer.minimal
    assert len(oracle.asked) <= 75


def test_reducer_splits_a_rejected_bundle() -> None:
    _, oracle = reduce(long_chain(16), needs("n10"), ["drop_nodes"])
    kept = [sorted(int(n[1:]) for n in c.keep) for c in oracle.asked]
    assert kept == [
        [*range(13)],  # fails
        [*range(8)],
        [0, 1, 2, *range(8, 13)],  # fails
        [8, 9, 10, 11],  # fails
        [8],  # n9 to n11 are to blame for the refusal; but so was n8
        [9, 10],  # fails
        [9],
        [10],  # fails
    ]


def test_reducer_tries_each_single_drop_if_no_candidate_fails() -> None:
    start = long_chain(3)
    _, oracle = reduce(start, lambda candidate: False, ["drop_nodes"])
    assert [c.operators for c in oracle.asked] == [
        ("n0",),
        ("n1", "n2"),
        ("n0", "n1"),
        ("n0", "n2"),
    ]


# --- suspects


def test_first_query_keeps_only_the_suspects() -> None:
    oracle = FakeOracle(needs("n50"))
    suspects = {"n50": 1.0, "gone": 1.0}
    reducer = Reducer(long_chain(100), Asker(oracle), choose(None), suspects=suspects)
    assert reducer.run().operators == ("n50",)
    assert oracle.asked[0].operators == ("n50",)
    assert len(oracle.asked) <= 2


def test_reducer_finds_the_needed_operators_despite_wrong_suspects() -> None:
    oracle = FakeOracle(needs("n20", "n80"))
    suspects = {f"n{i}": 0.5 for i in range(40, 44)}
    reducer = Reducer(long_chain(100), Asker(oracle), choose(None), suspects=suspects)
    assert reducer.run().operators == ("n20", "n80")
    assert reducer.minimal
    assert len(oracle.asked) <= 45


# --- what cannot go may become simpler


def test_reducer_simplifies_an_operator_if_only_its_presence_matters() -> None:
    start = whole(chain("x", "tanh", "gelu", "roll", "exp"))

    def reads_a_kernel(candidate: Candidate) -> bool:
        return needs("roll")(candidate) and bool(candidate.producers("roll"))

    reducer, oracle = reduce(start, reads_a_kernel)
    best = reducer.best
    assert best.operators == ("gelu", "roll")
    assert [best.target(n) for n in best.operators] == [
        "aten.abs.default",
        "aten.roll.default",
    ]
    assert best.operands("gelu") == ["tanh"]
    assert reducer.minimal
    assert len(oracle.asked) <= 11


@pytest.mark.parametrize(("different", "questions"), [(1, 3), (2, 3), (3, 5)])
def test_reducer_merges_equal_inputs(different: int, questions: int) -> None:
    start = whole(skeleton({"x": "", "y": "", "z": "", "fma": "x y z"}))

    def shows(candidate: Candidate) -> bool:
        return needs("fma")(candidate) and len(candidate.feeds) >= different

    reducer, oracle = reduce(start, shows)
    assert len(reducer.best.inputs) == different
    assert len(oracle.asked) <= questions


def test_reducer_merges_inputs_except_the_needed_one() -> None:
    start = whole(skeleton({"x": "", "y": "", "z": "", "fma": "x y z"}))
    reducer, _ = reduce(
        start,
        lambda c: (
            needs("fma")(c)
            and c.operands("fma")[1] == "y"
            and c.operands("fma").count("y") == 1
        ),
    )
    assert reducer.best.operands("fma") == ["x", "y", "x"]


# --- outputs


def test_reducer_returns_only_sinks_if_the_failure_remains() -> None:
    start = whole(skeleton({"x": "", "a": "x", "b": "a", "c": "b"}, "a b c"))
    reducer, _ = reduce(start, needs("a", "b"))
    assert start.outputs is Outputs.ORIGINAL
    assert reducer.best.outputs is Outputs.SINKS


def test_reducer_returns_the_original_values_if_sinks_hide_the_failure() -> None:
    start = whole(skeleton({"x": "", "a": "x", "b": "a", "c": "b"}, "a b c"))

    def shows(candidate: Candidate) -> bool:
        return needs("a", "b")(candidate) and candidate.outputs is Outputs.ORIGINAL

    reducer, _ = reduce(start, shows)
    assert reducer.best.operators == ("a", "b")
    assert reducer.best.outputs is Outputs.ORIGINAL
    assert reducer.minimal


def test_reducer_keeps_the_write_that_the_failure_needs() -> None:
    nodes: Nodes = {"x": "", "h": feed(Role.BUFFER), "mul": "x", "add": "x h"}
    start = whole(skeleton({**nodes, "b": "add"}, writes=[("mul", "h")]))
    reducer, _ = reduce(start, lambda c: bool(c.writes))
    assert reducer.best.operators == ("mul", "add")
    stateless, _ = reduce(start, needs("add"))
    assert stateless.best.writes == {}


# --- minimal


def answers(final: Outcome) -> Callable[[Candidate], bool | Outcome]:
    """Answer ``final`` as soon as n1 or n2 is gone."""
    return lambda candidate: needs("n1", "n2")(candidate) or final


@pytest.mark.parametrize(
    ("final", "minimal"),
    [
        (Outcome.PASSED, True),
        (Outcome.DIFFERENT, True),
        (Outcome.INVALID, True),
        (Outcome.UNRESOLVED, False),
    ],
)
def test_result_is_minimal_unless_a_verdict_is_unresolved(
    final: Outcome, minimal: bool
) -> None:
    reducer, _ = reduce(long_chain(5), answers(final))
    assert reducer.best.operators == ("n1", "n2")
    assert reducer.minimal is minimal


# --- pause, budget, cache


def test_paused_reducer_continues_with_the_same_queries() -> None:
    start, answer = long_chain(60), needs("n7", "n40")
    _, straight = reduce(start, answer)
    oracle = FakeOracle(answer)
    reducer = Reducer(start, Asker(oracle), choose(None))
    paused = [reducer.run(pause=lambda b, n=n: b.cost[0] < n) for n in (50, 20, 3)]  # type: ignore[misc]
    assert all(c.cost[0] < n for c, n in zip(paused, (50, 20, 3), strict=True))
    reducer.run()
    assert oracle.digests == straight.digests


def test_restarted_reducer_keeps_its_verdicts() -> None:
    reducer, oracle = reduce(long_chain(20), needs("n7"))
    reducer.restart(long_chain(20))
    reducer.run()
    assert reducer.best.operators == ("n7",)
    assert len(oracle.digests) == len(set(oracle.digests))


@pytest.mark.parametrize("checks", range(0, 8, 3))
def test_reducer_keeps_its_best_when_the_budget_is_spent(checks: int) -> None:
    oracle = FakeOracle(needs("n50"))
    budget = Budget(max_checks=checks)
    reducer = Reducer(long_chain(100), Asker(oracle, budget=budget), choose(None))
    with pytest.raises(BudgetExhausted):
        reducer.run()
    assert len(oracle.asked) == checks
    failed = [c for c in oracle.asked if needs("n50")(c)]
    assert reducer.best == [long_chain(100), *failed][-1]


# --- what it tells


def test_reducer_emits_an_event_for_every_check_and_step() -> None:
    events: list[Event] = []
    oracle = FakeOracle(needs("n5"))
    reducer = Reducer(
        long_chain(20), Asker(oracle), choose(None), listener=events.append
    )
    reducer.run()
    checks = [event for event in events if isinstance(event, QueryAnswered)]
    steps = [event for event in events if isinstance(event, StepTaken)]
    assert [event.check for event in checks] == [*range(1, len(oracle.asked) + 1)]
    assert len(steps) == len(reducer.history) - 1
    assert steps[0].before == 20
    assert steps[-1].after == 1
    sizes = [candidate.cost for candidate in reducer.history]
    assert sizes == sorted(set(sizes), reverse=True)


def test_reducer_restores_original_outputs_if_fewer_hide_the_failure() -> None:
    # Only a program that also returns the inner value n50 fails.
    line = chain("x", *(f"n{i}" for i in range(100)))
    nodes = [line.node(name) for name in line.graph]
    start = whole(Skeleton(nodes, ["n50", "n99"]))

    def fails(candidate: Candidate) -> bool:
        inner = candidate.outputs is Outputs.ORIGINAL
        return inner and {"n50", "n51"} <= candidate.keep

    oracle = FakeOracle(fails)
    reducer = Reducer(start, Asker(oracle), choose(None))
    reducer.run()
    assert reducer.best.keep == {"n50", "n51"}
    assert len(oracle.asked) <= 27


# Whatever the program and whatever it needs.


STRATEGIES = choose(None)


def reduce_properties(start: Candidate, answer: Callable[[Candidate], bool]) -> Reducer:
    reducer = Reducer(start, Asker(FakeOracle(answer)), STRATEGIES)
    reducer.run()
    return reducer


def smaller_by_one(best: Candidate) -> list[Candidate]:
    """List what is left when any one operator is dropped."""
    found = []
    for node in best.operators:
        try:
            found.append(apply(best, [Drop(frozenset({node}))]))
        except InvalidEdit:
            continue
    return found


def check(start: Candidate, answer: Callable[[Candidate], bool]) -> Candidate:
    """Reduce and check what every result must satisfy."""
    reducer = reduce_properties(start, answer)
    best = reducer.best
    assert best == start or answer(best)
    assert best.cost <= start.cost
    assert reducer.minimal
    assert not any(answer(candidate) for candidate in smaller_by_one(best))
    return best


@given(skeletons(), st.data())
def test_reducer_finds_exactly_the_needed_operators(
    program: Skeleton, data: st.DataObject
) -> None:
    start = whole(program)
    needed = data.draw(st.sets(st.sampled_from(start.operators), min_size=1))
    assert check(start, needs(*needed)).keep == needed


@given(candidates(), st.data())
def test_reducer_starts_from_any_candidate(
    start: Candidate, data: st.DataObject
) -> None:
    there = [name for name in start.operators if name not in start.replace]
    needed = data.draw(st.sets(st.sampled_from(there or start.operators), min_size=1))
    if not there:
        return  # it does not fail
    assert check(start, needs(*needed)).keep == needed


@given(skeletons())
def test_reducer_leaves_one_operator_if_everything_fails(program: Skeleton) -> None:
    best = reduce_properties(whole(program), lambda candidate: True).best
    (operator,) = best.operators
    assert not best.is_replaceable(operator)
    assert len(best.inputs) == len({program.node(v).value for v in best.inputs})


@given(skeletons())
def test_reducer_returns_the_input_program_if_no_candidate_fails(
    program: Skeleton,
) -> None:
    start = whole(program)
    assert check(start, lambda candidate: candidate.digest == start.digest) == start


@given(skeletons(), st.data())
def test_result_is_minimal_if_30_percent_of_contexts_hide_the_failure(
    program: Skeleton, data: st.DataObject
) -> None:
    start = whole(program)
    needed = data.draw(st.sets(st.sampled_from(start.operators), min_size=1))

    def shows(candidate: Candidate) -> bool:
        return needs(*needed)(candidate) and int(candidate.digest[:8], 16) % 10 >= 3

    assert check(start, shows).keep >= needed


@given(skeletons(), st.data())
def test_reducer_keeps_the_edge_that_the_failure_needs(
    program: Skeleton, data: st.DataObject
) -> None:
    start = whole(program)
    edges = [(p, n) for n in start.operators for p in sorted(start.producers(n))]
    if not edges:
        return
    producer, user = data.draw(st.sampled_from(edges))

    def flows(candidate: Candidate) -> bool:
        return user in candidate.keep and producer in candidate.producers(user)

    assert check(start, flows).keep == {producer, user}


# Strategies and oracles named for what they do wrong.


START = whole(chain("x", *(f"n{i}" for i in range(20))))


class ProposesNothing:
    name = "vice"
    combines = True

    def propose(self, view: View) -> Iterator[Edit]:
        yield from ()


class ProposesForever(ProposesNothing):
    def propose(self, view: View) -> Iterator[Edit]:
        while True:
            yield Drop(frozenset({"n0"}))


class MutatesItsCandidate(ProposesNothing):
    def propose(self, view: View) -> Iterator[Edit]:
        cast(dict[str, str], view._candidate.bypass)["n3"] = "x"
        yield Drop(frozenset({"n0"}))


class ProposesWhatDoesNotFit(ProposesNothing):
    def propose(self, view: View) -> Iterator[Edit]:
        yield Drop(frozenset({"nowhere"}))
        yield Drop(frozenset(view.operators))
        yield Bypass("nowhere", "x")
        yield Bypass("n1", "nowhere")
        yield Bypass("n1", "n2")
        yield Replace("nowhere", "x")
        yield Replace("n1", "n2")
        yield Merge(frozenset({"x", "n1"}))
        yield Merge(frozenset({"x"}))


class RepeatsItself(ProposesNothing):
    def propose(self, view: View) -> Iterator[Edit]:
        for _ in range(50):
            yield Drop(frozenset({"n0"}))


class RaisesHalfWay(ProposesNothing):
    def propose(self, view: View) -> Iterator[Edit]:
        yield Drop(frozenset({"n0"}))
        raise RuntimeError("lost")


class FlakyOracle(FakeOracle):
    """Deny one failure in so many."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        super().__init__(lambda c: needs("n5", "n11")(c) and dice.random() < 0.7)


class DifferentFailureOracle(FakeOracle):
    """Meet another failure as soon as anything is missing."""

    def __init__(self) -> None:
        super().__init__(lambda candidate: Outcome.DIFFERENT)


@pytest.mark.parametrize(
    "strategy", [ProposesForever(), MutatesItsCandidate(), RaisesHalfWay()]
)
def test_reducer_stops_at_a_strategy_that_breaks_the_laws(strategy: Strategy) -> None:
    oracle = FakeOracle(needs("n5"))
    start = Candidate.from_json(START.skeleton, START.to_json())
    with pytest.raises(StrategyError, match="strategy 'vice'"):
        Reducer(start, Asker(oracle), [strategy]).run()
    assert oracle.asked == []


@pytest.mark.parametrize("strategy", [ProposesNothing(), ProposesWhatDoesNotFit()])
def test_reducer_skips_a_strategy_without_valid_edits(strategy: Strategy) -> None:
    oracle = FakeOracle(needs("n5"))
    assert Reducer(START, Asker(oracle), [strategy]).run() == START
    assert oracle.asked == []
    assert Reducer(START, Asker(oracle), [strategy, DropNodes()]).run().operators == (
        "n5",
    )


def test_reducer_queries_a_repeated_proposal_once() -> None:
    oracle = FakeOracle(lambda candidate: False)
    Reducer(START, Asker(oracle), [RepeatsItself()]).run()
    assert len(oracle.asked) == 1


@pytest.mark.parametrize("seed", range(5))
def test_result_has_failed_at_least_once_if_verdicts_are_flaky(
    seed: int,
) -> None:
    oracle = FlakyOracle(seed)
    reducer = Reducer(START, Asker(oracle), choose(None))
    best = reducer.run()
    assert needs("n5", "n11")(best)
    assert best == START or reducer.asker.has_reproduced(best)


def test_reducer_never_accepts_a_different_failure() -> None:
    oracle = DifferentFailureOracle()
    reducer = Reducer(START, Asker(oracle), choose(None))
    assert reducer.run() == START
    assert reducer.minimal
    assert {verdict.outcome for verdict in reducer.asker.verdicts()} == {
        Outcome.DIFFERENT
    }
