"""The result of a run: its repro, verified in several ways."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.doubles import (
    PRINTED,
    Arguments,
    FakeServer,
    asked_of,
    context_with,
    written,
)

from shrinkfx.check.client.server import GUARDED_WORKER
from shrinkfx.check.command import SKIP, Command
from shrinkfx.check.oracle import ENOUGH, CheckClient, Limits
from shrinkfx.errors import BudgetExhausted
from shrinkfx.events import Event, NoteAdded
from shrinkfx.failure.readers.memory import MemoryReport
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.options.options import Options
from shrinkfx.protocol.answers import Ending, Ready
from shrinkfx.protocol.choices import SANITIZERS, Backend, Guard
from shrinkfx.protocol.requests import (
    CheckOptions,
    Request,
    RunCommand,
    RunScript,
    SaveCandidate,
    WriteCandidate,
)
from shrinkfx.report.record import Memory, ProgramSize, RunRecord, VerifiedRepro
from shrinkfx.report.repro import SAVED
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.observe import choose_guard_pages
from shrinkfx.run.verification import (
    Result,
    analyze_memory_error,
    by_first_names,
    verify_by_command,
    verify_result,
    write_result,
)
from shrinkfx.testing import ROWS, chain, listed, listing, whole

# How often a repro is run, and with what around it.


BEST = whole(chain("x", "relu"))
OVERRUN = Signature(Kind.IMA, Stage.RUN, MEMORY_FAULT)
DIES = Ending("signal", signal.SIGABRT, log="double free or corruption\n")
PASSES = Ending("exit", log="no longer fails\n")
LATE = Ending("late", stage="run")
LOOP, CHECKED = "for _ in range(100):", 'os.environ["MALLOC_CHECK_"]'
FAULT = Memory(without_guards="ima in run: double free (10 of 10 runs)")
AT_NULL = replace(
    FAULT, report=MemoryReport("SEGV", "read", 4, "cpp_fused_0", 9, "", address="0x8")
)
"""An error that no layout of memory hides."""


def printed(asked: Arguments) -> Ending:
    """Save and print, as the worker does."""
    Path(asked["path"]).write_bytes(b"program")
    Path(asked["data"]).write_bytes(b"values")
    return Ending("exit", answer=PRINTED)


def verified(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    fails: Callable[[Guard, int, str], bool | None],
    pages: Guard = Guard.AFTER,
    note: Callable[[str], None] = lambda _: None,
    memory: Memory | None = None,
    rate: float = 1.0,
    paddings: list[int] | None = None,
    target: Signature = OVERRUN,
    dies: Ending | Iterator[Ending] = DIES,
    ready: Ready | None = None,
    reference: bool = True,
) -> tuple[RunRecord, list[Guard]]:
    """Verify; ``fails`` tells of each run with these pages whether that text does.

    None has the run end without an answer.
    """
    runs: list[Guard] = []

    def answer(asked: Arguments) -> Ending:
        text = Path(asked["path"]).read_text()
        side = Guard(asked.get("guard_pages", Guard.OFF))
        runs.append(side)
        if paddings is not None:
            paddings.append(asked["padding"])
        found = fails(side, runs.count(side), text)
        line = text[: text.find("torch.testing")].count("\n") + 1
        fatal = dies if isinstance(dies, Ending) else next(dies)
        fatal = replace(fatal, log=fatal.log.replace("LINE", str(line)))
        return LATE if found is None else fatal if found else PASSES

    def bare(_: RunContext, backend: str, worker: Sequence[str]) -> FakeServer:
        def guarded_answer(asked: Mapping[str, Any]) -> Ending:
            is_guarded = asked.get("guard_pages", Guard.OFF) != Guard.OFF
            assert not is_guarded or worker == GUARDED_WORKER
            return answer(asked)

        return FakeServer(guarded_answer)

    monkeypatch.setattr(RunContext, "bare_server", bare)
    server: Any = FakeServer(printed)
    server.ready = ready or Ready()

    def listen(event: Event) -> None:
        if isinstance(event, NoteAdded):
            note(event.text)

    context = RunContext(Options(Path("model.pt2")), folder, listen)
    options = CheckOptions(guard_pages=pages, reference=reference)
    client = CheckClient(server, Limits(9.0, 1 << 30), options)
    context.worker = server
    subject = Subject(context, BEST, ProgramSize(1), client, target, rate)
    result = Result(
        *(subject, BEST, "program", target), rate=rate, memory=memory or FAULT
    )
    return verify_result(result, write_result(result)), runs


def test_repro_of_a_memory_error_is_run_in_ten_new_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, runs = verified(tmp_path, monkeypatch, lambda *_: True)
    assert runs == [Guard.OFF] * 10
    assert (found.verified.failed, found.memory.guard) == (10, Guard.OFF)
    text = (tmp_path / "repro.py").read_text()
    assert "# Fails:   in 10 of 10 runs, each in a new process" in text
    assert "for _ in range(" not in text


ASSERTS = Ending("signal", signal.SIGABRT, log="index out of bounds: 0 <= tmp4 < 9L\n")
OUTSIDE = Signature(Kind.ASSERT, Stage.RUN, "index out of bounds")


@pytest.mark.parametrize("needs", [False, True])
@pytest.mark.parametrize(("target", "dies"), [(OVERRUN, DIES), (OUTSIDE, ASSERTS)])
def test_variables_of_a_gpu_stay_only_if_the_failure_needs_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: Signature,
    dies: Ending,
    needs: bool,
) -> None:
    """A memory fault keeps them: they make it deterministic."""
    name = "CUDA_LAUNCH_BLOCKING"
    ready = Ready(for_cuda=True, environment={name: "1"})
    found, _ = verified(
        *(tmp_path, monkeypatch, lambda _, __, text: not needs or name in text),
        pages=Guard.OFF,
        memory=Memory(),
        target=target,
        dies=dies,
        ready=ready,
    )
    assert found.verified.always_fails
    text = (tmp_path / "repro.py").read_text()
    assert (name in text) == (needs or target is OVERRUN)


@pytest.mark.parametrize("runs_in_eager", [True, False])
def test_repro_runs_eager_if_only_the_exported_program_fails_in_eager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs_in_eager: bool
) -> None:
    eager = "expected = model("
    found, _ = verified(
        *(
            tmp_path,
            monkeypatch,
            lambda _, __, text: runs_in_eager or eager not in text,
        ),
        pages=Guard.OFF,
        memory=Memory(),
        target=OUTSIDE,
        dies=ASSERTS,
        reference=False,
    )
    assert found.verified.always_fails
    assert found.conditions.reference is runs_in_eager
    text = (tmp_path / "repro.py").read_text()
    assert (eager in text) == runs_in_eager


DIFFERS = """Traceback (most recent call last):
  File "/x/repro.py", line LINE, in <module>
