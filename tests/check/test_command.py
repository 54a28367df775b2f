"""A user's own test: exit statuses to verdicts, and what may go wrong."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from support.doubles import Minutes

from shrinkfx.check.client.server import Server
from shrinkfx.check.command import Command, CommandOracle, require_command_failure
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.errors import NotReproducible, UsageError
from shrinkfx.failure.verdict import Outcome
from shrinkfx.protocol.answers import Ending, Invalid, Raised
from shrinkfx.protocol.requests import Request, RunCommand, SaveCandidate
from shrinkfx.testing import chain, whole

CANDIDATE = whole(chain("x", "relu", "tanh"))
COMMAND = Command.parse("./fails.sh --quiet {} {inputs}")
MISSING = Raised("FileNotFoundError", "no ./fails.sh")


class Saves:
    """A server that saves candidates and answers commands as told."""

    def __init__(
        self, *answers: Ending, save: Callable[[Request], Ending] | None = None
    ) -> None:
        self.answers = list(answers)
        self.asked: list[Request] = []
        self._save = save or self._write

    def ask(self, request: Request) -> Ending:
        self.asked.append(request)
        if isinstance(request.task, SaveCandidate):
            return self._save(request)
        return self.answers.pop(0)

    @staticmethod
    def _write(request: Request) -> Ending:
        assert isinstance(request.task, SaveCandidate)
        for name in (request.task.path, request.task.inputs):
            Path(name).write_bytes(b"saved")
        return Ending("exit", stage="done", seconds=1.0, waited_s=0.25)


def exits(code: int) -> Ending:
    return Ending("exit", code, "run", seconds=2.0, waited_s=0.5)


def compiler(server: Saves) -> CheckClient:
    return CheckClient(server, Limits(10.0, 1 << 30))


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        (exits(0), Outcome.REPRODUCED),
        (exits(1), Outcome.PASSED),
        (exits(125), Outcome.UNRESOLVED),
        (Ending("signal", signal.SIGSEGV, "run"), Outcome.PASSED),
        (Ending("timeout", stage="run"), Outcome.UNRESOLVED),
        (Ending("memory", stage="run"), Outcome.UNRESOLVED),
        (Ending("exit", 1, "run", MISSING), Outcome.INVALID),
    ],
)
def test_exit_status_of_the_command_decides_the_verdict(
    ending: Ending, outcome: Outcome
) -> None:
    server = Saves(ending)
    verdict = CommandOracle(compiler(server), COMMAND).check(CANDIDATE)
    assert verdict.outcome is outcome
    saved, asked = (request.task for request in server.asked)
    assert isinstance(saved, SaveCandidate)
    assert isinstance(asked, RunCommand)
    paths = [saved.path, saved.inputs]
    assert asked.words == ("./fails.sh", "--quiet", *paths)
    assert not Path(paths[0]).exists()


def test_time_to_save_the_candidate_counts() -> None:
    verdict = CommandOracle(compiler(Saves(exits(0))), COMMAND).check(CANDIDATE)
    assert verdict.observation.seconds == 3.0
    assert verdict.observation.own_seconds == 2.25


@pytest.mark.parametrize(
    ("saved", "outcome"),
    [
        (Ending("exit", stage="rebuild", answer=Invalid("no")), Outcome.INVALID),
        (Ending("signal", signal.SIGSEGV, "eager"), Outcome.INVALID),
        (Ending("timeout", stage="eager"), Outcome.UNRESOLVED),
    ],
)
def test_command_is_not_run_on_an_invalid_candidate(
    saved: Ending, outcome: Outcome
) -> None:
    server = Saves(save=lambda request: saved)
    assert CommandOracle(compiler(server), COMMAND).check(CANDIDATE).outcome is outcome
    assert [type(request.task) for request in server.asked] == [SaveCandidate]


def test_input_program_must_fail_in_every_run(tmp_path: Path) -> None:
    server = Saves(exits(0), exits(1), exits(0))
    model = tmp_path / "model.pt2"
    with pytest.raises(NotReproducible) as caught:
        require_command_failure(COMMAND, compiler(server), model, None)
    assert "exits with another status" in str(caught.value)
    assert f"./fails.sh --quiet {model}" in str(caught.value)


def test_own_time_of_the_failing_input_program_is_returned() -> None:
    server = Saves(*[exits(0)] * 3)
    own_seconds = require_command_failure(
        COMMAND, compiler(server), Path("m.pt2"), None
    )
    assert own_seconds == 1.5


@pytest.mark.parametrize(("left", "runs"), [(100.0, 3), (7.0, 1), (8.0, 2)])
def test_short_time_limit_reduces_the_runs_of_the_input_program(
    left: float, runs: int
) -> None:
    """Four seconds are kept after a run of two."""

    class Clocked(Saves):
        def ask(self, request: Request) -> Ending:
            minutes.left -= 2.0
            return super().ask(request)

    minutes = Minutes(left)
    server = Clocked(*[exits(0)] * 3)
    asked = COMMAND, compiler(server), Path("m.pt2"), None
    assert require_command_failure(*asked, minutes) == 1.5  # of its own time
    assert len(server.asked) == runs


@pytest.mark.parametrize("text", ["./fails.sh", "./fails.sh '{}", ""])
def test_invalid_command_line_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--check"):
        Command.parse(text)


@pytest.mark.torch
def test_temporary_files_of_a_killed_command_are_removed(
    tmp_path: Path,
) -> None:
    """A compiler removes its temporary files at its end, not when it is killed."""
    note = tmp_path / "note"
    leave = f'touch "$TMPDIR/cc1.s"; echo "$TMPDIR" > {note}; exec sleep 1000'
    with Server() as server:
        leaving = RunCommand(("sh", "-c", leave), str(tmp_path))
        ending = server.ask(Request(leaving, timeout_s=10.0))
        assert ending.how == "timeout"
        place = Path(note.read_text().strip())
        assert server.directory in place.parents
    assert not place.exists()
