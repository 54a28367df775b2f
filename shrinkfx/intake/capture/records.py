"""Read the records of a captured script: programs, steps, and how it ended.

``worker/intake/watching/`` writes them in the script's own processes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from shrinkfx.intake.found import COMPILERS, SECRETS, VARIABLES
from shrinkfx.intake.modules import RestoredValue
from shrinkfx.program.skeleton import ARITHMETIC, PYTORCH_NAMESPACES, SIZE_FUNCTIONS
from shrinkfx.protocol.choices import InductorOptions

BEGUN, ENDED, RAISED = "begun", "ended", "raised"
"""States of a step."""

CALL, COMPILE, EXPORT, LOAD, SAVE = "call", "compile", "export", "load", "save"
"""Kinds of steps; ``save`` is a step of shrinkfx itself."""

STARTED = "started"
"""A file with a line for each Python process that ran the capture's startup code."""

_DELIBERATE = ("KeyboardInterrupt", "SystemExit")
"""Exceptions that are not failures."""


@dataclass(frozen=True)
class Step:
    """A call into PyTorch by a process of the script.

    Attributes:
        program: the number of the program; 0 if the program was not captured.
        at: nanoseconds of a clock that all processes share.
        count: the sequence number among the steps of its kind and program in its
            process.
        where: the line of the script.
        inputs: the inputs of a call, if they could be saved.
        unsaved: why they could not be saved.
        error: the exception that ended it.
    """

    what: str
    program: int
    state: str
    pid: int
    at: int
    count: int
    where: str
    inputs: Path | None = None
    unsaved: str = ""
    error: str = ""

    @classmethod
    def from_json(cls, path: Path, data: Mapping[str, Any]) -> Self:
        state, _, name = path.stem.partition("-")
        inputs = path.with_name(f"{name}.pt")
        return cls(
            what=data["what"],
            program=data["program"],
            state=state,
            pid=data["pid"],
            at=data["at"],
            count=data["count"],
            where=data["where"],
            inputs=inputs if inputs.is_file() else None,
            unsaved=data["unsaved"],
            error=data["error"],
        )

    @property
    def has_failed(self) -> bool:
        kind = self.error.partition(":")[0]
        is_failure = self.state == RAISED and kind not in _DELIBERATE
        return self.state == BEGUN or is_failure

    @property
    def name(self) -> str:
        """The step in words, such as ``call 3 of program 1``."""
        if self.what == EXPORT:
            return "torch.export.export"
        pkg = f"program {self.program}" if self.program else "a package from elsewhere"
        return (
            f"call {self.count} of {pkg}" if self.what == CALL else _OF[self.what] + pkg
        )


_OF = {
    COMPILE: "compiling ",
    LOAD: "loading ",
    SAVE: "saving (by shrinkfx) ",
}


@dataclass(frozen=True)
class Origin:
    """A module to import, or a library.

    Attributes:
        called: a function of the module registered something when it was called, so
            that an import alone does not.
        why: what the program needs from it.
    """

    module: str
    file: str
    library: str
    is_local: bool
    why: str
    called: bool


@dataclass(frozen=True)
class CapturedProgram:
    """A program that was passed to AOTInductor, and its compile settings.

    Attributes:
        file: the ``.pt2``, or a source archive; None if the program could not be saved,
            with the reason in ``unsaved``.
        others: options of Inductor that are not simple values.
    """

    number: int
    file: Path | None
    unsaved: str
    where: str
    operators: int
    inductor: InductorOptions
    others: Mapping[str, RestoredValue]
    environment: Mapping[str, str]
    origins: tuple[Origin, ...]

    @classmethod
    def from_json(cls, folder: Path, data: Mapping[str, Any]) -> Self:
        names = [f"program-{data['program']}{suffix}" for suffix in (".pt2", ".zip")]
        files = [folder / name for name in names]
        return cls(
            number=data["program"],
            file=next((file for file in files if file.is_file()), None),
            unsaved=data["unsaved"],
            where=data["where"],
            operators=data["operators"],
            inductor=data["inductor"],
            others={k: RestoredValue(**each) for k, each in data["others"].items()},
            environment=data["environment"],
            origins=tuple(Origin(**each) for each in data["origins"]),
        )