AssertionError: Scalars are not equal!

Expected 0 but got {}.
"""


@pytest.mark.parametrize("values", [(7, 7, 7), (7, 8, 7)])
def test_record_states_whether_wrong_values_differ_from_run_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: tuple[int, ...]
) -> None:
    found, _ = verified(
        *(tmp_path, monkeypatch, lambda *_: True),
        pages=Guard.OFF,
        memory=Memory(),
        target=Signature(Kind.MISMATCH, Stage.COMPARE, "values"),
        dies=iter([Ending("exit", 1, log=DIFFERS.format(n)) for n in values]),
    )
    assert found.verified.failed == 3
    assert found.verified.varies == (len(set(values)) > 1)


def test_runs_of_a_flaky_failure_are_independent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rate, different in ((0.5, 3), (1.0, 1)):
        paddings: list[int] = []
        found, _ = verified(
            *(tmp_path, monkeypatch, lambda *_: True),
            memory=AT_NULL,
            rate=rate,
            paddings=paddings,
        )
        assert found.verified.failed == len(paddings) == 3
        assert len(set(paddings)) == different


def test_repro_that_fails_in_some_processes_gets_a_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, runs = verified(
        tmp_path, monkeypatch, lambda _, n, text: LOOP in text or n < 5
    )
    assert runs == [Guard.OFF] * 15  # the fifth passes; then ten with the loop
    assert (found.verified.runs, found.verified.failed) == (10, 10)
    text = (tmp_path / "repro.py").read_text()
    assert "in 10 of 10 runs" in text
    assert "MALLOC_CHECK_" not in text


def test_repro_whose_loop_passes_enables_heap_checks_of_glibc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = verified(
        tmp_path, monkeypatch, lambda _, n, text: CHECKED in text or n < 5
    )
    assert (found.verified.runs, found.verified.failed) == (10, 10)
    assert found.memory.guard is Guard.OFF
    text = (tmp_path / "repro.py").read_text()
    assert text.index(CHECKED) < text.index("os.execv(") < text.index("import torch")


def test_repro_that_stays_flaky_states_its_rate_and_is_inconclusive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = verified(tmp_path, monkeypatch, lambda _, n, __: n % 2 == 1, Guard.OFF)
    assert (found.verified.runs, found.verified.failed) == (10, 5)
    text = (tmp_path / "repro.py").read_text()
    assert "# Fails:   in 5 of 10 runs" in text
    assert "raise SystemExit(125)" in text
    plain = text.index("raise SystemExit(125)")
    assert text.index("libasan", plain - 300) < plain < text.rindex("no longer fails")


@pytest.mark.parametrize("failing", [0, 1])
def test_flaky_repro_is_verified_with_guard_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    found, runs = verified(
        tmp_path, monkeypatch, lambda side, n, _: side != Guard.OFF or n <= failing
    )
    assert runs[-3:] == [Guard.AFTER] * 3
    assert (found.verified.runs, found.verified.failed) == (3, 3)
    assert found.memory.guard is Guard.AFTER
    assert f"fails in {failing} of 2 runs" in found.memory.without_guards
    text = (tmp_path / "repro.py").read_text().replace("#", "")
    assert "Verified with guard pages" in " ".join(text.split())
    assert found.verified.written.how == "source, seeded"


@pytest.mark.parametrize(
    ("silent", "runs"),
    [
        ({1}, 3),
        ({2, 3}, 2),
        ({1, 2, 3, 4, 5, 6}, 2),  # in none of three forms
    ],
)
def test_repro_run_without_an_answer_twice_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: set[int], runs: int
) -> None:
    notes: list[str] = []
    asked = tmp_path, monkeypatch, lambda _, n, __: None if n in silent else True
    found, _ = verified(*asked, Guard.OFF, notes.append, AT_NULL)
    assert (found.verified.runs, found.verified.failed) == (runs, runs)
    assert found.verified.always_fails
    told = [note for note in notes if "were inconclusive and are not counted" in note]
    expected = "1 of 3 runs of the repro were inconclusive"
    assert [note.startswith(expected) for note in told] == [True] * (3 - runs)


def test_repro_of_a_listing_has_short_input_names() -> None:
    program = listing(
        """
        n0 = torch.ops.aten.add.Tensor(features_table_weight, ids)
        return n0
        """,
        features_table_weight=ROWS,
        ids=ROWS,
    )
    candidate = listed(program)
    named = by_first_names(candidate, PRINTED)
    assert named == {"features_table_weight": "x", "ids": "y"}
    anonymous = by_first_names(candidate, replace(PRINTED, renamed={"y": "z"}))
    assert anonymous == {"features_table_weight": "x", "ids": "z"}
    graph = whole(chain("x", "relu"))
    assert by_first_names(graph, PRINTED) == PRINTED.renamed


# What is found out about a result that is a memory error.


BEST_ERROR = whole(chain("x", "relu", "tanh"))
PASSES_ERROR = Ending("exit", stage="done")
CRASHES = Ending("signal", signal.SIGABRT, "run", log="double free or corruption\n")
REPORT = """\
==1==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x1 at pc 0x2 bp 0x3
READ of size 64 at 0x1 thread T0
    #0 0x4 in cpp_fused_mean_0 inductor/kernel.cpp:27
