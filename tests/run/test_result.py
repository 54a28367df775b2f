"""How often a repro is run, and with what around it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.doubles import PRINTED, Arguments, FakeServer

from shrinkfx.check.client.server import GUARDED_WORKER
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.events import Event, NoteAdded
from shrinkfx.failure.readers.memory import MemoryReport
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.options.options import Options
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.choices import Guard
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.report.record import Memory, ProgramSize, RunRecord
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.result import Result, by_first_names, verify_result, write_result
from shrinkfx.testing import ROWS, chain, listed, listing, whole

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
        return LATE if found is None else DIES if found else PASSES

    @contextlib.contextmanager
    def bare(
        _: RunContext, backend: str, worker: Sequence[str]
    ) -> Iterator[FakeServer]:
        server = FakeServer(answer)
        yield server
        sides = {asked.get("guard_pages", Guard.OFF) for asked in server.arguments}
        assert sides == {Guard.OFF} or worker == GUARDED_WORKER

    monkeypatch.setattr(RunContext, "bare_server", bare)
    server: Any = FakeServer(printed)

    def listen(event: Event) -> None:
        if isinstance(event, NoteAdded):
            note(event.text)

    context = RunContext(Options(Path("model.pt2")), folder, listen)
    client = CheckClient(server, Limits(9.0, 1 << 30), CheckOptions(guard_pages=pages))
    context.worker = server
    subject = Subject(context, BEST, ProgramSize(1), client, OVERRUN, rate)
    result = Result(
        *(subject, BEST, "program", OVERRUN), rate=rate, memory=memory or FAULT
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
