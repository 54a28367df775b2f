"""Checks and seconds that are left; the clock is the test's."""

from __future__ import annotations

import pytest

from shrinkfx.errors import BudgetExhausted
from shrinkfx.search.asker import Budget


class Clock:
    """Stand still until told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_budget_counts_checks_and_stops_after_the_last() -> None:
    budget = Budget(max_checks=2)
    budget.spend()
    budget.spend()
    with pytest.raises(BudgetExhausted, match="limit of 2 checks reached"):
        budget.spend()
    assert budget.checks == 2


def test_budget_stops_when_its_seconds_are_over() -> None:
    clock = Clock()
    budget = Budget(max_seconds=90.0, clock=clock)
    clock.now += 89.0
    budget.spend()
    assert budget.seconds_left == 1.0
    clock.now += 2.0
    assert budget.seconds_left == 0.0
    with pytest.raises(BudgetExhausted, match=r"time limit of 1\.5 minutes reached"):
        budget.spend()
    assert budget.checks == 1


def test_remaining_time_is_estimated_from_recent_and_allowed_checks() -> None:
    budget = Budget(max_checks=10)
    assert budget.time_for(5) is None
    for seconds in [100.0, *[2.0] * 20]:  # the first one was of a larger program
        budget.record_wait(seconds)
    assert budget.time_for(5) == 10.0
    assert budget.time_for(50) == 20.0
    assert Budget().time_for(5) is None


def test_time_reserved_for_a_repro_is_not_available_to_queries() -> None:
    clock = Clock()
    budget = Budget(max_seconds=180.0, clock=clock)
    assert budget.share() == 45.0
    budget.keep(50.0)
    budget.keep(20.0)  # a smaller one changes nothing
    assert budget.seconds_left == 80.0
    assert (budget.has(80.0), budget.has(81.0)) == (True, False)
    assert budget.share() == 20.0
    clock.now += 100.0
    assert (budget.seconds_left, budget.share(), budget.has(0.0)) == (0.0, 0.0, False)
    budget.reserve_s = 0.0
    assert budget.seconds_left == 80.0


def test_guaranteed_seconds_may_exceed_the_time_limit() -> None:
    """The rest may not: it is not asked where only overtime is left."""
    clock = Clock()
    budget = Budget(max_seconds=180.0, clock=clock)
    clock.now += 200.0
    budget.guarantee_seconds(90.0)
    assert budget.seconds_left == 90.0
    assert not budget.has(1.0)
    assert budget.share() == 0.0
    clock.now += 90.0
    assert budget.seconds_left == 0.0
    budget = Budget(max_seconds=180.0, clock=clock)
    budget.guarantee_seconds(90.0)
    assert budget.seconds_left == 180.0


def test_speculative_check_is_estimated_by_its_waiting_time() -> None:
    budget = Budget(100)
    for _ in range(4):
        budget.record_wait(1.0, check_s=3.0)
    assert budget.pace_s == 3.0
    assert budget.time_for(10) == 10.0
