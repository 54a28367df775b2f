"""A server for a whole run: it begins anew when its process dies, and keeps time."""

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
from shrinkfx.errors import BudgetExhausted, LoadError, StorageError, WorkerError
from shrinkfx.failure.readers.device import lost
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.choices import GraphForm
from shrinkfx.protocol.descriptions import Description
from shrinkfx.protocol.files import LOWERING
from shrinkfx.protocol.requests import Request
from shrinkfx.protocol.tasks import (
    CheckCandidate,
    Describe,
    ForkServer,
    SaveCandidate,
    Task,
    WriteCandidate,
)
from shrinkfx.wording import Flag, Words

LIVES = 6
"""Times in a row that a process may die without an answer between."""

_TRIES = 2

_FULL = "No space left on device"

_TOO_MUCH = re.compile(rf"{_FULL}: (weights in a package take .*? are free)")
"""How a worker says that something would not fit, before it begins with it."""

_MORE = Words(
    "free some space, set TMPDIR to a folder on a disk with more space, or raise ",
    Flag("--max-disk"),
)

_LEAST_BYTES = 1 << 20

OUT_REMOVED = (
    REMOVED[0],
    "keep the folder until the run ends, and repeat the command",
)
"""What to say of a run's own folder that is gone."""


class RestartingServer(Server):
    """Asks again what a process has died of, once; then that has no answer.

    A run has the program described in several forms. The values that candidates are
    cut from lie in the process's memory and folder: before the next process is asked
    about a candidate, it describes the form of that one anew. None of this outlasts
    the run.

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
            WorkerError: the process dies whatever it is asked, or cannot be started;
                or there is no GPU any more.
            BudgetExhausted: the time is up.
            StorageError: the disk is full, so that the answer means nothing; or a
                folder of the run was removed.
        """
        self._asking(request.task)
        ending = self._asked(request)
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
        """Go on with nothing that has no place to lie: SQLite would not notice."""
        for folder in self._folders:
            if not folder.is_dir():
                raise StorageError(str(folder), *OUT_REMOVED)

    def fork(self, request: Request) -> Ending:
        """Have the process fork, with what candidates are cut from described."""
        self._describe_again(request)
        return super().fork(request)

    def close_first(self, close: Callable[[], None]) -> None:
        """Have something be closed before each of its processes is."""
        self._close_first.append(close)

    def close(self) -> None:
        """End the server and all that it started; safe to call twice."""
        for close in self._close_first:
            close()
        super().close()

    def start(self, clock_s: float = math.inf) -> None:
        """Start the process and have it load.

        Raises:
            BudgetExhausted: the time is up.
        """
        try:
            super().start(min(clock_s, self._left_s()))
        except WorkerError:
            self._left_s()  # what the time has cut short was no fault of the process
            raise

    def _left_s(self) -> float:
        """Say how long the run may still go on.

        Raises:
            BudgetExhausted: the time is up.
        """
        left = self.seconds_left()
        if left is None:
            return math.inf
        if left <= 0:
            raise BudgetExhausted(_TIME_IS_UP)
        return left

    def _asked(self, request: Request) -> Ending:
        why = ""
        for _ in range(_TRIES):
            self._describe_again(request)
            try:
                ending = self._asked_in_time(request)
            except WorkerError as error:
                why = str(error)
                self._begin_anew(error)
            else:
                self._deaths = 0
                return ending
        return Ending("server", log=why)

    def _asked_in_time(self, request: Request) -> Ending:
        left = self._left_s()
        if left >= request.most_s:
            return super().ask(request)
        ending = super().ask(replace(request, clock_s=left))
        if ending.how == "late":
            raise BudgetExhausted(_TIME_IS_UP)
        return ending

    def _describe_again(self, request: Request) -> None:
        """Have the process hold what a candidate is cut from, as one before it did."""
        form = request.options.graph
        while isinstance(request.task, _CUT) and form in self._lost:
            again = self._described[form]
            self._asking(again.task)
            try:
                ending = self._asked_in_time(again)
                self._heard(ending)
                refuse_if_full(ending, self._folders)
                if not _is_described(ending):
                    reason = f"{_NOT_AGAIN}: the worker ended with {ending.how}"
                    raise WorkerError(reason, ending.log)
            except WorkerError as error:
                self._begin_anew(error)
            else:
                self._lost.discard(form)

    def _begin_anew(self, error: WorkerError) -> None:
        """Start the next process; again if something kills that one, too."""
        self._lost = {*self._described}
        if (self.directory / LOWERING).exists():  # it has died of that
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
        except LoadError as failed:  # what it has loaded before
            raise WorkerError(
                f"the worker could not be restarted: {failed}"
            ) from failed


_TIME_IS_UP = "time limit reached"

_CUT = (CheckCandidate, SaveCandidate, WriteCandidate, ForkServer)
"""Tasks that need what has been described: they are about candidates."""

_NOT_AGAIN = "the program could not be described again"


def _is_described(ending: Ending) -> bool:
    return isinstance(ending.answer, Description)


def refuse_if_full(ending: Ending, folders: tuple[Path, ...]) -> None:
    """Take no answer from a child that had no space to find one.

    Raises:
        StorageError: a disk is full.
    """
    if ending.how == "exit" and not ending.code and not ending.raised:
        return
    said = ending.log + (ending.raised.message if ending.raised else "")
    for folder in folders:
        if found := _TOO_MUCH.search(said):
            raise StorageError(str(folder), found[1], _MORE)
        if shutil.disk_usage(folder).free < _LEAST_BYTES:
            raise _full(str(folder), folders)
    if line := _SAID_FULL.search(said):  # elsewhere, or there is some space again
        _, _, what = line[0].partition(": ")  # and who says so, the linker perhaps
        named = _PATH.findall(what)
        raise _full(named[-1] if named else str(folders[0]), folders)


_SAID_FULL = re.compile(rf"^.*{_FULL}.*$", re.MULTILINE)

_PATH = re.compile(r"(?<![^\s'\"])/[^\s:'\"]+")


def _full(place: str, folders: tuple[Path, ...]) -> StorageError:
    """Say which disk is full; what a check writes itself lies in the first folder."""
    elsewhere = ", or set TMPDIR to a folder on a disk with more space"
    is_temporary = place.startswith(str(folders[0]))
    advice = "free some space" + (elsewhere if is_temporary else "")
    return StorageError(place, "the disk is full", advice)


def _refuse_if_lost(ending: Ending) -> None:
    """Ask nothing more where there is no GPU any more: nothing would be answered.

    Raises:
        WorkerError: what the driver says.
    """
    if ending.how == "exit" and not ending.code and not ending.raised:
        return
    said = ending.log + (ending.raised.message if ending.raised else "")
    if why := lost(said):
        raise WorkerError(f"the GPU is no longer available ({why}): {_SEE_DRIVER}")


_SEE_DRIVER = (
    "see nvidia-smi and dmesg; resume with shrinkfx --resume DIR when the GPU is back"
)


def _cannot_write(error: OSError, folder: Path) -> tuple[str, str, str]:
    if error.errno == errno.ENOENT and not folder.parent.exists():
        return str(folder), *REMOVED
    return str(error.filename or folder), error.strerror or str(error), _FREE


_FREE = "check whether the disk is full, and free some space"
