"""Where the runs of a campaign run: in processes of this machine, or on Ray's nodes."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from shrinkfx.campaign.programs import Program
from shrinkfx.campaign.runs import Outcome, Status
from shrinkfx.errors import UsageError
from shrinkfx.program.display_text import first_line
from shrinkfx.system.processes import kill_with_group

RUNS, LOGS = "runs", "logs"
"""Folders of a campaign: those of its runs, and what these print."""

TOOL = (sys.executable, "-m", "shrinkfx.campaign.child")
"""The command line of shrinkfx, in a process that dies with the one that started it."""

_LONGEST_S = 12 * 3600.0
"""Maximum time of one run in seconds; a run has limits of its own, which are lower."""

_ENDING_S = 60.0
"""Time in seconds that an interrupted run may take to save its state."""

_STATUS_BY_EXIT_CODE = {
    0: Status.REDUCED,
    3: Status.PASSES,
    4: Status.STOPPED,
    5: Status.UNVERIFIED,
    7: Status.KNOWN,
}


class Interrupted(Exception):
    """The executor was closed before the run had ended."""


Started = Callable[[subprocess.Popen[str]], None]
"""Called with the process of a run; it may raise ``Interrupted``."""


@dataclass(frozen=True)
class Runs:
    """Runs shrinkfx on programs, one per call.

    Attributes:
        out: the folder of the campaign.
        known: folders with known bugs.
        tool: the command that runs shrinkfx.
    """

    out: Path
    known: tuple[str, ...] = ()
    tool: tuple[str, ...] = TOOL

    def run(self, program: Program, started: Started = lambda _: None) -> Outcome:
        """Run shrinkfx on a program, or continue its run, in a process of its own."""
        folder, logs = self.out / RUNS / program.name, self.out / LOGS
        for path in (folder.parent, logs):
            path.mkdir(parents=True, exist_ok=True)
        with (
            (logs / f"{program.name}.txt").open("a") as log,
            subprocess.Popen(
                [*self._command(program, folder), "--json", "--quiet"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            ) as process,
        ):
            try:
                started(process)
                printed, _ = process.communicate(timeout=_LONGEST_S)
            except subprocess.TimeoutExpired:
                kill_with_group(process.pid)
                printed, _ = process.communicate()
            except BaseException:
                interrupt([process])
                raise
        return _read_outcome(program, folder, process.returncode, printed)

    def _command(self, program: Program, folder: Path) -> list[str]:
        if (folder / "journal.sqlite").is_file():
            return [*self.tool, "--resume", str(folder)]
        folders = *self.known, str(folder.parent)
        known = [word for each in folders for word in ("--known", each)]
        words = [program.path, *program.options, *known, "--out", str(folder)]
        return [*self.tool, *words]


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


def interrupt(processes: Collection[subprocess.Popen[str]]) -> None:
    """Send Ctrl-C twice, the first of which only ends a search, then kill the rest."""
    for _ in range(2):
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
        time.sleep(1.0)
    deadline = time.monotonic() + _ENDING_S
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
        if process.poll() is None:
            kill_with_group(process.pid)
            process.wait()


class LocalExecutor:
    """Runs programs on this machine.

    Args:
        jobs: the number of programs at a time.
    """

    def __init__(self, runs: Runs, jobs: int) -> None:
        self._runs = runs
        self._pool = ThreadPoolExecutor(jobs)
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[str]] = []
        self._is_closed = False

    def submit(self, program: Program) -> Future[Outcome]:
        return self._pool.submit(self._runs.run, program, self._add)

    def _add(self, process: subprocess.Popen[str]) -> None:
        with self._lock:
            if self._is_closed:
                raise Interrupted
            self._processes.append(process)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._is_closed = True
        alive = [each for each in self._processes if each.poll() is None]
        if alive:
            interrupt(alive)
        self._pool.shutdown()


class RayExecutor:
    """Runs programs as Ray tasks. Each node must have the programs and the folders.

    Ray repeats a task whose process or node has died, and the run then continues.

    Args:
        address: the address of the cluster; ``auto`` for the one of this machine.

    Raises:
        UsageError: Ray is not installed, or no cluster has this address.
    """

    def __init__(self, runs: Runs, address: str) -> None:
        try:
            import ray
        except ImportError as error:
            advice = "pip install 'shrinkfx[ray]'"
            raise UsageError(f"--ray needs Ray: {advice}") from error
        try:
            _require_listener(address)
            ray.init(address, logging_level="error", log_to_driver=False)
        except (OSError, ValueError, RuntimeError) as error:
            reason = f"no Ray cluster has this address ({first_line(str(error))})"
            advice = "start one: ray start --head"
            raise UsageError(f"--ray {address}: {reason}\n{advice}") from error
        self._ray = ray
        self._runs = ray.put(runs)
        self._run = ray.remote(num_cpus=_CORES, max_retries=_RETRIES)(_run_on_node)
        self._tasks: list[ray.ObjectRef[Outcome]] = []

    def submit(self, program: Program) -> Future[Outcome]:
        task = self._run.remote(self._runs, program)
        self._tasks.append(task)
        future: Future[Outcome] = task.future()
        return future

    def close(self) -> None:
        """Cancel all tasks, each of which interrupts its run."""
        for task in self._tasks:
            self._ray.cancel(task)
        self._ray.wait(self._tasks, num_returns=len(self._tasks), timeout=_ENDING_S)
        self._ray.shutdown()


def _require_listener(address: str) -> None:
    """Require that somebody listens at an address, because Ray waits for minutes.

    Raises:
        OSError: nobody does.
    """
    host, _, port = address.rpartition(":")
    if port.isdigit():
        host = host.removeprefix("ray://")
        socket.create_connection((host, int(port)), _CONNECTING_S).close()


_CONNECTING_S = 10.0

_CORES = 2
"""Cores of a Ray task: a check compiles with one, and the program runs on others."""

_RETRIES = 3
"""How often Ray repeats a task whose process or node has died."""


def _run_on_node(runs: Runs, program: Program) -> Outcome:
    return runs.run(program)
