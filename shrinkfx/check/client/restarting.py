"""The server of a whole run: it restarts after a crash, and obeys the time limit."""

from __future__ import annotations

import errno
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from shrinkfx.check.client.server import REMOVED, Server
from shrinkfx.errors import (
    BudgetExhausted,
    LoadError,
    StorageError,
    WorkerError,
)
from shrinkfx.failure.readers.device import find_gpu_loss
from shrinkfx.protocol.answers import Description, Ending
from shrinkfx.protocol.choices import GraphForm
from shrinkfx.protocol.files import LOWERING
from shrinkfx.protocol.requests import (
    CheckCandidate,
    Describe,
    ForkServer,
    Request,
    SaveCandidate,
    Task,
    WriteCandidate,
)

LIVES = 6
"""The number of crashes in a row, without an answer between, that end the run."""

_TRIES = 2

_FULL = "No space left on device"

_NO_SPACE = re.compile(rf"{_FULL}: (weights in a package take .*? are free)")
"""A worker's message that data would not fit, before it begins to write it."""

_FREE_SPACE = (
    "free some space, set TMPDIR to a folder on a disk with more "
    "space, or raise --max-disk"
)

_LEAST_BYTES = 1 << 20

OUT_REMOVED = (
    REMOVED[0],
    "keep the folder until the run ends, and repeat the command",
)
"""The message and advice for a run's folder that was removed."""


class RestartingServer(Server):
    """A server that repeats a request that killed its process, once.

    If the process dies again, the request has no answer. A run has the program
    described in several forms, and the values that candidates are cut from are in the
    process's memory and folder. So before a new process gets a request about a
    candidate, it describes that candidate's form again. None of this outlasts the run.

    Args:
        seconds_left: returns the seconds that the run has left, or None.
        asking: called with each task before it begins.
        answered: called after each answer.
        heard: called with each ending.
        folders: the folders that need free disk space.
        settings: the arguments of ``Server``.
    """

    def __init__(
        self,
        *,
        seconds_left: Callable[[], float | None] = lambda: None,
        asking: Callable[[Task], None] = lambda task: None,
        answered: Callable[[], None] = lambda: None,
        heard: Callable[[Ending], None] = lambda ending: None,
        folders: tuple[Path, ...] = (),
        **settings: Any,  # noqa: ANN401 - Server knows their types
    ) -> None:
        self.seconds_left = seconds_left
        self._asking = asking
        self._answered = answered
        self._heard = heard
        self._deaths = 0
        self._described: dict[GraphForm, Request] = {}
        self._lost: set[GraphForm] = set()
        self._close_first: list[Callable[[], None]] = []
        super().__init__(**settings)
        self._folders = (self.directory, *folders)

    def ask(self, request: Request) -> Ending:
        """Send a request and wait for its end.

        Raises:
            WorkerError: the process dies whatever the request, or cannot be started; or
                the GPU is lost.
            BudgetExhausted: the time is up.
            StorageError: the disk is full, so the answer means nothing; or a folder of
                the run was removed.
        """
        self._asking(request.task)
        ending = self._ask_with_restart(request)
        if isinstance(request.task, Describe) and _is_described(ending):
            self._described[request.options.graph] = request
            self._lost.discard(request.options.graph)
        self._refuse_if_removed()
        refuse_if_full(ending, self._folders)
        _refuse_if_lost(ending)
        self._answered()
        self._heard(ending)
        return ending

    def _refuse_if_removed(self) -> None:
        """Stop if a folder of the run was removed, because SQLite would not notice."""
        for folder in self._folders:
            if not folder.is_dir():
                raise StorageError(str(folder), *OUT_REMOVED)

    def fork(self, request: Request) -> Ending:
        """Fork the process, after describing the form of the fork's candidates."""
        self._describe_again(request)
        return super().fork(request)

    def forget_deaths(self) -> None:
        """Count its crashes from 0 again, for another task."""
        self._deaths = 0

    def add_close_hook(self, close: Callable[[], None]) -> None:
        """Register a function that is called before each of its processes is closed."""
        self._close_first.append(close)

    def close(self) -> None:
        """End the server and all that it started; safe to call twice."""
        for close in self._close_first:
            close()
        super().close()

    def start(self, clock_s: float = math.inf) -> None:
        """Start the process and load the program.

        Raises:
            BudgetExhausted: the time is up.
        """
        try:
            super().start(min(clock_s, self._left_s()))
        except WorkerError:
            self._left_s()  # raises if the time limit has ended the start
            raise

    def _left_s(self) -> float:
        """Return the seconds that the run has left.

        Raises:
            BudgetExhausted: the time is up.
        """
        remaining_s = self.seconds_left()
        if remaining_s is None:
            return math.inf
        if remaining_s <= 0:
            raise BudgetExhausted(_TIME_IS_UP)
        return remaining_s

    def _ask_with_restart(self, request: Request) -> Ending:
        why = ""
        for _ in range(_TRIES):
            self._describe_again(request)
            try:
                ending = self._ask_in_time(request)
            except WorkerError as error:
                why = str(error)
                self._start_server_again(error)
            else:
                self._deaths = 0
                return ending
        return Ending("server", log=why)

    def _ask_in_time(self, request: Request) -> Ending:
        remaining_s = self._left_s()
        if remaining_s >= request.wall_clock_limit_s:
            return super().ask(request)
        ending = super().ask(replace(request, clock_s=remaining_s))
        if ending.how == "late":
            raise BudgetExhausted(_TIME_IS_UP)
        return ending

    def _describe_again(self, request: Request) -> None:
        """Describe a candidate's form again, if only an earlier process has done so."""
        form = request.options.graph
        while isinstance(request.task, _CANDIDATE_TASKS) and form in self._lost:
            again = self._described[form]
            self._asking(again.task)
            try:
                ending = self._ask_in_time(again)
                self._heard(ending)
                refuse_if_full(ending, self._folders)
                if not _is_described(ending):
                    reason = f"{_NO_DESCRIPTION}: the worker ended with {ending.how}"
                    raise WorkerError(reason, ending.log)
            except WorkerError as error:
                self._start_server_again(error)
            else:
                self._lost.discard(form)

    def _start_server_again(self, error: WorkerError) -> None:
        """Restart the process; again if the new one is killed from outside."""
        self._lost = {*self._described}
        if (self.directory / LOWERING).exists():  # that lowering killed it
            self._setup = replace(self._setup, first_lowering=False)
        while self._deaths < LIVES - 1:
            self._deaths += 1
            self.close()
            try:
                self._start_again()
            except WorkerError as another:
                if not another.killed:
                    raise
                error = another
            else:
                return
        raise error

    def _start_again(self) -> None:
        try:
            self.start()
        except OSError as failed:
            raise StorageError(*_cannot_write(failed, self.directory)) from failed
        except (
            LoadError
        ) as failed:  # although an earlier process has loaded the program
            raise WorkerError(
                f"the worker could not be restarted: {failed}"
            ) from failed


