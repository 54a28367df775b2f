"""Where a search stands, as a value that can be copied."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from shrinkfx.failure.verdict import Outcome
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.search.search_state import SearchState
from shrinkfx.search.strategy import choose
from shrinkfx.testing import Answer, chain, needs, skeletons, whole

STRATEGIES = choose(None)
SOME = [Outcome.REPRODUCED, Outcome.PASSED, Outcome.INVALID]


def next_digests(course: SearchState, answer: Answer, most: int = 1000) -> list[str]:
    """Answer the next questions; list their candidates."""
    asked: list[str] = []
    while len(asked) < most and (question := course.next_query()):
        asked.append(question.candidate.digest)
        failed = answer(question.candidate)
        course.answer(Outcome.REPRODUCED if failed else Outcome.PASSED)
    return asked


@given(skeletons(), st.data())
def test_verdicts_for_a_copy_do_not_change_the_search_state(
    program: Skeleton, data: st.DataObject
) -> None:
    start = whole(program)
    needed = data.draw(st.sets(st.sampled_from(start.operators), min_size=1))
    suspects = data.draw(
        st.dictionaries(st.sampled_from(start.operators), st.just(1.0))
    )
    dice = data.draw(st.randoms(use_true_random=False))
    plain, watched = (SearchState(start, STRATEGIES, suspects) for _ in range(2))
    expected = next_digests(plain, needs(*needed))
    for digest in expected:
        wander(watched.copy(), dice)
        assert next_digests(watched, needs(*needed), 1) == [digest]
        wander(watched.copy(), dice)
    assert watched.next_query() is None
    assert watched.best == plain.best


def wander(course: SearchState, dice: random.Random) -> None:
    """Give a course a few answers of no meaning."""
    for _ in range(3):
        if course.next_query():
            course.answer(dice.choice(SOME))


def test_search_state_advances_only_to_failing_candidates() -> None:
    start: Candidate = whole(chain("x", "a", "b", "c", "d"))
    course = SearchState(start, STRATEGIES)
    question = course.next_query()
    assert question
    for outcome in (Outcome.DIFFERENT, Outcome.UNRESOLVED, Outcome.INVALID):
        assert not course.copy().answer(outcome)
    assert course.best is start
    assert course.answer(Outcome.REPRODUCED)
    assert course.best is question.candidate
