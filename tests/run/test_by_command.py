"""How often a user's command has confirmed a result."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.doubles import asked_of, written

from shrinkfx.check.command import SKIP, Command
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.events import Event, NoteAdded
from shrinkfx.options.options import Options
from shrinkfx.protocol.answers import Ending, Ready
from shrinkfx.protocol.requests import (
    Request,
    RunCommand,
    RunScript,
    SaveCandidate,
    WriteCandidate,
)
from shrinkfx.report.record import ProgramSize, VerifiedRepro
from shrinkfx.report.repro import SAVED
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.result import Result, verify_by_command, write_result
from shrinkfx.testing import chain, whole

BEST = whole(chain("x", "relu"))
COMMAND = Command("./fails.sh {}")
FAILS, PASSES = Ending("exit", 0, "run"), Ending("exit", 1, "run")
SKIPPED, LATE = Ending("exit", SKIP, "run"), Ending("late", stage="run")


class Worker:
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
        return PASSES


def verified(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *runs: Ending
) -> tuple[VerifiedRepro, list[str]]:
    """Verify with a command that says so of the repro, and then of the result."""
    server: Any = Worker([FAILS, *runs])
    notes: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, NoteAdded):
            notes.append(event.text)

    @contextlib.contextmanager
    def bare(*_: object) -> Iterator[Worker]:
        yield server

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
        ([FAILS, PASSES, FAILS], (3, 2)),
        ([FAILS, LATE, FAILS], (2, 2)),
        ([FAILS, SKIPPED, PASSES], (2, 1)),
        ([SKIPPED, LATE, LATE], (0, 0)),
    ],
)
def test_inconclusive_run_of_a_check_command_is_not_counted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    runs: list[Ending],
    counts: tuple[int, int],
) -> None:
    found, notes = verified(tmp_path, monkeypatch, *runs)
    assert (found.runs, found.failed) == counts
    assert found.always_fails == (0 < counts[0] == counts[1])
    told = [note for note in notes if "were inconclusive and are not counted" in note]
    assert len(told) == (counts[0] < 3)