_TIME_IS_UP = "time limit reached"

_CANDIDATE_TASKS = (CheckCandidate, SaveCandidate, WriteCandidate, ForkServer)
"""Tasks about candidates, which need a described form."""

_NO_DESCRIPTION = "the program could not be described again"


def _is_described(ending: Ending) -> bool:
    return isinstance(ending.answer, Description)


def _failed_log(ending: Ending) -> str | None:
    """Return the log and the message of a child that failed; None if it did not."""
    if ending.how == "exit" and not ending.code and not ending.raised:
        return None
    return ending.log + (ending.raised.message if ending.raised else "")


def refuse_if_full(ending: Ending, folders: tuple[Path, ...]) -> None:
    """Refuse an answer from a child that ran out of disk space.

    Raises:
        StorageError: a disk is full.
    """
    log = _failed_log(ending)
    if log is None:
        return
    for folder in folders:
        if match := _NO_SPACE.search(log):
            raise StorageError(str(folder), match[1], _FREE_SPACE)
        if shutil.disk_usage(folder).free < _LEAST_BYTES:
            raise _full(str(folder), folders)
    if line := _FULL_LINE.search(log):  # another disk, or space was freed meanwhile
        _, _, what = line[0].partition(": ")  # without the program's name
        named = _PATH.findall(what)
        raise _full(named[-1] if named else str(folders[0]), folders)


_FULL_LINE = re.compile(rf"^.*{_FULL}.*$", re.MULTILINE)

_PATH = re.compile(r"(?<![^\s'\"])/[^\s:'\"]+")


def _full(place: str, folders: tuple[Path, ...]) -> StorageError:
    """Create the error for a full disk; a check writes below the first folder."""
    elsewhere = ", or set TMPDIR to a folder on a disk with more space"
    is_temporary = place.startswith(str(folders[0]))
    advice = "free some space" + (elsewhere if is_temporary else "")
    return StorageError(place, "the disk is full", advice)


def _refuse_if_lost(ending: Ending) -> None:
    """Stop if the GPU is lost, because no further request would be answered.

    Raises:
        WorkerError: with CUDA's message.
    """
    if why := find_gpu_loss(_failed_log(ending) or ""):
        raise WorkerError(f"the GPU is no longer available ({why}): {_SEE_DRIVER}")


_SEE_DRIVER = (
    "see nvidia-smi and dmesg; resume with shrinkfx --resume DIR when the GPU is back"
)


def _cannot_write(error: OSError, folder: Path) -> tuple[str, str, str]:
    if error.errno == errno.ENOENT and not folder.parent.exists():
        return str(folder), *REMOVED
    return str(error.filename or folder), error.strerror or str(error), _FREE


_FREE = "check whether the disk is full, and free some space"
