"""Whether what a search says of its rest comes true."""

from __future__ import annotations

import math
import statistics

import pytest
from synthetic import Blame, Needles, make_case

from shrinkfx.events import Event, QueryAnswered
from shrinkfx.search.asker import Asker, Budget
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose
from shrinkfx.testing import FakeOracle, whole

CASES = [(50, 3), (50, 8), (200, 8)]


def errors(blame: Blame, operators: int, needed: int, number: int) -> list[float]:
    """Compare estimates with what came, a second each: powers of two too much."""
    case = make_case(number, operators, needed, Needles.NEAR, blame)
    oracle, told = FakeOracle(case.answer), []
    budget = Budget(clock=lambda: float(len(oracle.asked)))

    def listen(event: Event) -> None:
        if isinstance(event, QueryAnswered):
            assert event.expected_s is not None
            told.append(event.expected_s)

    start = whole(case.program)
    Reducer(
        start,
        Asker(oracle, budget=budget),
        choose(None),
        listener=listen,
        suspects=case.suspects,
    ).run()
    total = len(told)
    moments = [int(part * total) for part in (0.0, 0.1, 0.25, 0.5, 0.75)]
    return [math.log2((told[at] + 1) / (total - at)) for at in moments]


@pytest.mark.parametrize(("operators", "needed"), CASES)
@pytest.mark.parametrize("blame", [Blame.NONE, Blame.GOOD])
def test_estimate_of_the_remaining_time_is_accurate(
    blame: Blame, operators: int, needed: int
) -> None:
    found = [error for n in range(6) for error in errors(blame, operators, needed, n)]
    assert abs(statistics.median(found)) < 0.6
    within = [abs(error) < 1 for error in found]
    assert sum(within) / len(within) > 0.6


@pytest.mark.parametrize(("operators", "needed"), [(50, 3), (200, 8)])
def test_first_estimate_accounts_for_suspects(operators: int, needed: int) -> None:
    first = [errors(Blame.GOOD, operators, needed, n)[0] for n in range(8)]
    assert abs(statistics.median(first)) < 1
