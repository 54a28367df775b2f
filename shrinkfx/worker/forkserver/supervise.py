"""Run work in a child process that may segfault, hang, use much memory or daemonize.

The calling process becomes a child subreaper. So all processes that a child starts stay
its descendants, whatever they do, and are killed when the child is done.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from shrinkfx.failure.readers.script import name_frame
from shrinkfx.program.display_text import cut_middle
from shrinkfx.protocol.answers import Answer, Built, Ending, Raised
from shrinkfx.protocol.requests import Request
from shrinkfx.system.own_time import OwnTime
from shrinkfx.system.processes import (
    Sample,
    choose_children_lookup,
    kill_with_group,
    list_descendants,
    read_pss_bytes,
    read_rss_bytes,
    sample_processes,
)

Note = Callable[[str], None]
Work = Callable[[Note, Path], Answer]

BUILT = "built.json"
"""The file in a child's folder that says what it has built, even if it dies."""

OPERATOR = "operator"
"""The file in a child's folder with the operator that eager is running."""

_LOG_BYTES, _FIRST_BYTES = 512_000, 16_000
"""Logs are cut in the middle, because g++ prints its first error before hundreds of
kilobytes of consequential errors."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)


def become_subreaper(adopts: int = 1) -> None:
    """Adopt all orphans among the descendants; 0 stops doing so."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, adopts, 0, 0, 0)


def tag_process(mark: str) -> None:
    """Tag this process and its descendants so that leftovers can be found and killed.

    The number of the mark becomes RLIMIT_RTTIME, which only affects real-time processes
    and is larger than any could use. Limits are inherited, even if a process clears its
    environment.
    """
    number = mark.rpartition(":")[2]
    with contextlib.suppress(ValueError, OSError):  # the hard limit may be lower
        _, hard_limit = resource.getrlimit(resource.RLIMIT_RTTIME)
        resource.setrlimit(resource.RLIMIT_RTTIME, (int(number), hard_limit))


def restore_sigchld() -> None:
    """Restore the default handling of SIGCHLD, which a preload may have changed.

    If the signal is ignored, no child can be waited for, and a compiler that fails
    seems to succeed. A handler may wait for children that are not its own.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def die_with_parent(number: int) -> None:
    """Ask the kernel for a signal when the parent ends; 0 cancels that."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def kill_descendants() -> None:
    """Kill all descendants of this process."""
    Watch(child=0).kill_all()


def supervise(
    work: Work,
    request: Request,
    folder: Path,
    cancelled: Callable[[], bool] = lambda: False,
    unwatched: set[int] | None = None,
    warm: int | None = None,
) -> Ending:
    """Fork a child, do ``work`` in it, and return how it ended.

    Args:
        request: its limits apply.
        folder: an empty folder for the child's log, stages and answer.
        cancelled: polled; True ends the child.
        unwatched: ids of other children, which are not killed; ended ones are removed.
        warm: the id of a pre-warmed child that does the work, instead of a fork.

    Raises:
        FileNotFoundError: the folder was removed meanwhile.
    """
    started = time.monotonic()
    restore_sigchld()
    sys.stdout.flush()
    sys.stderr.flush()
    server = os.getpid()
    child = os.fork() if warm is None else warm
    if child == 0:
        run_child(work, folder, server)
    watch = Watch(child, set() if unwatched is None else unwatched)
    timer = OwnTime(watch.sample_usage)
    try:
        how, code = wait_for_end(watch, timer, request, cancelled)
        if how in ("timeout", "late", "memory"):
            watch.abort()
    finally:
        watch.kill_all()
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} was removed, together with the results in it"
        )
    stages = _words(folder / "stage") or ["start"]
    return Ending(
        how=how,
        code=code,
        stage=stages[-1],
        answer=_answer(folder / "answer.json"),
        seconds=time.monotonic() - started,
        cpu_seconds=watch.cpu_seconds,
        peak_rss_bytes=watch.peak_rss_bytes,
        log=_read_ends(folder / "log"),
        runs=max(1, stages.count("run")),
        built=_built(folder / BUILT),
        operator=_read_ends(folder / OPERATOR),
        waited_s=timer.waited_s,
        runnable=timer.runnable,
    )


