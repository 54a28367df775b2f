"""The event log: steps of a process, each written atomically before the step begins.

    begun-call-2-4711-0.json      process 4711 is in a call of program 2
    ended-call-2-4711-0.json      the call has returned
    raised-call-2-4711-0.json     it raised the exception that is in the file

If a process is gone and a ``begun-`` file remains, the process died in that step.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import sysconfig
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import cache
from types import FrameType
from typing import TYPE_CHECKING

from ....protocol.captured import CALL, Step

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_MOST_CHARACTERS = 2000
"""Maximum number of characters of an exception's text in the log."""

_PACKAGE = f"{os.path.dirname(os.path.abspath(__file__))}{os.sep}"


class _Here(threading.local):
    """Whether this thread is in a step; torch's own calls inside it are not steps."""

    inside = False


class EventLog:
    """Event log of the steps of this process and of its forked children."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._here = _Here()
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Reset the state, with a new lock, because a fork may inherit a held lock."""
        self._lock = threading.Lock()
        self._busy: dict[str, set[int]] = {}
        self._counts: dict[str, int] = {}
        self._raised: set[tuple[str, int, str]] = set()
        self._here.inside = False

    @property
    def inside(self) -> bool:
        return self._here.inside

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def write(self, name: str, record: DataclassInstance) -> None:
        """Write a record atomically."""
        draft = self.path(f"draft-{os.getpid()}-{threading.get_ident()}-{name}")
        with open(draft, "w") as file:
            json.dump(asdict(record), file)
        os.replace(draft, self.path(name))

    def claim(self) -> int:
        """Reserve the next program number among all processes of the script."""
        number = 1
        while True:
            try:
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
                os.close(os.open(self.path(f"claimed-{number}"), flags))
            except FileExistsError:
                number += 1
            else:
                return number

    @contextlib.contextmanager
    def step(
        self, what: str, program: int, keep: Callable[[str], str] | None = None
    ) -> Iterator[None]:
        """Record that a step begins, and how it ends.

        Args:
            program: the number of the program; 0 if the program was not captured.
            keep: saves the data of the step to a file, whose name it gets without a
                suffix, and returns why it could not.
        """
        name, slot = self._enter(what, program)
        record = Step(
            what, program, os.getpid(), self._counts[name], find_calling_line()
        )
        file = f"{name}-{slot}"
        self._here.inside = True
        is_free = True
        try:
            with report_errors():
                record = replace(record, unsaved=keep(file) if keep else "")
            record = replace(record, at=time.monotonic_ns())
            with report_errors():
                self.write(f"begun-{file}.json", record)
            yield
        except BaseException as error:
            is_free = self._note_raised(file, record, error)
            raise
        else:
            with report_errors():
                os.replace(
                    self.path(f"begun-{file}.json"), self.path(f"ended-{file}.json")
                )
        finally:
            self._here.inside = False
            if is_free:
                self._leave(name, slot)

    def _enter(self, what: str, program: int) -> tuple[str, int]:
        """Return the name and the slot of a new step.

        Slots of calls are reused once a call has returned, so that only the inputs of
        the last calls stay on disk; other steps get a new slot each.
        """
        name = f"{what}-{program}-{os.getpid()}"
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + 1
            if what != CALL:
                return name, self._counts[name]
            busy = self._busy.setdefault(name, set())
            slot = next(n for n in range(len(busy) + 1) if n not in busy)
            busy.add(slot)
            return name, slot

    def _leave(self, name: str, slot: int) -> None:
        with self._lock:
            self._busy.get(name, set()).discard(slot)

    def _note_raised(self, file: str, record: Step, error: BaseException) -> bool:
        """Record an exception; of a program's calls, only the first one of each type.

        Returns:
            Whether the slot may be reused, because inputs for this exception type are
            kept.
        """
        is_known = True
        with report_errors():
            kind = type(error).__name__
            key = record.what, record.program, kind
            is_known = record.what == CALL and key in self._raised
            self._raised.add(key)
            if not is_known:
                text = str(error)[:_MOST_CHARACTERS]
                raised = replace(record, error=f"{kind}: {text}" if text else kind)
                self.write(f"raised-{file}.json", raised)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(f"begun-{file}.json"))
        return is_known


@contextlib.contextmanager
def report_errors() -> Iterator[None]:
    """Print an error of shrinkfx and continue with the script.

    Warnings of Python or torch inside the block are suppressed, because they do not
    come from the script.
    """
    try:
        with _unwarned():
            yield
    except Exception as error:  # noqa: BLE001 - the script is not to fail of it
        text = f"shrinkfx: {type(error).__name__}: {error}".partition("\n")[0][:300]
        if text not in _PRINTED:
            _PRINTED.add(text)
            print(text, file=sys.stderr)


_PRINTED: set[str] = set()


@contextlib.contextmanager
def _unwarned() -> Iterator[None]:
    """Ignore warnings inside the block without resetting which ones were already shown.

    ``warnings.catch_warnings`` clears the registry of shown warnings, so that the
    script would show its own warnings again.
    """
    ignored = ("ignore", None, Warning, None, 0)
    warnings.filters.insert(0, ignored)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the filters were replaced meanwhile
            warnings.filters.remove(ignored)  # type: ignore[attr-defined]


def find_calling_line() -> str:
    """Return the nearest line of the user's code that called torch, as ``file:line``.

    If only installed packages are on the stack, it is the outermost line of those.

    Returns:
        '' in a thread with no such line, for example one that runs a function of torch.
    """
    frame: FrameType | None = sys._getframe(1)
    packages = ""
    while frame is not None:
        file = frame.f_code.co_filename
        line = f"{os.path.basename(file)}:{frame.f_lineno}"
        if not file.startswith((_PACKAGE, torch_folder())) and not _is_pythons(file):
            if _PACKAGES not in file:
                return line
            packages = line
        frame = frame.f_back
    return packages


_PACKAGES = "-packages/"


@cache
def _is_pythons(file: str) -> bool:
    """Return whether a file is of the standard library; installed packages are not."""
    homes = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    prefixes = tuple(f"{os.path.realpath(home)}{os.sep}" for home in homes)
    is_standard = os.path.realpath(file).startswith(prefixes) and _PACKAGES not in file
    return is_standard or file.startswith("<frozen ")


def torch_folder() -> str:
    """Return the folder of torch, with a trailing separator."""
    return os.path.join(os.path.dirname(str(sys.modules["torch"].__file__)), "")
