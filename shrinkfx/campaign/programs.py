"""Find the programs to triage: files, folders, and lists of programs with options."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shrinkfx.errors import LoadError, UsageError
from shrinkfx.program.record import Record

_JOURNAL = "journal.sqlite"
"""File in the folder of a run, whose programs were reduced already."""


@dataclass(frozen=True)
class Program(Record):
    """A program to triage.

    Attributes:
        path: the absolute path of what ``shrinkfx`` reduces: a ``.pt2`` or a dump.
        options: options of its run, as typed.
        name: a name that no other program has; that of the folder of its run.
    """

    path: str
    options: tuple[str, ...]
    name: str


def find_programs(paths: Sequence[Path], options: Sequence[str]) -> list[Program]:
    """Return the programs in files and folders, the smallest file first.

    Args:
        paths: a ``.pt2`` or a dump; a folder, for the ``.pt2`` files in it at any
            depth, without those in folders of runs; or a ``.jsonl``, a list of
            programs: in each line an object with the path ``program``, relative to the
            folder of the list, and with its ``options``, a list of words.
        options: options of all runs, as typed.

    Raises:
        UsageError: a path does not exist, or contains no program.
        LoadError: a list cannot be read.
    """
    found: dict[Path, tuple[str, ...]] = {}
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
        listed = dict(_read_list(path) if path.suffix == ".jsonl" else _in(path))
        if not listed:
            raise UsageError(f"{path} contains no .pt2")
        found |= listed
    smallest_first = sorted(found, key=lambda path: (path.stat().st_size, path))
    names: dict[str, int] = {}
    programs = []
    for path in smallest_first:
        count = names[path.stem] = names.get(path.stem, 0) + 1
        name = path.stem if count == 1 else f"{path.stem}-{count}"
        programs.append(Program(str(path), (*options, *found[path]), name))
    return programs


def _in(path: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    if path.is_file():
        yield path.resolve(), ()
        return
    for inside in sorted(path.resolve().rglob("*.pt2")):
        if not any((above / _JOURNAL).is_file() for above in inside.parents):
            yield inside, ()


def _read_list(path: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    lines: Iterable[str] = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            program = path.parent / entry["program"]
            options = entry.get("options", [])
            if not all(isinstance(word, str) for word in options):
                raise TypeError("options must be a list of words")
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            reason = f"line {number} is not an entry: {error}"
            advice = 'expected, for example: {"program": "a.pt2", "options": []}'
            raise LoadError(str(path), reason, advice) from error
        if not program.is_file():
            raise LoadError(str(path), f"line {number}: {program} does not exist")
        yield program.resolve(), tuple(options)
