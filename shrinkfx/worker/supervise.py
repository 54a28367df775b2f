"""Run a piece of work in a child that may segfault, hang, grow or daemonise.

The calling process becomes a child subreaper, so whatever a child starts ends
up below it, however it tried to escape, and is killed when the child is done.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shrinkfx.program.messages import Ending, Request

Note = Callable[[str], None]
Work = Callable[[Note, Path], dict[str, Any]]

_LOG_BYTES = 16_000
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Adopt every orphan that a child leaves behind."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(number: int) -> None:
    """Ask the kernel for a signal when the parent ends; 0 takes it back."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def supervise(
    work: Work,
    request: Request,
    folder: Path,
    cancelled: Callable[[], bool] = lambda: False,
) -> Ending:
    """Fork, do ``work`` in the child, and tell how it ended.

    Args:
        folder: an empty folder for the child's log, stages and answer.
        cancelled: polled; True ends the child.
    """
    started = time.monotonic()
    sys.stdout.flush()
    sys.stderr.flush()
    server = os.getpid()
    child = os.fork()
    if child == 0:
        _live(work, folder, server)
    watch = _Watch(child)
    try:
        how, code = _wait(watch, request, started, cancelled)
    finally:
        watch.kill_all()
    seconds = time.monotonic() - started
    return Ending(
        how=how,
        code=code,
        stage=_last_line(folder / "stage") or "start",
        answer=_answer(folder / "answer.json"),
        seconds=seconds,
        cpu_seconds=watch.cpu_seconds,
        peak_rss_bytes=watch.peak_rss_bytes,
        log=_tail(folder / "log"),
    )


@dataclass
class _Watch:
    """A child, all that it started, and what they have used so far."""

    child: int
    status: int | None = None
    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0

    def reap(self) -> None:
        """Collect whatever has ended below this process."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.cpu_seconds += usage.ru_utime + usage.ru_stime
            self.peak_rss_bytes = max(self.peak_rss_bytes, usage.ru_maxrss * 1024)
            if pid == self.child:
                self.status = status

    def rss_bytes(self) -> int:
        total = sum(_rss_bytes(pid) for pid in descendants(os.getpid()))
        self.peak_rss_bytes = max(self.peak_rss_bytes, total)
        return total

    def kill_all(self) -> None:
        """Kill until nothing is left; what forks meanwhile is met next round."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            below = list(descendants(os.getpid()))
            for pid in below:
                _signal(pid, signal.SIGSTOP)
            for pid in below:
                _signal(pid, signal.SIGKILL)
            self.reap()
            if not below:
                return
            time.sleep(0.002)


def _wait(
    watch: _Watch, request: Request, started: float, cancelled: Callable[[], bool]
) -> tuple[str, int]:
    pause = 0.002
    while True:
        watch.reap()
        if watch.status is not None:
            code = os.waitstatus_to_exitcode(watch.status)
            return ("signal", -code) if code < 0 else ("exit", code)
        if cancelled():
            return "cancelled", 0
        if time.monotonic() - started > request.timeout_s:
            return "timeout", 0
        if watch.rss_bytes() > request.max_rss_bytes:
            return "memory", 0
        time.sleep(pause)
        pause = min(0.05, pause * 1.5)


def _live(work: Work, folder: Path, server: int) -> None:
    """Be the child: never returns."""
    os.setsid()
    die_with_parent(signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)
    log = os.open(folder / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    faulthandler.enable(2)
    stages = os.open(folder / "stage", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def note(stage: str) -> None:
        os.write(stages, stage.encode() + b"\n")

    status = 1
    try:
        answer = work(note, folder)
        status = int(answer.pop("exit", 0))
        write_answer(folder, answer)
    except SystemExit as leaving:
        if isinstance(leaving.code, str):
            print(leaving.code, file=sys.stderr)
        status = leaving.code if isinstance(leaving.code, int) else 1
        status = 0 if leaving.code is None else status
    except BaseException as error:  # noqa: BLE001 - the boundary: all becomes data
        traceback.print_exc()
        write_answer(folder, {"error": describe_error(error)})
        status = 0
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def write_answer(folder: Path, answer: dict[str, Any]) -> None:
    """Leave the answer where the server finds it, all of it or nothing."""
    draft = folder / "answer.tmp"
    draft.write_text(json.dumps(answer))
    draft.rename(folder / "answer.json")


def describe_error(error: BaseException) -> dict[str, Any]:
    """Turn an exception into data: type, message, and frames from the outside in."""
    frames = []
    for frame in traceback.extract_tb(error.__traceback__):
        _, _, inside = frame.filename.rpartition("site-packages/")
        frames.append(f"{inside or Path(frame.filename).name}:{frame.name}")
    name = type(error).__name__
    return {"type": name, "message": str(error), "frames": frames[-30:]}


def descendants(pid: int) -> Iterator[int]:
    """Yield every live process below ``pid``, children before grandchildren."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _stat(entry)):
            state, parent = stat
            if state != "Z" or parent != pid:
                parents.setdefault(parent, []).append(int(entry))
    stack = [pid]
    while stack:
        for below in parents.get(stack.pop(), ()):
            yield below
            stack.append(below)


def _stat(pid: str) -> tuple[str, int] | None:
    try:
        text = Path("/proc", pid, "stat").read_text()
    except OSError:
        return None
    state, parent, *_ = text.rpartition(")")[2].split()
    return state, int(parent)


def _rss_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGESIZE")


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _answer(path: Path) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return answer


def _last_line(path: Path) -> str:
    try:
        return path.read_text().split()[-1]
    except (OSError, IndexError):
        return ""


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _LOG_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
