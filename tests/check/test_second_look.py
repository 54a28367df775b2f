"""What need not be what ails a program is looked at once more."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from support.doubles import FakeServer

from shrinkfx.check import oracle
from shrinkfx.check.baseline.with_guard_pages import seen_without_guard_pages
from shrinkfx.check.oracle import ENOUGH, CheckClient, InductorOracle, Limits, Meter
from shrinkfx.check.script import ScriptRunner
from shrinkfx.failure.classify import NO_EXCEPTION_TEXT, classify_ending
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.failure.verdict import Outcome
from shrinkfx.protocol.answers import Ending, Raised
from shrinkfx.protocol.choices import Guard
from shrinkfx.protocol.requests import CheckOptions, CheckOriginal, Request
from shrinkfx.testing import chain, whole

BOUNDS = Signature(Kind.ASSERT, Stage.RUN, "index out of bounds")
THREW = "terminate called after throwing an instance of 'c10::Error'\n  what():  "
KEPT = f"terminate called in thread 3 of 16 {THREW[17:]}odd\n(that was thread 3)\n"
SAID = f"{THREW}index out of bounds: 0 <= tmp2 < 128L\n"
ANOTHER = f"{THREW}planted: element 3 is odd\n"
LOST = "terminate called recursively\nterminate called recursively\n"


class Threads:
    """A server whose programs say one thing in many threads, another in one."""

    def __init__(self, many: Ending, one: Ending) -> None:
        self.many, self.one = many, one
        self.asked: list[Request] = []

    def ask(self, request: Request) -> Ending:
        self.asked.append(request)
        return self.one if request.one_thread else self.many


def aborted(log: str, stage: str = "run") -> Ending:
    return Ending(
        "signal", signal.SIGABRT, stage, log=log, seconds=2.0, cpu_seconds=3.0
    )


REQUEST = Request(CheckOriginal())


@pytest.mark.parametrize("log", [LOST, ANOTHER, ANOTHER + LOST])
def test_lost_exception_text_is_recovered_in_a_single_threaded_run(log: str) -> None:
    server = Threads(aborted(log), aborted(SAID))
    ending = oracle.ask_with_retry(server.ask, REQUEST)
    assert BOUNDS.admits(classify_ending(ending).signature)
    assert (ending.seconds, ending.cpu_seconds) == (4.0, 6.0)
    assert [request.one_thread for request in server.asked] == [False, True]


@pytest.mark.parametrize(
    "many",
    [
        aborted(KEPT),
        aborted("double free or corruption"),
        aborted(""),
        Ending("signal", signal.SIGSEGV, "run", log=LOST),
        Ending("exit", 1, "run", log=LOST),
    ],
)
def test_crash_with_a_clear_cause_is_not_rerun_single_threaded(
    many: Ending,
) -> None:
    server = Threads(many, aborted(ANOTHER))
    assert oracle.ask_with_retry(server.ask, REQUEST) == many
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "one",
    [
        Ending("exit", 0, "done"),
        Ending("signal", signal.SIGSEGV, "run"),
        Ending("timeout", 0, "run", log=SAID),
        aborted(LOST),
        aborted("Fatal Python error: Aborted\n"),
        aborted(SAID, "compile"),
        Ending("exit", 0, "run", Raised("RuntimeError", SAID)),
    ],
)
def test_single_threaded_run_with_a_different_outcome_is_ignored(one: Ending) -> None:
    server = Threads(aborted(LOST), one)
    found = classify_ending(oracle.ask_with_retry(server.ask, REQUEST)).signature
    assert found is not None
    assert (found.kind, found.detail) == (Kind.CRASH, NO_EXCEPTION_TEXT)


def test_single_threaded_rerun_uses_the_same_options() -> None:
    server = Threads(aborted(LOST), aborted(SAID))
    compiler = CheckClient(server, Limits(60.0, 1 << 30), CheckOptions(package="p.pt2"))
    assert BOUNDS.admits(compiler.run_input_program()[0].signature)
    assert [request.options.package for request in server.asked] == ["p.pt2"] * 2
    assert compiler.meter.cpu_seconds == 6.0


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> Callable[..., Signature | None]:
    script = tmp_path / "repro.py"
    script.write_text("actual = compiled(x)\n")

    def run(server: Threads, target: Signature | None = None) -> Signature | None:
        runner = ScriptRunner(server, Limits(60.0, 1 << 30), Meter())
        return runner.run([script], fresh=True, target=target).signature

    return run


def test_script_without_an_exception_text_is_rerun_single_threaded(
    run: Callable[..., Signature | None],
) -> None:
    assert BOUNDS.admits(run(Threads(aborted(LOST), aborted(SAID))))


def test_script_with_several_exceptions_is_classified_single_threaded(
    run: Callable[..., Signature | None],
) -> None:
    server = Threads(aborted(ANOTHER), aborted(SAID))
    assert BOUNDS.admits(run(server, BOUNDS))
    assert not BOUNDS.admits(run(server))


def test_script_that_fails_differently_single_threaded_is_not_the_target(
    run: Callable[..., Signature | None],
) -> None:
    for one in (aborted(ANOTHER), aborted(LOST), Ending("exit", 0, "done")):
        assert not BOUNDS.admits(run(Threads(aborted(ANOTHER), one), BOUNDS))


def test_script_with_the_target_failure_runs_once(
    run: Callable[..., Signature | None],
) -> None:
    server = Threads(aborted(SAID), aborted(ANOTHER))
    assert BOUNDS.admits(run(server, BOUNDS))
    assert len(server.asked) == 1


# --- a heap that was overrun

OVERRUN = Signature(Kind.IMA, Stage.RUN, MEMORY_FAULT)
CANDIDATE = whole(chain("x", "relu"))
HANGS = Ending("timeout", stage="run", seconds=60.0, cpu_seconds=1.0)
DIES = Ending("signal", signal.SIGSEGV, "run", seconds=2.0, cpu_seconds=3.0)
PASSES = Ending("exit", stage="done", cpu_seconds=3.0)


def asking(*endings: Ending, side: Guard = Guard.OFF) -> tuple[FakeServer, CheckClient]:
    server = FakeServer(*endings)
    options = CheckOptions(guard_pages=side)
    return server, CheckClient(server, Limits(60.0, 1 << 30), options)


@pytest.mark.parametrize(
    ("then", "outcome"),
    [
        (DIES, Outcome.REPRODUCED),
        (PASSES, Outcome.PASSED),
        (HANGS, Outcome.UNRESOLVED),
    ],
)
def test_hang_after_a_possible_heap_overrun_is_queried_twice(
    then: Ending, outcome: Outcome
) -> None:
    server, client = asking(HANGS, then, PASSES)
    verdict = InductorOracle(client, OVERRUN).check(CANDIDATE)
    assert (verdict.outcome, len(server.asked)) == (outcome, 2)
    # What it takes to fail is learnt by, and what was paid is counted.
    assert verdict.observation.seconds == then.seconds
    assert verdict.observation.cpu_seconds == 1.0 + then.cpu_seconds


@pytest.mark.parametrize(
    ("target", "ending", "side"),
    [
        (OVERRUN, HANGS, Guard.AFTER),
        (OVERRUN, PASSES, Guard.OFF),
        (OVERRUN, Ending("timeout", stage="compile"), Guard.OFF),
        (BOUNDS, HANGS, Guard.OFF),
        (Signature(Kind.CRASH, Stage.COMPILE, MEMORY_FAULT), HANGS, Guard.OFF),
        (Signature(Kind.HANG, Stage.RUN), HANGS, Guard.OFF),
    ],
)
def test_hang_without_a_possible_heap_overrun_is_queried_once(
    target: Signature, ending: Ending, side: Guard
) -> None:
    server, client = asking(ending, DIES, side=side)
    InductorOracle(client, target).check(CANDIDATE)
    assert len(server.asked) == 1


def test_first_hang_without_guard_pages_is_not_counted() -> None:
    server, client = asking(DIES, HANGS, DIES, side=Guard.AFTER)
    seen = seen_without_guard_pages(client, OVERRUN, CANDIDATE)
    assert all(OVERRUN.admits(each.signature) for each in seen)
    assert len(seen) == ENOUGH - 1
    assert len(server.asked) == ENOUGH
    _, client = asking(DIES, HANGS, HANGS, side=Guard.AFTER)
    *_, last = seen_without_guard_pages(client, OVERRUN, CANDIDATE)
    assert last.unresolved == "timeout in run"