@dataclass(frozen=True)
class ScriptEnd:
    """How a script ended.

    Attributes:
        command: the command that was run.
        code: its exit status; negative: the signal that killed it.
        died: the first process that was found dead in a step, or 0.
        hung: the process that was killed because a step did not end, or 0.
        hung_s: seconds until it was killed.
    """

    command: tuple[str, ...]
    code: int
    died: int = 0
    hung: int = 0
    hung_s: float = 0.0

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{**data, "command": tuple(data["command"])})


@dataclass(frozen=True)
class Capture:
    """All records of a script in a folder."""

    folder: Path
    programs: tuple[CapturedProgram, ...] = ()
    steps: tuple[Step, ...] = ()
    torch: tuple[str, ...] = ()
    """The versions of torch that were imported."""
    was_watched: bool = False
    """Whether any Python process ran the capture's startup code."""
    without_torch: tuple[str, ...] = ()
    """The interpreters that ran, if none of them finds torch; else empty."""
    importing: tuple[str, ...] = ()
    """The interpreters that began to import torch, with or without success."""
    by_number: Mapping[int, CapturedProgram] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        numbered = {program.number: program for program in self.programs}
        object.__setattr__(self, "by_number", numbered)

    @classmethod
    def read(cls, folder: Path) -> Self:
        programs = [
            CapturedProgram.from_json(folder, data)
            for _, data in _records(folder, "program-*.json")
        ]
        steps = [
            Step.from_json(path, data)
            for state in (BEGUN, ENDED, RAISED)
            for path, data in _records(folder, f"{state}-*.json")
        ]
        processes = _records(folder, "process-*.json")
        return cls(
            folder=folder,
            programs=tuple(sorted(programs, key=lambda program: program.number)),
            steps=tuple(sorted(steps, key=lambda step: step.at)),
            torch=tuple(dict.fromkeys(data["torch"] for _, data in processes)),
            was_watched=(folder / STARTED).exists(),
            without_torch=_without_torch(folder / STARTED),
            importing=_importing(folder / STARTED),
        )

    def steps_of(self, number: int) -> list[Step]:
        return [step for step in self.steps if step.program == number]


def _without_torch(started: Path) -> tuple[str, ...]:
    """Return the interpreters that ran, if none of them finds torch."""
    ran = _read_started(started)
    has_none = all(what == "none" for what, _ in ran)
    return tuple(python for _, python in ran) if has_none else ()


def _importing(started: Path) -> tuple[str, ...]:
    """Return the interpreters that began to import torch."""
    return tuple(
        python for what, python in _read_started(started) if what == "importing"
    )


def _read_started(started: Path) -> list[tuple[str, str]]:
    """Return the distinct lines as pairs of a note and an interpreter's path."""
    if not started.exists():
        return []
    lines = started.read_text(errors="surrogateescape").splitlines()
    noted = (line.partition(" ") for line in dict.fromkeys(lines))
    return [(what, python) for what, _, python in noted]


def open_steps(folder: Path) -> list[Step]:
    """Return the steps that have begun and not ended."""
    records = _records(folder, f"{BEGUN}-*.json")
    return [Step.from_json(path, data) for path, data in records]


def _records(folder: Path, pattern: str) -> Iterator[tuple[Path, Any]]:
    """Yield the records of a pattern; skip files that disappear meanwhile."""
    for path in sorted(folder.glob(pattern)):
        with contextlib.suppress(FileNotFoundError):
            yield path, json.loads(path.read_text())


# Write the names that the captured script's processes need.


COUNTS = "counts.json"
"""The first file in the folder of a capture."""


def write_counts(folder: Path) -> None:
    """Write the names to the capture's folder, where the script's processes read them.

    The script's interpreter may not have shrinkfx, so they cannot be imported there.
    """
    names = {
        "variables": (*VARIABLES, *COMPILERS),
        "secrets": SECRETS,
        "namespaces": sorted(PYTORCH_NAMESPACES),
        "of_sizes": sorted(SIZE_FUNCTIONS),
        "arithmetic": sorted(ARITHMETIC),
    }
    (folder / COUNTS).write_text(json.dumps(names))