def run_child(work: Work, folder: Path, server: int) -> NoReturn:
    """Do the work in the child, and exit; never return to the server's code."""
    child, status = os.getpid(), 1
    try:
        note = _detach_child(folder, server)
        answer = work(note, folder)
        _exit_in_fork(child)
        write_answer(folder, answer)
        status = 0
    except SystemExit as leaving:
        status = _exit_status(leaving.code)
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
    except BaseException as error:  # noqa: BLE001 - the boundary: all becomes data
        _exit_in_fork(child)
        write_answer(folder, describe_error(error))
        status = 0
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(status)


def _detach_child(folder: Path, server: int) -> Note:
    """Detach the child from what it shares with the server; return its ``note``."""
    if os.getsid(0) != os.getpid():  # a pre-warmed child leads a session already
        os.setsid()
    die_with_parent(signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    log = os.open(folder / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _, hard_limit = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard_limit))  # crashes are expected
    faulthandler.enable(2)
    return open_stages(folder)


def open_stages(folder: Path) -> Note:
    """Return the function that records each stage of a child before it begins."""
    stages = os.open(folder / "stage", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def note(stage: str) -> None:
        os.write(stages, stage.encode() + b"\n")

    return note


def _exit_in_fork(child: int) -> None:
    """End this process if it is a fork of the child, which must not answer."""
    if os.getpid() != child:
        os._exit(1)


def _exit_status(code: object) -> int:
    return code & 0xFF if isinstance(code, int) else int(code is not None)


def write_answer(folder: Path, answer: Answer) -> None:
    """Write the answer to the file that the server reads, in one step."""
    draft = folder / "answer.tmp"
    draft.write_text(answer.to_line())
    draft.rename(folder / "answer.json")


def describe_error(error: BaseException) -> Raised:
    """Return the answer that describes an exception."""
    stack = traceback.extract_tb(error.__traceback__)
    frames = [name_frame(frame.filename, frame.name) for frame in stack]
    message = cut_middle(str(error), _LOG_BYTES)
    notes = map(str, getattr(error, "__notes__", ()))
    return Raised(type(error).__name__, message, tuple(frames[-30:]), tuple(notes))


def _answer(path: Path) -> Answer | None:
    """Read the child's answer; None if there is none or it is incomplete."""
    try:
        return Answer.from_line(path.read_text())
    except (OSError, ValueError, RecursionError):
        return None
    except (TypeError, LookupError, AttributeError) as error:  # not a valid answer
        return describe_error(error)


def _built(path: Path) -> Built | None:
    """Read how far the fast build has come; None if there was none."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return Built.from_line(path.read_text())
    return None


def _words(path: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace").split()
    return []


def _read_ends(path: Path) -> str:
    """Read the start and the end of a file, because several threads may log a fault."""
    gap = b"\n...\n"
    try:
        with path.open("rb") as file:
            skipped = file.seek(0, os.SEEK_END) - _LOG_BYTES
            file.seek(0)
            first = file.read(_FIRST_BYTES)
            if skipped > 0:
                first += gap
                file.seek(skipped + len(gap), os.SEEK_CUR)
            return (first + file.read()).decode(errors="replace")
    except OSError:
        return ""


_KILL_S = 30.0
_LAST_WORDS_S = 5.0
_TICK_S = 0.05


@dataclass
class Watch:
    """A child, its descendants, and what they have used so far.

    Attributes:
        child: the process id of the child.
        unwatched: ids of other children, which are not watched, such as forked servers.
        status: the wait status of the child; None while it runs.
        cpu_seconds: the CPU time of descendants that have ended.
        peak_rss_bytes: the most memory that was seen in use.
        below: ids of the descendants at the last look.
    """

    child: int
    unwatched: set[int] = field(default_factory=set)
    status: int | None = None
    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0
    below: tuple[int, ...] = ()

    def reap(self) -> bool:
        """Reap all descendants that have ended; return False if none is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid in self.unwatched:
                self.unwatched.discard(pid)  # the number may be reused
                continue
            self.cpu_seconds += usage.ru_utime + usage.ru_stime
            self.peak_rss_bytes = max(self.peak_rss_bytes, usage.ru_maxrss * 1024)
            if pid == self.child:
                self.status = status

    def sample_usage(self) -> Sample:
        """Return a sample of all descendants, with the CPU time used so far."""
        self.reap()
        self.below = self._live_descendants()
        sample = sample_processes(self.below)
        return replace(sample, cpu_seconds=self.cpu_seconds + sample.cpu_seconds)

    def exceeds(self, limit_bytes: int) -> bool:
        """Return whether the descendants use more memory than the limit.

        Processes that started after the last look are not counted. Resident sets count
        a page that forks share once for each of them, so the exact share, which is
        expensive to get, is read only if that sum is above the limit.
        """
        total = sum(map(read_rss_bytes, {self.child, *self.below}))
        if total > limit_bytes:
            # A process that has ended may have left its id to an unrelated process.
            total = sum(map(read_pss_bytes, self._live_descendants()))
        self.peak_rss_bytes = max(self.peak_rss_bytes, total)
        return total > limit_bytes

    def abort(self) -> None:
        """Send SIGABRT to the child, so that faulthandler logs its frames."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child, signal.SIGABRT)
        deadline = time.monotonic() + _LAST_WORDS_S
        while self.status is None and time.monotonic() < deadline:
            self.reap()
            time.sleep(0.002)

    def kill_all(self) -> None:
        """Kill descendants until none is left, including those forked meanwhile."""
        deadline = time.monotonic() + _KILL_S
        while self.reap() and time.monotonic() < deadline:
            descendants = self._live_descendants()
            if (
                self.unwatched and not descendants and not self._live_descendants()
            ):  # a list may miss some
                return
            for pid in descendants:
                kill_with_group(pid)
            time.sleep(0.002)

    def _live_descendants(self) -> tuple[int, ...]:
        """Return the ids of the live descendants, without those of ``unwatched``."""
        if not self.unwatched:
            return tuple(list_descendants(os.getpid()))
        children = choose_children_lookup()
        return tuple(
            list_descendants(
                os.getpid(),
                lambda pid: [c for c in children(pid) if c not in self.unwatched],
            )
        )


class _End:
    """Waits for the end of a child."""

    def __init__(self, child: int) -> None:
        self._poll = select.poll()
        self._descriptor: int | None = None
        self._pause_s = 0.002
        # Linux before 5.3 has no pidfd_open, and a seccomp filter may forbid it.
        with contextlib.suppress(AttributeError, OSError):
            self._descriptor = os.pidfd_open(child)
            self._poll.register(self._descriptor, select.POLLIN)

    def wait(self) -> None:
        """Return at the end of the child, or after ``_TICK_S``."""
        if self._descriptor is None:
            time.sleep(self._pause_s)
            self._pause_s = min(_TICK_S, self._pause_s * 1.5)
        elif self._poll.poll(_TICK_S * 1000):
            self.close()  # it has ended; with a debugger, it is reaped later

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def wait_for_end(
    watch: Watch, timer: OwnTime, request: Request, cancelled: Callable[[], bool]
) -> tuple[str, int]:
    """Wait until a child ends or breaks a limit; return how, and the exit code."""
    with contextlib.closing(_End(watch.child)) as end:
        while True:
            watch.reap()
            if watch.status is not None:
                code = os.waitstatus_to_exitcode(watch.status)
                return ("signal", -code) if code < 0 else ("exit", code)
            if how := _find_broken_limit(watch, timer, request, cancelled):
                return how, 0
            end.wait()


def _find_broken_limit(
    watch: Watch, timer: OwnTime, request: Request, cancelled: Callable[[], bool]
) -> str:
    """Return the limit that the child breaks, or why it must end; '' if neither."""
    if not os.path.exists(f"/proc/{watch.child}"):
        return "lost"
    if cancelled():
        return "cancelled"
    hangs = timer.exceeds(request.timeout_s)
    watch.reap()
    if watch.status is not None:
        return ""  # looking takes time, and the child has ended meanwhile
    if hangs:
        return "timeout"
    if timer.passed_s > request.wall_clock_limit_s:
        return "late"
    return "memory" if watch.exceeds(request.max_rss_bytes) else ""


# Keep Inductor's progress bars from starting a thread, which would not survive a fork.
#
# Without tqdm, torch shows no bars (``torch/hub.py``), and this does nothing.

_BARS: Any = None
with contextlib.suppress(ImportError):
    _BARS = importlib.import_module("tqdm").tqdm


def disable_monitor_thread() -> None:
    """Let the bars of this process start no monitor thread from now on."""
    if _BARS is not None:
        _BARS.monitor_interval = 0


@contextlib.contextmanager
def without_monitor_thread() -> Iterator[None]:
    """Let the bars start no monitor thread inside the context."""
    before = getattr(_BARS, "monitor_interval", 0)
    disable_monitor_thread()
    try:
        yield
    finally:
        if _BARS is not None:
            _BARS.monitor_interval = before
