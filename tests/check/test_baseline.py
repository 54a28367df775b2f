"""What the original does, and how surely that is known."""

from __future__ import annotations

import itertools
import random
import signal
from collections.abc import Iterable

import pytest

from shrinkfx.check.baseline import Baseline, baseline
from shrinkfx.check.oracle import (
    MISSED,
    Compiler,
    Limits,
    RepeatedOracle,
    make_oracle,
    runs_to_be_sure,
)
from shrinkfx.errors import NotReproducible
from shrinkfx.failure.signature import MEMORY, Kind, Signature, Stage
from shrinkfx.failure.verdict import Outcome
from shrinkfx.program.messages import Ending, Request, Task
from shrinkfx.testing import chain, whole

PASSES = Ending("exit", stage="done", answer={"values_skipped": 0})
SKIPS = Ending("exit", stage="done", answer={"values_skipped": 4})
CRASHES = Ending("signal", signal.SIGSEGV, "run")
DIFFERS = Ending(
    "exit", stage="done", answer={"difference": {"what": "values", "text": "wrong"}}
)
REFUSES = Ending(
    "exit",
    stage="run",
    answer={
        "error": {
            "type": "RuntimeError",
            "message": "input_handles[0]: unmatched dim value at 0",
        }
    },
)
RAISES = Ending(
    "exit",
    stage="compile",
    answer={"error": {"type": "ValueError", "message": "no"}},
)
CRASH = Signature(Kind.CRASH, Stage.RUN, MEMORY)


class FakeServer:
    """Answers with one ending after the other; the last one for ever."""

    def __init__(self, *endings: Ending, then: Iterable[Ending] = ()) -> None:
        self._endings = itertools.chain(endings, then, itertools.repeat(endings[-1]))
        self.asked: list[Request] = []

    def ask(self, request: Request) -> Ending:
        self.asked.append(request)
        return next(self._endings)


def compiler(server: FakeServer) -> Compiler:
    return Compiler(server, Limits(10.0, 1 << 30))


def found(
    server: FakeServer, until: str | None = None, match: str = "", max_runs: int = 100
) -> tuple[Baseline, list[str]]:
    notes: list[str] = []
    return baseline(compiler(server), until, match, max_runs, notes.append), notes


def test_steady_failure_takes_one_fresh_run_and_two_forks() -> None:
    server = FakeServer(RAISES)
    base, _ = found(server)
    assert base.target.kind is Kind.COMPILE_ERROR
    assert base.rate == 1.0
    assert [request.fresh for request in server.asked] == [True, False, False]


def test_program_that_keeps_state_is_called_until_it_fails() -> None:
    server = FakeServer(*[PASSES] * 4, DIFFERS)
    notes: list[str] = []
    base = baseline(compiler(server), None, "", 100, notes.append, 10)
    assert base.target.kind is Kind.MISMATCH
    assert (base.calls, base.rate) == (3, 1.0)
    calls = [request.arguments.get("calls", 1) for request in server.asked]
    assert calls == [1, 1, 1, 2, 3, 3, 3, 3, 3]
    assert "call 3 of a run fails" in notes


def test_program_without_state_is_called_once_in_a_run() -> None:
    server = FakeServer(PASSES)
    with pytest.raises(NotReproducible):
        found(server, max_runs=5)
    assert {request.arguments.get("calls", 1) for request in server.asked} == {1}


def test_program_that_fails_at_once_is_not_called_again() -> None:
    base = baseline(compiler(FakeServer(DIFFERS)), None, "", 100, lambda _: None, 10)
    assert base.calls == 1


def test_failure_at_run_time_has_its_inputs_checked_once() -> None:
    server = FakeServer(CRASHES, CRASHES, CRASHES, REFUSES)
    _, notes = found(server)
    assert len(server.asked) == 4
    assert server.asked[-1].arguments["sanity"]
    assert any("refuses its inputs" in note for note in notes)


def test_program_that_passes_is_run_as_often_as_allowed_and_reported() -> None:
    server = FakeServer(PASSES)
    with pytest.raises(NotReproducible, match="what 20 runs did") as raised:
        found(server, max_runs=20)
    assert raised.value.seen == ["passes: the same result as eager"]
    assert "--inputs" in str(raised.value)
    assert len(server.asked) == 20


def test_other_kind_of_failure_is_named_with_the_option_that_takes_it() -> None:
    with pytest.raises(NotReproducible, match="--until compile-error"):
        found(FakeServer(RAISES), until="assert")


def test_failure_in_some_runs_is_found_with_its_rate() -> None:
    draw = random.Random(0)
    some = (CRASHES if draw.random() < 0.3 else PASSES for _ in itertools.count())
    server = FakeServer(PASSES, then=some)
    base, notes = found(server)
    assert base.target.admits(CRASH)
    assert 0.1 < base.rate < 0.6
    assert any(note.startswith("flaky") for note in notes)


def test_runs_for_a_rate_compile_once() -> None:
    server = FakeServer(PASSES, CRASHES, PASSES)
    found(server, max_runs=10)
    packages = {r.arguments.get("package") for r in server.asked[3:]}
    assert len(packages) == 1
    assert None not in packages


def test_match_chooses_among_failures() -> None:
    with pytest.raises(NotReproducible):
        found(FakeServer(RAISES), match="something else")


def test_random_values_are_compared_under_eagers_random_numbers() -> None:
    server = FakeServer(SKIPS, DIFFERS)
    base, _ = found(server)
    assert base.fallback_random
    assert base.target.kind is Kind.MISMATCH
    assert all(r.arguments["fallback_random"] for r in server.asked[1:4])


def test_random_values_do_not_matter_to_an_assertion() -> None:
    server = FakeServer(SKIPS, CRASHES, SKIPS)
    base, _ = found(server, until="crash", max_runs=6)
    assert not base.fallback_random
    assert not any(r.arguments.get("fallback_random") for r in server.asked)


@pytest.mark.parametrize("rate", [0.9, 0.3, 0.05])
def test_runs_to_be_sure_keep_their_promise(rate: float) -> None:
    runs = runs_to_be_sure(rate)
    assert (1 - rate / 2) ** runs <= MISSED
    assert (1 - rate / 2) ** (runs - 1) > MISSED


def test_steady_failure_is_asked_about_once() -> None:
    server = FakeServer(PASSES)
    oracle = make_oracle(compiler(server), CRASH, 1.0)
    assert oracle.check(whole(chain("x", "a"))).outcome is Outcome.PASSED
    assert len(server.asked) == 1


def test_flaky_candidate_is_run_until_it_fails() -> None:
    server = FakeServer(PASSES, PASSES, CRASHES)
    verdict = RepeatedOracle(compiler(server), CRASH, 0.3).check(whole(chain("x", "a")))
    assert verdict.reproduced
    assert len(server.asked) == 3
    assert {r.task for r in server.asked} == {Task.CANDIDATE}


def test_flaky_candidate_passes_only_after_all_its_runs() -> None:
    server = FakeServer(PASSES)
    verdict = RepeatedOracle(compiler(server), CRASH, 0.3).check(whole(chain("x", "a")))
    assert verdict.outcome is Outcome.PASSED
    assert len(server.asked) == runs_to_be_sure(0.3)


def test_flaky_candidate_that_does_not_compile_is_asked_about_once() -> None:
    server = FakeServer(RAISES)
    RepeatedOracle(compiler(server), CRASH, 0.3).check(whole(chain("x", "a")))
    assert len(server.asked) == 1
