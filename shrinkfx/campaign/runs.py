"""Run shrinkfx on many programs, each in a process of its own, and keep the results.

Each run knows the bugs that earlier runs have reduced, and ends early if its failure is
one of them. So the first program of a bug is reduced, and the others are recognized. If
it is not known whether a program passes without its new bug, it runs again.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from shrinkfx.campaign.programs import Program
from shrinkfx.errors import StorageError, UsageError
from shrinkfx.findings.known_bugs import RUNS, KnownBug
from shrinkfx.journal.journal import Journal
from shrinkfx.program.record import Record
from shrinkfx.system.folders import JOURNAL, write_json
from shrinkfx.system.processes import kill_with_group

STATE, LOGS = "triage.json", "logs"
"""The file with the results, and the folder with what the runs print."""

TOOL = (sys.executable, "-P", "-m", "shrinkfx.campaign.child")
"""The command line of shrinkfx, in a process that dies with the one that started it."""

_LONGEST_S = 12 * 3600.0
"""Maximum time of one run in seconds, so that no run lasts for ever."""

_MOST_RUNS = 5
"""Maximum number of runs of one program."""

_ENDING_S = 30.0
"""Time in seconds that an interrupted run may take to save its state."""


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
    """

    programs: tuple[Program, ...]
    cwd: str = "."
    known: tuple[str, ...] = ()
    jobs: int = 1
    results: tuple[Result, ...] = ()

    @property
    def pending(self) -> list[Program]:
        """The programs without a result."""
        over = {result.program.name for result in self.results}
        return [each for each in self.programs if each.name not in over]

    def with_results(self, results: Iterable[Result]) -> Campaign:
        return replace(self, results=(*self.results, *results))

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


def run_campaign(
    campaign: Campaign, out: Path, listener: Listener, tool: Collection[str] = TOOL
) -> Campaign:
    """Run shrinkfx on all pending programs, and return their results.

    Args:
        out: the folder of the triage; its caller has locked it.
        tool: the command that runs shrinkfx.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; ``listener`` got the results of all
            programs whose last run had ended.
    """
    runs = _Runs(campaign, out.resolve(), tool)
    with ThreadPoolExecutor(campaign.jobs) as pool, runs.stopped_on_error(pool):
        waiting = [pool.submit(runs.run, each) for each in campaign.pending]
        for future in as_completed(waiting):
            campaign = campaign.with_results(results := future.result())
            for result in results:
                listener(campaign, result)
    return campaign


class _Stopped(Exception):
    """No further run may start."""


class _Runs:
    """The runs of a campaign.

    Args:
        out: the folder of the campaign.
        tool: the command that runs shrinkfx.
    """

    def __init__(self, campaign: Campaign, out: Path, tool: Collection[str]) -> None:
        self._campaign, self._out, self._tool = campaign, out, tool
        self._lock = threading.Lock()
        self._alive: set[subprocess.Popen[str]] = set()
        self._is_stopped = False
        for name in (RUNS, LOGS):
            (out / name).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def stopped_on_error(self, pool: ThreadPoolExecutor) -> Iterator[None]:
        """End all runs if the block raises an exception, such as Ctrl-C."""
        try:
            yield
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            with self._lock:
                self._is_stopped = True
            processes = [*self._alive]
            try:
                _interrupt(processes)
            finally:  # also after a second Ctrl-C
                for process in processes:
                    if process.poll() is None:
                        kill_with_group(process.pid)
            raise

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
            command = self._command(program, self._out / RUNS / name)
            code, printed = self._run(command, name)
        except OSError as error:
            return Result(program, Status.ERROR, reason=str(error))
        return _read_result(program, name, code, printed)

    def _run(self, command: Collection[str], name: str) -> tuple[int, str]:
        """Return the exit code of a command, and what it prints."""
        with (
            (self._out / LOGS / f"{name}.txt").open("a") as log,
            self._started(command, log.fileno()) as process,
        ):
            try:
                printed, _ = process.communicate(timeout=_LONGEST_S)
            except subprocess.TimeoutExpired:
                kill_with_group(process.pid)
                printed, _ = process.communicate()
        return process.returncode, printed

    @contextmanager
    def _started(
        self, command: Collection[str], log: int
    ) -> Iterator[subprocess.Popen[str]]:
        with self._lock:
            if self._is_stopped:
                raise _Stopped
            process = subprocess.Popen(
                [*command, "--json", "--quiet"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                errors="replace",
                cwd=self._campaign.cwd,
                start_new_session=True,
            )
            self._alive.add(process)
        try:
            with process:
                yield process
        finally:
            self._alive.discard(process)

    def _command(self, program: Program, folder: Path) -> list[str]:
        if _has_begun(folder):
            return [*self._tool, "--resume", str(folder)]
        known = *self._campaign.known, str(folder.parent)
        words = [word for each in known for word in ("--known", each)]
        # Several programs at a time leave no cores for several checks of each.
        jobs = ["--jobs", "1"] if self._campaign.jobs > 1 else []
        options = [*jobs, *program.options, *words, "--out", str(folder)]
        return [*self._tool, program.path, *options]


def _has_begun(folder: Path) -> bool:
    """Return whether a folder holds a run that can be resumed."""
    path = folder / JOURNAL
    if not path.is_file():
        return False
    try:
        with closing(Journal(path, only_read=True)) as journal:
            return journal.fact("run") is not None
    except StorageError:
        return True  # its run reports the damage


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


def _interrupt(processes: Collection[subprocess.Popen[str]]) -> None:
    """Send Ctrl-C twice, because the first one only ends the search of a run."""
    for _ in range(2):
        for process in processes:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
        time.sleep(1.0)
    deadline = time.monotonic() + _ENDING_S
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))


def save(campaign: Campaign, out: Path, bugs: Collection[object]) -> None:
    """Write the state of a triage, with its bugs for other programs to read."""
    write_json(out / STATE, {"schema": 1, "bugs": bugs, "state": campaign.to_json()})
