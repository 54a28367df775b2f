"""A server for a whole run: it begins anew when its process dies, and keeps time."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from shrinkfx.check.server import REMOVED, Server
from shrinkfx.errors import BudgetExhausted, LoadError, StorageError, WorkerError
from shrinkfx.program.messages import Describe, Ending, Request, Task

LIVES = 6
"""Times in a row that a process may die without an answer between."""

_TRIES = 2

_FULL = "No space left on device"

_TOO_MUCH = re.compile(rf"{_FULL}: (weights in a package take .*? are free)")
"""How a worker says that something would not fit, before it begins with it."""

_MORE = "free some space, set TMPDIR to a folder that has more, or raise --max-disk"

_LEAST_BYTES = 1 << 20


class LastingServer(Server):
    """Asks again what a process has died of, once; then that has no answer.

    The next process is told to describe the program as the last one was, since the
    values that candidates are cut from lie in its memory and its folder.

    Args:
        seconds_left: how long the run may still go on, or None.
        asking: called with each task before it is begun.
        answered: called after each answer.
        heard: given each answer.
        folders: where there must be space.
        settings: those of ``Server``.
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
        self._seconds_left = seconds_left
        self._asking = asking
        self._answered = answered
        self._heard = heard
        self._deaths = 0
        self._described: Request | None = None
        super().__init__(**settings)
        self._folders = (self.directory, *folders)

    def ask(self, request: Request) -> Ending:
        """Send a request and wait for its end.

        Raises:
            WorkerError: the process dies whatever it is asked, or cannot be started.
            BudgetExhausted: the time is up.
            StorageError: the disk is full, so that the answer means nothing.
        """
        self._asking(request.task)
        ending = self._asked_in_time(request)
        if isinstance(request.task, Describe) and ending.answer:
            self._described = request
        _refuse_if_full(ending, self._folders)
        self._answered()
        self._heard(ending)
        return ending

    def _asked_in_time(self, request: Request) -> Ending:
        left = self._seconds_left()
        if left is None:
            return self._asked(request)
        if left <= 0:
            raise BudgetExhausted(_TIME_IS_UP)
        ending = self._asked(replace(request, clock_s=min(left, request.most_s)))
        if ending.how == "late" and left < request.most_s:
            raise BudgetExhausted(_TIME_IS_UP)
        return ending

    def _asked(self, request: Request) -> Ending:
        why = ""
        for _ in range(_TRIES):
            try:
                ending = super().ask(request)
            except WorkerError as error:
                why = str(error)
                self._begin_anew(error)
            else:
                self._deaths = 0
                return ending
        return Ending("server", log=why)

    def _begin_anew(self, error: WorkerError) -> None:
        """Start the next process; again if something kills that one, too."""
        while self._deaths < LIVES - 1:
            self._deaths += 1
            self.close()
            try:
                self._start_described()
            except WorkerError as another:
                if not another.killed:
                    raise
                error = another
            else:
                return
        raise error

    def _start_described(self) -> None:
        try:
            self.start()
        except OSError as failed:
            raise StorageError(*_cannot_write(failed, self.directory)) from failed
        except LoadError as failed:  # what it has loaded before
            raise WorkerError(f"it could not be started again: {failed}") from failed
        if self._described is not None:
            super().ask(self._described)


_TIME_IS_UP = "the minutes are spent"


def _refuse_if_full(ending: Ending, folders: tuple[Path, ...]) -> None:
    """Take no answer from a child that had no space to find one.

    Raises:
        StorageError: a disk is full.
    """
    if ending.how == "exit" and not ending.code and "error" not in ending.answer:
        return
    said = ending.log + str(ending.answer.get("error", ""))
    for folder in folders:
        if found := _TOO_MUCH.search(said):
            raise StorageError(str(folder), found[1], _MORE)
        if _FULL in said or shutil.disk_usage(folder).free < _LEAST_BYTES:
            raise StorageError(str(folder), "the disk is full", "free some space")


def _cannot_write(error: OSError, folder: Path) -> tuple[str, str, str]:
    if error.errno == errno.ENOENT and not folder.parent.exists():
        return str(folder), *REMOVED
    return str(error.filename or folder), error.strerror or str(error), _FREE


_FREE = "is the disk full? free some space"
