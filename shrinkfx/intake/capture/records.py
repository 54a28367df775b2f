"""Read the records of a captured script: programs, steps, and how it ended.

``worker/intake/watching/`` writes them in the script's own processes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from shrinkfx.protocol.captured import (
    BEGUN,
    ENDED,
    RAISED,
    STARTED,
    CapturedProgram,
    ImportedValue,
    Origin,
    Step,
)


@dataclass(frozen=True)
class ScriptEnd:
    """How a script, or a block of a session, ended.

    Attributes:
        command: the command that was run.
        code: its exit status; negative: the signal that killed it.
        died: the first process that was found dead in a step, or 0.
        hung: the process that was killed because a step did not end, or 0.
        hung_s: seconds until it was killed.
        is_session: it was a ``catch`` block; ``code`` is then 1, however it ended.
    """

    command: tuple[str, ...]
    code: int
    died: int = 0
    hung: int = 0
    hung_s: float = 0.0
    is_session: bool = False

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{**data, "command": tuple(data["command"])})


@dataclass(frozen=True)
class Capture:
    """All records of a script in a folder.

    Attributes:
        torch: the versions of torch that were imported.
        started: for each process, ``torch`` or ``none``, if it finds torch or not, or
            ``importing``, when it began to import torch; and its interpreter.
    """

    folder: Path
    programs: tuple[CapturedProgram, ...] = ()
    steps: tuple[Step, ...] = ()
    torch: tuple[str, ...] = ()
    started: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, folder: Path) -> Self:
        programs = [_program(*each) for each in _records(folder, "program-*.json")]
        steps = [
            _step(path, data)
            for state in (BEGUN, ENDED, RAISED)
            for path, data in _records(folder, f"{state}-*.json")
        ]
        processes = _records(folder, "process-*.json")
        return cls(
            folder=folder,
            programs=tuple(sorted(programs, key=lambda each: each.number)),
            steps=tuple(sorted(steps, key=lambda step: step.at)),
            torch=tuple(dict.fromkeys(data["torch"] for _, data in processes)),
            started=tuple(_started(folder / STARTED)),
        )

    @cached_property
    def by_number(self) -> Mapping[int, CapturedProgram]:
        return {each.number: each for each in self.programs}

    @property
    def pythons_without_torch(self) -> list[str]:
        """The interpreters that ran, if none of them finds torch; else empty."""
        if any(what != "none" for what, _ in self.started):
            return []
        return [python for _, python in self.started]

    def steps_of(self, number: int) -> list[Step]:
        return [step for step in self.steps if step.program == number]


def open_steps(folder: Path) -> list[Step]:
    """Return the steps that have begun and not ended."""
    return [_step(*each) for each in _records(folder, f"{BEGUN}-*.json")]


def _program(path: Path, data: dict[str, Any]) -> CapturedProgram:
    files = [path.with_suffix(suffix) for suffix in (".pt2", ".zip", ".py")]
    data.setdefault("number", data.get("program"))  # as older captures call it
    data["file"] = next((file for file in files if file.is_file()), None)
    data["origins"] = tuple(Origin(**each) for each in data["origins"])
    data["others"] = {k: ImportedValue(**v) for k, v in data["others"].items()}
    known = {field.name for field in fields(CapturedProgram)}
    return CapturedProgram(**{k: v for k, v in data.items() if k in known})


def _step(path: Path, data: dict[str, Any]) -> Step:
    state, _, name = path.stem.partition("-")
    inputs = path.with_name(f"{name}.pt")
    data["inputs"] = inputs if inputs.is_file() else None
    return Step(**{**data, "state": state})


def _started(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the distinct lines as pairs of a note and an interpreter's path."""
    if path.exists():
        lines = path.read_text(errors="surrogateescape").splitlines()
        for line in dict.fromkeys(lines):
            what, _, python = line.partition(" ")
            yield what, python


def _records(folder: Path, pattern: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the records of a pattern; skip files that disappear meanwhile."""
    for path in sorted(folder.glob(pattern)):
        with contextlib.suppress(FileNotFoundError):
            yield path, json.loads(path.read_text())
