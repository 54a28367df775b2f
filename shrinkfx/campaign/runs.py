"""Run shrinkfx on many programs, and keep the outcomes.

Each run knows the bugs that earlier runs have reduced, and ends early if its failure is
one of them. So the first program of a bug is reduced, and the others are recognized.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future, as_completed
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from shrinkfx.campaign.programs import Program
from shrinkfx.errors import UsageError
from shrinkfx.program.record import Record
from shrinkfx.system.folders import lock_folder, write_json

STATE = "triage.json"
"""Name of the file with the outcomes."""


class Status(StrEnum):
    """What became of a program."""

    REDUCED = "reduced"
    UNVERIFIED = "unverified"
    KNOWN = "known"
    PASSES = "passes"
    """It does not fail as requested."""
    STOPPED = "stopped"
    """By its own budget."""
    ERROR = "error"


@dataclass(frozen=True)
class Outcome(Record):
    """What became of a program.

    Attributes:
        bug: the folder of its run, if that has a result; '' otherwise.
        known: folders of the known bugs that it has.
        reason: the message of its run, if it was not reduced.
        seconds: duration of its run.
    """

    program: Program
    status: Status
    bug: str = ""
    known: tuple[str, ...] = ()
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Campaign(Record):
    """Programs to triage, with the outcomes so far.

    Attributes:
        known: folders with bugs that were known before.
        jobs: the number of programs at a time.
    """

    programs: tuple[Program, ...]
    known: tuple[str, ...] = ()
    jobs: int = 1
    outcomes: tuple[Outcome, ...] = ()

    @property
    def pending(self) -> list[Program]:
        """The programs without an outcome."""
        over = {outcome.program.name for outcome in self.outcomes}
        return [each for each in self.programs if each.name not in over]

    def with_outcome(self, outcome: Outcome) -> Campaign:
        return replace(self, outcomes=(*self.outcomes, outcome))

    @classmethod
    def load(cls, folder: Path) -> Campaign:
        """Read the state of a triage.

        Raises:
            UsageError: the folder contains no triage, or its state is damaged.
        """
        path = folder / STATE
        try:
            return cls.from_json(json.loads(path.read_text(encoding="utf-8"))["state"])
        except OSError as error:
            reason = "the folder contains no triage"
            raise UsageError(f"--resume {folder}: {reason}") from error
        except (ValueError, LookupError, TypeError) as error:
            raise UsageError(f"{path} is damaged: start with another --out") from error


Ended = Callable[[Campaign, Outcome], None]
"""Called after each program."""


class Executor(Protocol):
    """Runs shrinkfx on programs, some at a time."""

    def submit(self, program: Program) -> Future[Outcome]: ...

    def close(self) -> None:
        """End all runs that have not ended; each of them can be resumed."""


def run_campaign(
    campaign: Campaign, out: Path, executor: Executor, ended: Ended
) -> Campaign:
    """Run shrinkfx on all pending programs, and return their outcomes.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; ``ended`` got all outcomes before it.
        UsageError: another process uses the folder.
    """
    with lock_folder(out), closing(executor):
        waiting = [executor.submit(each) for each in campaign.pending]
        for future in as_completed(waiting):
            campaign = campaign.with_outcome(outcome := future.result())
            ended(campaign, outcome)
    return campaign


def save(campaign: Campaign, out: Path, report: Sequence[object]) -> None:
    """Write the state of a campaign, with a report for other programs to read."""
    write_json(out / STATE, {"schema": 1, "bugs": report, "state": campaign.to_json()})
