"""What is found out about a result that is a memory error."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.doubles import asked_of, context_with

from shrinkfx.check.oracle import ENOUGH, CheckClient, Limits
from shrinkfx.errors import BudgetExhausted
from shrinkfx.events import Event, NoteAdded
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.options.options import Options
from shrinkfx.protocol.answers import Ending, Ready
from shrinkfx.protocol.choices import SANITIZERS, Backend, Guard
from shrinkfx.protocol.requests import CheckOptions, Request
from shrinkfx.report.record import Memory, ProgramSize
from shrinkfx.run.context import Subject
from shrinkfx.run.observe import choose_guard_pages
from shrinkfx.run.result import Result, analyze_memory_error
from shrinkfx.testing import chain, whole

BEST = whole(chain("x", "relu", "tanh"))
OVERRUN = Signature(Kind.IMA, Stage.RUN, MEMORY_FAULT)
PASSES = Ending("exit", stage="done")
CRASHES = Ending("signal", signal.SIGABRT, "run", log="double free or corruption\n")
REPORT = """\
==1==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x1 at pc 0x2 bp 0x3
READ of size 64 at 0x1 thread T0
    #0 0x4 in cpp_fused_mean_0 inductor/kernel.cpp:27
"""
SANITIZED = Ending("exit", 1, "run", log=REPORT)

Arguments = Mapping[str, Any]


class Worker:
    def __init__(self, answer: Callable[[Arguments, int], Ending]) -> None:
        self._answer = answer
        self.asked: list[Request] = []

    def ask(self, request: Request) -> Ending:
        self.asked.append(request)
        return self._answer(asked_of(request), len(self.asked))


def examined(
    worker: Worker,
    target: Signature = OVERRUN,
    side: Guard | None = Guard.BEFORE,
    seconds: float | None = None,
    *,
    on_gpu: bool = False,
) -> tuple[Memory, list[str]]:
    events: list[Event] = []
    server = SimpleNamespace(ready=Ready(backend=Backend.AOTI, for_cuda=on_gpu))
    options = Options(Path("model.pt2"))
    context = context_with(server, options, Path("out"), events.append)
    context.budget.max_seconds = seconds
    context.budget.clock = lambda: context.budget.started + len(worker.asked)
    context.budget.record_wait(1.0)  # as each question does
    checks = CheckOptions(guard_pages=side or Guard.OFF)
    client = CheckClient(worker, Limits(10.0, 1 << 30), checks)
    subject = Subject(context, BEST, ProgramSize(1), client, target, 1.0)
    memory = analyze_memory_error(Result(subject, BEST, "program", target))
    return memory, [event.text for event in events if isinstance(event, NoteAdded)]


def sanitized_or(ending: Ending) -> Callable[[Arguments, int], Ending]:
    return lambda asked, _: SANITIZED if asked.get("sanitize") else ending


ON_GPU = """\
========= Invalid __global__ read of size 4 bytes
=========     at triton_poi_fused_add_0+0x1b0 in c7x2.py:33
=========     by thread (96,0,0) in block (6,0,0)
=========     Access at 0x79fd33fd0980 is out of bounds
"""


@pytest.mark.parametrize("side", [Guard.AFTER, Guard.INITCHECK, None])
def test_result_on_a_gpu_is_run_under_compute_sanitizer(side: Guard | None) -> None:
    """Also where it fails without guard pages: it names the line."""
    tools = []

    def answer(asked: Arguments, _: int) -> Ending:
        tool = asked.get("guard_pages", Guard.OFF)
        if tool not in SANITIZERS:
            return CRASHES
        assert not asked.get("sanitize")
        tools.append(tool)
        return Ending("exit", 1, "run", log=ON_GPU)

    memory, notes = examined(Worker(answer), side=side, on_gpu=True)
    assert tools == [Guard.INITCHECK if side is Guard.INITCHECK else Guard.MEMCHECK]
    assert memory.report is not None
    assert (memory.report.kernel, memory.report.line) == ("triton_poi_fused_add_0", 33)
    assert notes[-1].startswith("compute-sanitizer: global out of bounds: read of 4 ")


def test_refusal_of_compute_sanitizer_is_reported_and_the_run_continues() -> None:
    log = "========= Error: Device not supported. See the documentation\n"
    worker = Worker(lambda *_: Ending("exit", 1, "start", log=log))
    memory, notes = examined(worker, side=None, on_gpu=True)
    assert memory.report is None
    assert memory.no_report.startswith(
        "compute-sanitizer refuses: Device not supported"
    )
    assert notes[-1] == f"compute-sanitizer: {memory.no_report}"


def test_passing_result_needs_its_guard_pages() -> None:
    worker = Worker(sanitized_or(PASSES))
    memory, notes = examined(worker)
    assert memory.guard is Guard.BEFORE
    assert memory.without_guards == "passes: the same result as eager (1 of 1 runs)"
    assert memory.report is not None
    assert (memory.report.kernel, memory.report.line) == ("cpp_fused_mean_0", 27)
    assert "does not fail" in notes[0]
    assert worker.asked[-1].options.guard_pages is Guard.OFF
    assert worker.asked[-1].fresh


def test_result_that_fails_without_guard_pages_does_not_need_them() -> None:
    worker = Worker(sanitized_or(CRASHES))
    memory, _ = examined(worker)
    assert memory.guard is Guard.OFF
    assert f"({ENOUGH} of {ENOUGH} runs)" in memory.without_guards
    assert len(worker.asked) == ENOUGH + 1


@pytest.mark.parametrize(
    ("target", "side"),
    [
        (OVERRUN, None),
        (Signature(Kind.CRASH, Stage.RUN, "SIGABRT"), Guard.AFTER),
        (Signature(Kind.CRASH, Stage.COMPILE, MEMORY_FAULT), Guard.AFTER),
    ],
)
def test_no_query_is_made_if_guard_pages_are_irrelevant(
    target: Signature, side: Guard | None
) -> None:
    worker = Worker(sanitized_or(PASSES))
    assert examined(worker, target, side) == (Memory(), [])
    assert not worker.asked


def test_sanitizer_that_exceeds_the_minutes_does_not_end_the_run() -> None:
    """It takes longer than a check, and what is known without it is written."""

    def answer(asked: Arguments, _: int) -> Ending:
        if asked.get("sanitize"):
            raise BudgetExhausted("time limit reached")
        return PASSES

    memory, notes = examined(Worker(answer))
    assert memory.guard is Guard.BEFORE
    assert memory.without_guards == "passes: the same result as eager (1 of 1 runs)"
    assert (memory.report, memory.no_report) == (
        None,
        ("not run: not enough time was left"),
    )
    assert notes[-1] == "AddressSanitizer: not run: not enough time was left"


@pytest.mark.parametrize(
    ("ready", "asked", "tried", "said"),
    [
        (Ready(for_cuda=True), {"sanitizer": "racecheck"}, {"racecheck"}, ""),
        (Ready(for_cuda=True), {"guard_pages": "on"}, {"after", "before"}, ""),
        (
            Ready(),
            {"sanitizer": "memcheck"},
            set(),
            ("--sanitizer only works on a GPU: continuing without it"),
        ),
        (
            Ready(for_cuda=True, no_guard_pages="red zones cannot be built: no nvcc"),
            {"guard_pages": "on"},
            set(),
            "guard pages are not available: red zones cannot be built: no nvcc",
        ),
        (Ready(for_cuda=True, backend="interpreter"), {"guard_pages": "on"}, set(), ""),
    ],
)
def test_guard_page_settings_depend_on_device_and_options(
    ready: Ready, asked: dict[str, str], tried: set[str], said: str
) -> None:
    events: list[Event] = []
    options = Options(Path("model.pt2"), until="nan", **asked)  # type: ignore[arg-type]
    server = SimpleNamespace(ready=ready)
    context = context_with(server, options, Path("out"), events.append)
    settings = choose_guard_pages(context)
    assert {str(setting.pages) for setting in settings} == tried
    notes = [event.text for event in events if isinstance(event, NoteAdded)]
    assert any(said in note for note in notes) or not said
