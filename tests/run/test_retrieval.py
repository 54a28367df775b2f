"""A candidate that an earlier run has met is seen again as that run saw it."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterable

from shrinkfx.check.oracle import Compiler, Limits, runs_to_be_sure
from shrinkfx.failure.signature import MEMORY, Kind, Signature, Stage
from shrinkfx.program.messages import Ending, Request
from shrinkfx.run.retrieval import see_again
from shrinkfx.testing import chain, whole

CANDIDATE = whole(chain("x", "relu"))
PASSES = Ending("exit", stage="done")
CRASHES = Ending("signal", signal.SIGSEGV, "run")
DIFFERS = Ending(
    "exit", stage="done", answer={"difference": {"what": "values", "text": "wrong"}}
)
CRASH = Signature(Kind.CRASH, Stage.RUN, MEMORY)


class Worker:
    """Gives one ending after the other, of one run each."""

    def __init__(self, endings: Iterable[Ending]) -> None:
        self._endings = iter(endings)
        self.asked: list[Request] = []

    def ask(self, request: Request) -> Ending:
        self.asked.append(request)
        return next(self._endings)


def compiler(worker: Worker) -> Compiler:
    return Compiler(worker, Limits(10.0, 1 << 30))


def test_flaky_by_catch_is_found_behind_the_target_with_its_rate() -> None:
    turns = itertools.cycle([DIFFERS, PASSES, DIFFERS, CRASHES])
    seen, rate = see_again(compiler(Worker(turns)), CANDIDATE, CRASH, 0.3)
    assert CRASH.admits(seen.signature)
    assert rate == 0.25


def test_candidate_is_run_as_often_as_its_run_did_from_one_package() -> None:
    worker = Worker(itertools.repeat(PASSES))
    seen, _ = see_again(compiler(worker), CANDIDATE, CRASH, 0.3)
    assert seen.signature is None
    assert len(worker.asked) == runs_to_be_sure(0.3)
    assert len({request.arguments["package"] for request in worker.asked}) == 1


def test_candidate_that_only_fails_otherwise_shows_how() -> None:
    turns = itertools.cycle([PASSES, DIFFERS])
    seen, rate = see_again(compiler(Worker(turns)), CANDIDATE, CRASH, 0.5)
    assert seen.signature is not None
    assert seen.signature.kind is Kind.MISMATCH
    assert rate == 0.5


def test_candidate_of_a_steady_failure_is_run_once() -> None:
    worker = Worker([CRASHES])
    seen, rate = see_again(compiler(worker), CANDIDATE, CRASH, 1.0)
    assert CRASH.admits(seen.signature)
    assert (rate, len(worker.asked)) == (1.0, 1)
