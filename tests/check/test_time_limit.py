"""How the time limit of a check follows those before."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from shrinkfx.check.command import Command, CommandOracle
from shrinkfx.check.limits import AdaptiveTimeLimit, time_limit
from shrinkfx.check.oracle import CheckClient, InductorOracle, Limits
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.requests import Request
from shrinkfx.testing import PLANTED, chain, whole

CHAIN = whole(chain("x", "relu"))
LONGER = whole(chain("x", "relu", "tanh"))
FAILED = Verdict(Outcome.REPRODUCED, Observation(PLANTED, seconds=9.0))


def verdict(seconds: float, unresolved: str = "", invalid: str = "") -> Verdict:
    seen = Observation(seconds=seconds, unresolved=unresolved, invalid=invalid)
    return Verdict(Outcome.PASSED, seen)


def after(*verdicts: Verdict, timeout_s: float = 500.0) -> float:
    patience = AdaptiveTimeLimit(timeout_s)
    for each in verdicts:
        patience.learn(CHAIN, each)
    return patience.timeout_s


@pytest.mark.parametrize(
    ("seconds", "limit"), [(1.0, 60.0), (20.0, 200.0), (90.0, 600.0)]
)
def test_time_limit_is_ten_times_the_baseline_within_bounds(
    seconds: float, limit: float
) -> None:
    assert time_limit(seconds) == limit


def test_time_limit_falls_to_ten_times_the_longest_of_ten_checks() -> None:
    assert after(*[verdict(9.0)] * 9) == 500.0
    assert after(*[verdict(9.0)] * 10) == 90.0
    assert after(verdict(40.0), *[verdict(9.0)] * 9) == 400.0
    assert after(verdict(40.0), *[verdict(9.0)] * 10) == 90.0


def test_time_limit_ignores_waiting_on_a_busy_machine() -> None:
    seen = Observation(seconds=90.0, waited_s=81.0)
    assert after(*[Verdict(Outcome.PASSED, seen)] * 10) == 90.0


def test_time_limit_never_rises() -> None:
    assert after(*[verdict(9.0)] * 10, *[verdict(30.0)] * 10) == 90.0


def test_inconclusive_checks_do_not_change_the_time_limit() -> None:
    silent = [verdict(500.0, unresolved="timeout"), verdict(0.1, invalid="no program")]
    assert after(*[verdict(9.0)] * 9, *silent) == 500.0
    assert after(*[verdict(9.0)] * 9, *silent, verdict(9.0)) == 90.0


class Worker:
    """Takes 9 s for whatever it is asked, and keeps how long it was given."""

    def __init__(self) -> None:
        self.given: list[float] = []

    def ask(self, request: Request) -> Ending:
        self.given.append(request.timeout_s)
        return Ending("exit", stage="done", seconds=9.0)


def limits_given(
    patience: AdaptiveTimeLimit | None, recalled: Sequence[Verdict]
) -> list[float]:
    worker = Worker()
    compiler = CheckClient(worker, Limits(500.0, 1 << 30), patience=patience)
    oracle = InductorOracle(compiler, PLANTED)
    for each in recalled:
        oracle.learn(CHAIN, each)
    for _ in range(11):
        oracle.check(CHAIN)
    compiler.with_stock_build().check_candidate(CHAIN)
    return worker.given


def test_time_limit_follows_new_and_journaled_verdicts() -> None:
    assert limits_given(AdaptiveTimeLimit(500.0), []) == [500.0] * 10 + [90.0, 500.0]
    recalled = [verdict(9.0)] * 8
    assert limits_given(AdaptiveTimeLimit(500.0), recalled) == [500.0] * 2 + [
        90.0
    ] * 9 + [500.0]
    assert limits_given(None, []) == [500.0] * 12


def limits_after_failures(
    make: Callable[[CheckClient], InductorOracle | CommandOracle],
) -> list[float]:
    """Ask about a chain that has failed ten times, and about a longer one."""
    worker = Worker()
    compiler = CheckClient(
        worker, Limits(500.0, 1 << 30), patience=AdaptiveTimeLimit(500.0)
    )
    oracle = make(compiler)
    for _ in range(10):
        oracle.learn(CHAIN, FAILED)
    oracle.check(CHAIN)
    oracle.check(LONGER)
    return worker.given


def test_larger_candidate_than_a_failing_one_has_the_baseline_limit() -> None:
    given = limits_after_failures(lambda compiler: InductorOracle(compiler, PLANTED))
    assert given == [90.0, 500.0]
    command = Command("true {}")
    given = limits_after_failures(lambda compiler: CommandOracle(compiler, command))
    assert given == [90.0, 500.0]  # nothing was saved that it could run on


def test_time_limit_applies_up_to_the_smallest_failing_program() -> None:
    patience = AdaptiveTimeLimit(500.0)
    patience.learn(CHAIN, verdict(9.0))
    assert patience.covers(LONGER)
    patience.learn(LONGER, FAILED)
    assert patience.covers(LONGER)
    patience.learn(CHAIN, FAILED)
    assert patience.covers(CHAIN)
    assert not patience.covers(LONGER)
