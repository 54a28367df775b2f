"""Run shrinkfx on many programs, each in a process of its own, and keep the results.

Each run knows the bugs that earlier runs have reduced, and ends early if its failure is
one of them. So the first program of a bug is reduced, and the others are recognized. If
it is not known whether a program passes without its new bug, it runs again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from shrinkfx.campaign.commands import Command, Executor
from shrinkfx.campaign.programs import Program, find_new_programs
from shrinkfx.errors import UsageError
from shrinkfx.findings.known_bugs import RUNS, KnownBug
from shrinkfx.program.record import Record
from shrinkfx.system.folders import write_json

STATE, LOGS = "triage.json", "logs"
"""The file with the results, and the folder with what the runs print."""

_MOST_RUNS = 5
"""Maximum number of runs of one program."""


class Status(StrEnum):
    """The outcome of a run."""

    REDUCED = "reduced"
    KNOWN = "known"
    PASSES = "passes"
    UNREDUCED = "not reduced"
    """It fails, but not as requested, or shrinkfx cannot reduce any form of it."""
    UNVERIFIED = "unverified"
    STOPPED = "stopped"
    """The run reached its own limit of time or checks."""
    ERROR = "error"


_STATUS_BY_EXIT_CODE = {
    0: Status.REDUCED,
    3: Status.PASSES,
    4: Status.STOPPED,
    5: Status.UNVERIFIED,
    7: Status.KNOWN,
}


@dataclass(frozen=True)
class Result(Record):
    """The result of a run of one program.

    Attributes:
        folder: the folder of its run, in that of the triage; '' if it has no result.
        known: folders of the known bugs that it has.
        reason: the message of its run, if it fails and was not reduced.
        seconds: duration of its run.
    """

    program: Program
    status: Status
    folder: str = ""
    known: tuple[str, ...] = ()
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Campaign(Record):
    """Programs to triage, with the results so far.

    Attributes:
        cwd: the folder that relative paths in options of the runs refer to.
        known: folders with bugs that were known before.
        jobs: the number of programs at a time.
        watched: folders in which more programs may appear.
        options: options of the runs of those programs, as typed.
    """

    programs: tuple[Program, ...]
    cwd: str = "."
    known: tuple[str, ...] = ()
    jobs: int = 1
    results: tuple[Result, ...] = ()
    watched: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def pending(self) -> list[Program]:
        """The programs without a result."""
        over = {result.program.name for result in self.results}
        return [each for each in self.programs if each.name not in over]

    def with_results(self, results: Iterable[Result]) -> Campaign:
        return replace(self, results=(*self.results, *results))

    def with_new_programs(self) -> Campaign:
        """Return this campaign with the programs that have appeared in its folders."""
        folders = [*map(Path, self.watched)]
        try:
            new = find_new_programs(folders, self.options, self.programs)
        except OSError:  # a file was removed meanwhile; the next call tries again
            return self
        return replace(self, programs=(*self.programs, *new)) if new else self

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


Listener = Callable[[Campaign, Result], None]
"""Called with all results so far and each new one, after the last run of a program."""


Grow = Callable[[Campaign], Campaign]
"""Returns a campaign with the programs that have appeared in its folders."""


def run_campaign(
    campaign: Campaign,
    out: Path,
    listener: Listener,
    executor: Executor,
    grow: Grow | None = None,
) -> Campaign:
    """Run shrinkfx on all pending programs, and return their results.

    Args:
        out: the folder of the triage; its caller has locked it.
        executor: runs the commands; it is stopped on an exception.
        grow: called every few seconds for more programs; then only an exception, such
            as Ctrl-C, ends the campaign. None to run only those that are pending.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; ``listener`` got the results of all
            programs whose last run had ended.
    """
    runs = _Runs(campaign, out.resolve(), executor)
    with ThreadPoolExecutor(campaign.jobs) as pool, _stopped_on_error(pool, executor):
        waiting = {pool.submit(runs.run, each) for each in campaign.pending}
        while waiting or grow:
            ended, waiting = _wait(waiting, _POLL_S if grow else None)
            for future in ended:
                campaign = campaign.with_results(results := future.result())
                for result in results:
                    listener(campaign, result)
            if grow:
                before, campaign = len(campaign.programs), grow(campaign)
                new = campaign.programs[before:]
                waiting |= {pool.submit(runs.run, each) for each in new}
    return campaign


_POLL_S = 2.0
"""Time in seconds between two looks for more programs."""

_Futures = set[Future[list[Result]]]


def _wait(futures: _Futures, timeout_s: float | None) -> tuple[_Futures, _Futures]:
    """Wait until one has ended, or for a time; return those that have, and others."""
    if not futures:
        time.sleep(timeout_s or 0.0)
    return wait(futures, timeout_s, FIRST_COMPLETED)


@contextmanager
def _stopped_on_error(pool: ThreadPoolExecutor, executor: Executor) -> Iterator[None]:
    """End all runs if the block raises an exception, such as Ctrl-C."""
    try:
        yield
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        executor.stop()
        raise


class _Runs:
    """The runs of a campaign.

    Args:
        out: the folder of the campaign.
    """

    def __init__(self, campaign: Campaign, out: Path, executor: Executor) -> None:
        self._campaign, self._out, self._executor = campaign, out, executor
        for name in (RUNS, LOGS):
            (out / name).mkdir(parents=True, exist_ok=True)

    def run(self, program: Program) -> list[Result]:
        """Run shrinkfx on a program as long as it may have another bug.

        An error of this machine, such as a full disk, is the result of the program.
        """
        results = [self._run_once(program, program.name)]
        while len(results) < _MOST_RUNS and self._may_have_another_bug(results):
            name = f"{program.name}+{len(results) + 1}"
            results.append(self._run_once(program, name))
        return results

    def _may_have_another_bug(self, results: Sequence[Result]) -> bool:
        """Return whether a program may fail without the bug of its last run."""
        last = results[-1]
        is_new = len(results) == 1 or bool(last.known)  # else the bug before, again
        if last.status is not Status.REDUCED or not is_new:
            return False
        with suppress(OSError, ValueError):
            return KnownBug.read(self._out / last.folder).may_hide_another
        return False

    def _run_once(self, program: Program, name: str) -> Result:
        """Run shrinkfx in the folder of this name."""
        try:
            code, printed = self._executor.run(self._command(program, name))
        except OSError as error:
            return Result(program, Status.ERROR, reason=str(error))
        return _read_result(program, name, code, printed)

    def _command(self, program: Program, name: str) -> Command:
        campaign, runs = self._campaign, self._out / RUNS
        known = [w for each in (*campaign.known, str(runs)) for w in ("--known", each)]
        # Several programs at a time leave no cores for several checks of each.
        jobs = ["--jobs", "1"] if campaign.jobs > 1 else []
        words = program.path, *jobs, *program.options, *known
        return Command(
            words, runs / name, self._out / LOGS / f"{name}.txt", campaign.cwd
        )


def _read_result(program: Program, name: str, code: int, printed: str) -> Result:
    """Return the result of a run.

    Args:
        name: the name of its folder.
        printed: its events as lines of JSON.
    """
    end = _LastEvent.read(printed)
    status = _STATUS_BY_EXIT_CODE.get(code, Status.ERROR)
    if status is Status.PASSES and end.fails:
        status = Status.UNREDUCED
    reason = "" if status is Status.PASSES else end.error
    if status is Status.ERROR and not reason:
        reason = f"shrinkfx ended with {code}: see {LOGS}/{name}.txt"
    has_result = status in (Status.REDUCED, Status.UNVERIFIED, Status.STOPPED)
    folder = f"{RUNS}/{name}" if has_result else ""
    return Result(program, status, folder, end.known_bugs, reason, end.seconds)


@dataclass(frozen=True)
class _LastEvent:
    """What a triage needs of the last event of a run.

    Attributes:
        fails: whether the program fails, if it was not reduced.
    """

    error: str = ""
    seconds: float = 0.0
    known_bugs: tuple[str, ...] = ()
    fails: bool = False

    @classmethod
    def read(cls, printed: str) -> _LastEvent:
        """Read the last line; return an empty record if the run was killed."""
        with suppress(ValueError):
            event = json.loads((printed.splitlines() or ["{}"])[-1])
            if isinstance(event, dict) and event.get("event") == "end":
                result = event["result"]
                known = tuple(result.get("known_bugs", ()))
                is_failing = bool(result.get("fails"))
                return cls(event["error"], event["elapsed"], known, is_failing)
        return cls()


def save(campaign: Campaign, out: Path, bugs: Collection[object]) -> None:
    """Write the state of a triage, with its bugs for other programs to read."""
    write_json(out / STATE, {"schema": 1, "bugs": bugs, "state": campaign.to_json()})
