"""How long an unchanged program is run, and what short minutes leave out."""

from __future__ import annotations

import itertools
import signal

import pytest
from support.doubles import Minutes, TimedServer

from shrinkfx.check.baseline.attempt import BaselineRequest
from shrinkfx.check.baseline.stock import Baseline, find_baseline
from shrinkfx.check.oracle import ENOUGH, CheckClient, Limits
from shrinkfx.errors import BudgetExhausted, NotReproducible
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.protocol.answers import Checked, Ending, Raised
from shrinkfx.protocol.requests import Request

PASSES = Ending("exit", stage="done", answer=Checked())
CRASHES = Ending("signal", signal.SIGSEGV, "run")
ERROR = Raised("ValueError", "no")
RAISES = Ending("exit", stage="compile", answer=ERROR)
CRASH = Signature(Kind.CRASH, Stage.RUN, MEMORY_FAULT)


def seen(
    server: TimedServer, max_runs: int | None = None, notes: list[str] | None = None
) -> Baseline:
    note = (notes if notes is not None else []).append
    asked = CheckClient(server, Limits(600.0, 1 << 30))
    request = BaselineRequest(None, "", note, max_runs, budget=server.minutes)
    return find_baseline(asked, request)


def healthy(server: TimedServer, max_runs: int | None = None) -> NotReproducible:
    with pytest.raises(NotReproducible) as raised:
        seen(server, max_runs)
    return raised.value


@pytest.mark.parametrize(
    ("compile_s", "run_s", "runs"),
    [(300.0, 7.0, 11), (20.0, 7.0, 5), (0.5, 2.0, 5), (30.0, 0.01, 100)],
)
def test_passing_program_is_run_about_as_long_as_its_compilation(
    compile_s: float, run_s: float, runs: int
) -> None:
    told = healthy(TimedServer(PASSES, compile_s=compile_s, run_s=run_s))
    assert told.runs == runs
    is_bounded = runs < 100
    seconds = (runs - 2) * run_s
    said = f"{runs} runs in {seconds:.0f} s:" if is_bounded else "outcome of 100 runs"
    assert said in str(told)
    assert ("for N runs: --baseline-runs N" in str(told)) is is_bounded


def test_runs_are_not_bounded_by_time_with_max_runs() -> None:
    told = healthy(TimedServer(PASSES, compile_s=1.0, run_s=7.0), max_runs=30)
    assert told.runs == 30
    assert "outcome of 30 runs:" in str(told)


def test_failing_program_is_run_until_its_rate_is_known() -> None:
    server = TimedServer(CRASHES, compile_s=1.0, run_s=7.0)
    base = seen(server)
    assert base.rate == 1.0
    assert len(server.asked) == ENOUGH + 1


def test_flaky_failure_within_the_time_bound_is_found() -> None:
    some = itertools.cycle([PASSES, PASSES, CRASHES])
    server = TimedServer(PASSES, compile_s=40.0, run_s=7.0, then=some)
    base = seen(server)
    assert base.rate == pytest.approx(1 / 3, abs=0.05)


def test_time_limit_ends_the_runs_of_a_passing_program() -> None:
    server = TimedServer(PASSES, compile_s=20.0, run_s=7.0, minutes=Minutes(75.0))
    told = healthy(server, max_runs=100)
    assert told.runs == 7
    assert "the time limit allowed no more runs; to allow more:" in str(told)


def test_short_time_limit_skips_optional_baseline_runs() -> None:
    """One run is needed; ten, and a look for other causes, are not."""
    minutes = Minutes(180.0)
    notes: list[str] = []
    server = TimedServer(CRASHES, compile_s=60.0, run_s=5.0, minutes=minutes)
    base = seen(server, notes=notes)
    assert base.rate == 1.0
    assert server.seconds <= 60.0 + minutes.left / 3
    assert minutes.left >= 2 * 60.0 - 10.0
    assert not any(request.options.sanity for request in server.asked)
    assert "the program failed in 1 of 1 runs" in base.warning
    assert any("not enough time left" in note for note in notes)


def test_sufficient_time_limit_keeps_all_baseline_runs() -> None:
    minutes = Minutes(1800.0)
    server = TimedServer(CRASHES, compile_s=60.0, run_s=5.0, minutes=minutes)
    base = seen(server)
    assert base.warning == ""
    assert len(server.asked) == ENOUGH + 1
    assert minutes.kept == 60.0


def test_run_cut_off_by_the_time_limit_is_not_counted() -> None:
    minutes = Minutes(100.0)

    class Slower(TimedServer):
        """Its second run takes longer than any estimate."""

        def ask(self, request: Request) -> Ending:
            self.run_s = 7.0 if not self.asked else 500.0
            return super().ask(request)

    server = Slower(CRASHES, compile_s=20.0, run_s=7.0, minutes=minutes)
    base = seen(server)
    assert base.target.admits(CRASH)
    assert "1 of 1 runs" in base.warning


def test_short_time_limit_compiles_a_compile_error_once() -> None:
    minutes = Minutes(180.0)
    server = TimedServer(RAISES, compile_s=50.0, run_s=5.0, minutes=minutes)
    base = seen(server)
    assert base.target.kind is Kind.COMPILE_ERROR
    assert len(server.asked) == 1


def test_time_limit_in_the_first_run_raises_budget_exhausted() -> None:
    server = TimedServer(PASSES, compile_s=200.0, run_s=5.0, minutes=Minutes(180.0))
    with pytest.raises(BudgetExhausted):
        seen(server)
