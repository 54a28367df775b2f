"""Run shrinkfx on many programs, each in a process of its own, and keep the outcomes.

Each run knows the bugs that earlier runs have reduced, and ends early if its failure is
one of them. So the first program of a bug is reduced, and the others are recognized.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from shrinkfx.errors import UsageError
from shrinkfx.program.record import Record
from shrinkfx.system.folders import lock_folder, write_json
from shrinkfx.system.processes import kill_with_group
from shrinkfx.triage.programs import Program

STATE, RUNS, LOGS = "triage.json", "runs", "logs"
"""The file with the outcomes, and the folders of runs and of what they print."""

_LONGEST_S = 12 * 3600.0
"""Maximum time of one run in seconds; a run has limits of its own, which are lower."""

_ENDING_S = 60.0
"""Time in seconds that an interrupted run may take to save its state."""


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
    INTERRUPTED = "interrupted"
    """By Ctrl-C; it continues when the triage is resumed."""


_STATUS_BY_EXIT_CODE = {
    0: Status.REDUCED,
    3: Status.PASSES,
    4: Status.STOPPED,
    5: Status.UNVERIFIED,
    7: Status.KNOWN,
}


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

TOOL = (sys.executable, "-m", "shrinkfx")


def run_campaign(
    campaign: Campaign, out: Path, ended: Ended, tool: Sequence[str] = TOOL
) -> Campaign:
    """Run shrinkfx on all pending programs, and return their outcomes.

    Ctrl-C ends the runs, each of which can be resumed.

    Args:
        tool: the command that runs shrinkfx.

    Raises:
        UsageError: another process uses the folder.
    """
    processes = _Processes(out, campaign, tool)
    pool = ThreadPoolExecutor(campaign.jobs)
    with lock_folder(out), processes.ended_on_ctrl_c(pool):
        waiting = [pool.submit(processes.run, each) for each in campaign.pending]
        for future in as_completed(waiting):
            if (outcome := future.result()).status is not Status.INTERRUPTED:
                campaign = campaign.with_outcome(outcome)
                ended(campaign, outcome)
    return campaign


class _Processes:
    """The processes of a campaign.

    Args:
        out: the folder of the campaign.
    """

    def __init__(self, out: Path, campaign: Campaign, tool: Sequence[str]) -> None:
        self._out, self._tool = out, tool
        folders = *campaign.known, str(out / RUNS)
        self._known = [word for each in folders for word in ("--known", each)]
        self._alive: set[subprocess.Popen[str]] = set()
        self._interrupted = threading.Event()
        for name in (RUNS, LOGS):
            (out / name).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def ended_on_ctrl_c(self, pool: ThreadPoolExecutor) -> Iterator[None]:
        """End all processes if the block ends by an exception."""
        try:
            yield
        except BaseException:
            self._interrupted.set()
            for process in [*self._alive]:
                self._interrupt(process)
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def _interrupt(self, process: subprocess.Popen[str]) -> None:
        """Send Ctrl-C twice: the first one only ends the search."""
        for _ in range(2):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDING_S)
        if process.poll() is None:
            kill_with_group(process.pid)

    def run(self, program: Program) -> Outcome:
        """Run shrinkfx on a program, or continue its run."""
        folder = self._out / RUNS / program.name
        words = [program.path, *program.options, *self._known, "--out", str(folder)]
        if (folder / "journal.sqlite").is_file():
            words = ["--resume", str(folder)]
        command = [*self._tool, *words, "--json", "--quiet"]
        if self._interrupted.is_set():
            return Outcome(program, Status.INTERRUPTED)
        with (self._out / LOGS / f"{program.name}.txt").open("a") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
            self._alive.add(process)
            try:
                printed, _ = process.communicate(timeout=_LONGEST_S)
            except subprocess.TimeoutExpired:
                kill_with_group(process.pid)
                printed, _ = process.communicate()
            self._alive.discard(process)
        if self._interrupted.is_set():
            return Outcome(program, Status.INTERRUPTED)
        return _read_outcome(program, folder, process.returncode, printed)


def _read_outcome(program: Program, folder: Path, code: int, printed: str) -> Outcome:
    """Return the outcome of a run.

    Args:
        printed: its events as lines of JSON.
    """
    last = (printed.splitlines() or ["{}"])[-1]
    try:
        end = json.loads(last)
    except ValueError:  # it was killed while it wrote
        end = {}
    status = _STATUS_BY_EXIT_CODE.get(code, Status.ERROR)
    reason = end.get("error") or ""
    if status is Status.ERROR and not reason:
        reason = f"shrinkfx ended with {code}: see {LOGS}/{program.name}.txt"
    has_result = status in (Status.REDUCED, Status.UNVERIFIED, Status.STOPPED)
    return Outcome(
        program,
        status,
        str(folder) if has_result else "",
        tuple(end.get("result", {}).get("known_bugs", ())),
        reason,
        end.get("elapsed", 0.0),
    )


def save(campaign: Campaign, out: Path, report: Sequence[object]) -> None:
    """Write the state of a campaign, with a report for other programs to read."""
    write_json(out / STATE, {"schema": 1, "bugs": report, "state": campaign.to_json()})
