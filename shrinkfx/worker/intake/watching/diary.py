"""What a process is about to do, written before it does it, each file in one step.

    begun-call-2-4711-0.json      process 4711 is in a call of program 2
    ended-call-2-4711-0.json      it has come back from it
    raised-call-2-4711-0.json     with an exception, which is in the file

What a process leaves as begun when it is gone is what it died of.
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
from dataclasses import asdict, dataclass, replace
from functools import cache
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_MOST_CHARACTERS = 2000
"""Of an exception's text that are kept."""

_OWN = f"{os.path.dirname(os.path.abspath(__file__))}{os.sep}"


@dataclass(frozen=True)
class StepRecord:
    """A step, as it is written down.

    Attributes:
        count: the how many-th of its kind and program in this process.
        at: nanoseconds of a clock that all processes share.
        unsaved: why the inputs of a call could not be saved.
        error: the exception that it has ended with.
    """

    what: str
    program: int
    pid: int
    count: int
    where: str
    at: int = 0
    unsaved: str = ""
    error: str = ""


class _Here(threading.local):
    """Whether this thread is in a step: what torch does in there is no step."""

    inside = False


class Diary:
    """Writes down the steps of this process and of those that it forks."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._here = _Here()
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Begin as a process of its own, with a lock that nobody holds."""
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
        """Write a record to a file that is whole or not there."""
        draft = self.path(f"draft-{os.getpid()}-{threading.get_ident()}-{name}")
        with open(draft, "w") as file:
            json.dump(asdict(record), file)
        os.replace(draft, self.path(name))

    def claim(self) -> int:
        """Take the next number of a program, of all processes."""
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
        """Say what begins, and how it has ended.

        Args:
            program: its number; 0 if it is none that was captured.
            keep: writes what the step needs to a file beside, which it is told without
                a suffix, and returns why it could not.
        """
        name, slot = self._enter(what, program)
        record = StepRecord(what, program, os.getpid(), self._counts[name], where())
        file = f"{name}-{slot}"
        self._here.inside = True
        is_free = True
        try:
            with told():
                record = replace(record, unsaved=keep(file) if keep else "")
            record = replace(record, at=time.monotonic_ns())
            with told():
                self.write(f"begun-{file}.json", record)
            yield
        except BaseException as error:
            is_free = self._note_raised(file, record, error)
            raise
        else:
            with told():
                os.replace(
                    self.path(f"begun-{file}.json"), self.path(f"ended-{file}.json")
                )
        finally:
            self._here.inside = False
            if is_free:
                self._leave(name, slot)

    def _enter(self, what: str, program: int) -> tuple[str, int]:
        """Take a place; the next call takes it again, what is no call never does."""
        name = f"{what}-{program}-{os.getpid()}"
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + 1
            if what != "call":
                return name, self._counts[name]
            busy = self._busy.setdefault(name, set())
            slot = next(n for n in range(len(busy) + 1) if n not in busy)
            busy.add(slot)
            return name, slot

    def _leave(self, name: str, slot: int) -> None:
        with self._lock:
            self._busy.get(name, set()).discard(slot)

    def _note_raised(self, file: str, record: StepRecord, error: BaseException) -> bool:
        """Write an exception down, the first of its kind in a program's calls.

        Returns:
            Whether the call's inputs need not be kept: there are some of another.
        """
        is_known = True
        with told():
            kind = type(error).__name__
            which = record.what, record.program, kind
            is_known = record.what == "call" and which in self._raised
            self._raised.add(which)
            if not is_known:
                text = str(error)[:_MOST_CHARACTERS]
                raised = replace(record, error=f"{kind}: {text}" if text else kind)
                self.write(f"raised-{file}.json", raised)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(f"begun-{file}.json"))
        return is_known


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Go on with the script where something of ours fails, and say so.

    What Python or torch warns of meanwhile is no warning of the script's.
    """
    try:
        with _unwarned():
            yield
    except Exception as error:  # noqa: BLE001 - the script is not to fail of it
        text = f"shrinkfx: {type(error).__name__}: {error}".partition("\n")[0][:300]
        if text not in _SAID:
            _SAID.add(text)
            print(text, file=sys.stderr)


_SAID: set[str] = set()


@contextlib.contextmanager
def _unwarned() -> Iterator[None]:
    """Have warnings ignored, and those that were shown stay shown.

    ``warnings.catch_warnings`` forgets of which lines there was a warning already, so
    that the script would show each of its own again.
    """
    ignored = ("ignore", None, Warning, None, 0)
    warnings.filters.insert(0, ignored)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # somebody has set them anew
            warnings.filters.remove(ignored)  # type: ignore[attr-defined]


def where() -> str:
    """Name the nearest line of somebody's own that asks torch.

    Where a package that is installed does all of it, the line that it begins at.

    Returns:
        '' where a thread runs what it was handed, and no line of anybody's has called.
    """
    frame: FrameType | None = sys._getframe(1)
    packages = ""
    while frame is not None:
        file = frame.f_code.co_filename
        line = f"{os.path.basename(file)}:{frame.f_lineno}"
        if not file.startswith((_OWN, torch_folder())) and not _is_pythons(file):
            if _PACKAGES not in file:
                return line
            packages = line
        frame = frame.f_back
    return packages


_PACKAGES = "-packages/"


@cache
def _is_pythons(file: str) -> bool:
    """Tell files of the standard library; what is installed lies below its folder."""
    homes = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    at_home = tuple(f"{os.path.realpath(home)}{os.sep}" for home in homes)
    inside = os.path.realpath(file).startswith(at_home) and _PACKAGES not in file
    return inside or file.startswith("<frozen ")


def torch_folder() -> str:
    """Name the folder of torch, whose frames nobody has written who is asked here."""
    return os.path.join(os.path.dirname(str(sys.modules["torch"].__file__)), "")