"""
SANITIZED = Ending("exit", 1, "run", log=REPORT)

ErrorArguments = Mapping[str, Any]


class Worker:
    def __init__(self, answer: Callable[[ErrorArguments, int], Ending]) -> None:
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
    subject = Subject(context, BEST_ERROR, ProgramSize(1), client, target, 1.0)
    memory = analyze_memory_error(Result(subject, BEST_ERROR, "program", target))
    return memory, [event.text for event in events if isinstance(event, NoteAdded)]


def sanitized_or(ending: Ending) -> Callable[[ErrorArguments, int], Ending]:
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

    def answer(asked: ErrorArguments, _: int) -> Ending:
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
    worker = Worker(sanitized_or(PASSES_ERROR))
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
    worker = Worker(sanitized_or(PASSES_ERROR))
    assert examined(worker, target, side) == (Memory(), [])
    assert not worker.asked


def test_sanitizer_that_exceeds_the_minutes_does_not_end_the_run() -> None:
    """It takes longer than a check, and what is known without it is written."""

    def answer(asked: ErrorArguments, _: int) -> Ending:
        if asked.get("sanitize"):
            raise BudgetExhausted("time limit reached")
        return PASSES_ERROR

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


# How often a user's command has confirmed a result.


COMMAND = Command("./fails.sh {}")
FAILS, PASSES_COMMAND = Ending("exit", 0, "run"), Ending("exit", 1, "run")
SKIPPED, LATE_COMMAND = Ending("exit", SKIP, "run"), Ending("late", stage="run")


class CommandWorker:
    """Saves programs, and runs the command on them as it is told."""

    ready = Ready()

    def __init__(self, runs: Sequence[Ending]) -> None:
        self._runs = iter(runs)

    def ask(self, request: Request) -> Ending:
        match request.task:
            case RunScript() as task:
                (Path(task.cwd) / SAVED).touch()
            case SaveCandidate() as task:
                Path(task.inputs).touch()
            case WriteCandidate():
                return written(asked_of(request), BEST)
            case RunCommand():
                return next(self._runs)
        return PASSES_COMMAND


def verified_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *runs: Ending
) -> tuple[VerifiedRepro, list[str]]:
    """Verify with a command that says so of the repro, and then of the result."""
    server: Any = CommandWorker([FAILS, *runs])
    notes: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, NoteAdded):
            notes.append(event.text)

    def bare(*_: object) -> Any:
        return server

    monkeypatch.setattr(RunContext, "bare_server", bare)
    context = RunContext(Options(Path("model.pt2"), check=COMMAND.text), folder, listen)
    client = CheckClient(server, Limits(9.0, 1 << 30))
    context.worker = server
    subject = Subject(
        context, BEST, ProgramSize(1), client, COMMAND.target, 1.0, COMMAND
    )
    result = Result(subject, BEST, "program", COMMAND.target)
    return verify_by_command(result, write_result(result)).verified, notes


@pytest.mark.parametrize(
    ("runs", "counts"),
    [
        ([FAILS, FAILS, FAILS], (3, 3)),
        ([FAILS, PASSES_COMMAND, FAILS], (3, 2)),
        ([FAILS, LATE_COMMAND, FAILS], (2, 2)),
        ([FAILS, SKIPPED, PASSES_COMMAND], (2, 1)),
        ([SKIPPED, LATE_COMMAND, LATE_COMMAND], (0, 0)),
    ],
)
def test_inconclusive_run_of_a_check_command_is_not_counted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    runs: list[Ending],
    counts: tuple[int, int],
) -> None:
    found, notes = verified_command(tmp_path, monkeypatch, *runs)
    assert (found.runs, found.failed) == counts
    assert found.always_fails == (0 < counts[0] == counts[1])
    told = [note for note in notes if "were inconclusive and are not counted" in note]
    assert len(told) == (counts[0] < 3)
