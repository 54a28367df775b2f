"""Whatever the program and whatever it needs."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose
from shrinkfx.testing import FakeOracle, candidates, needs, skeletons, whole

STRATEGIES = choose(None)


def reduce(start: Candidate, answer: Callable[[Candidate], bool]) -> Reducer:
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
    reducer = reduce(start, answer)
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
    best = reduce(whole(program), lambda candidate: True).best
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
