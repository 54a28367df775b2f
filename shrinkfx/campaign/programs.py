"""Find the programs to triage: files, folders, and lists of programs with options."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shrinkfx.errors import LoadError, UsageError
from shrinkfx.program.record import Record
from shrinkfx.system.folders import CAPTURE, CAPTURE_END, JOURNAL

Entry = tuple[Path, tuple[str, ...]]
"""A program, and options of its own."""


@dataclass(frozen=True)
class Program(Record):
    """A program to triage.

    Attributes:
        path: its absolute path.
        options: options of its run, as typed.
        name: a unique name; also the name of the run's folder.
    """

    path: str
    options: tuple[str, ...]
    name: str


_SETTLED_S = 5.0
"""Time in seconds after which a file that has not changed counts as complete."""


def find_new_programs(
    folders: Sequence[Path], options: Sequence[str], known: Sequence[Program]
) -> list[Program]:
    """Return programs that have appeared in folders since those in ``known``.

    A file that still changes is not returned yet, and neither is a capture that has
    not ended. A folder that was removed contains none.

    Args:
        folders, options: as for ``find_programs``.
    """
    old = {program.path for program in known}
    entries = [
        entry
        for folder in folders
        for entry in _in(folder)
        if str(entry[0]) not in old and _is_complete(entry[0])
    ]
    return _name(entries, options, {program.name for program in known})


def _is_complete(path: Path) -> bool:
    if path.parent.name == CAPTURE:
        return False  # a part of a capture that has not ended
    files = [*path.iterdir()] if path.is_dir() else [path]
    newest = max((file.stat().st_mtime for file in files), default=0.0)
    return time.time() - newest > _SETTLED_S


def find_programs(paths: Sequence[Path], options: Sequence[str]) -> list[Program]:
    """Return the programs in files and folders, the smallest file first.

    Args:
        paths: a ``.pt2``, or another file that shrinkfx reduces; a folder, for the
            ``.pt2`` files, captures and debug dumps in it at any depth, without those
            in folders of runs; or a ``.jsonl``, a list of programs: in each line an
            object with the path ``program``, relative to the folder of the list, and
            with its ``options``, a list of strings. A program in a list runs only with
            the options given there.
        options: options of all runs, as typed.

    Raises:
        UsageError: a path does not exist, or contains no program.
        LoadError: a list cannot be read.
    """
    listed: dict[Entry, None] = {}
    found: dict[Entry, None] = {}
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
        is_list = path.suffix == ".jsonl"
        entries = dict.fromkeys(_read_list(path) if is_list else _in(path))
        if not entries:
            if is_list:
                raise UsageError(f"{path} lists no program")
            raise UsageError(f"{path} contains no .pt2, capture or debug dump")
        (listed if is_list else found).update(entries)
    with_options = {path for path, _ in listed}
    entries = listed | {e: None for e in found if e[0] not in with_options}
    return _name(entries, options, set())


def _name(
    entries: Iterable[Entry], options: Sequence[str], names: set[str]
) -> list[Program]:
    """Return programs, the smallest file first, with names other than ``names``."""
    programs = []
    for path, own in sorted(entries, key=lambda e: (size_of(e[0]), e)):
        stem = Path(short_name(path)).stem.replace("+", "-")
        name, number = stem, 1
        while name in names:
            number += 1
            name = f"{stem}-{number}"
        names.add(name)
        programs.append(Program(str(path), (*options, *own), name))
    return programs


def _in(path: Path) -> Iterator[Entry]:
    if path.is_file():
        yield path.resolve(), ()
    else:
        yield from ((program, ()) for program in sorted(_walk(path.resolve())))


def _walk(top: Path) -> Iterator[Path]:
    """Yield the programs below a folder; one that is removed meanwhile has none.

    The parts of a capture are no programs, and neither are the checkpoints of a
    minifier, nor the graphs that PyTorch dumps in a run of it.
    """
    for name, folders, files in os.walk(top):
        here = Path(name)
        if JOURNAL in files:
            folders.clear()
            continue
        if CAPTURE_END in files:
            folders.clear()
            yield here
            continue
        if _LAUNCHER in files:
            folders.clear()
            files = [_LAUNCHER]
        if (here / "minifier" / _LAUNCHER).is_file() and "torchinductor" in folders:
            folders.remove("torchinductor")
        for file in files:
            is_program = file in _DUMPS or file.endswith(".pt2")
            if is_program and (here / file).is_file():
                yield here / file


_LAUNCHER = "minifier_launcher.py"
_DUMPS = _LAUNCHER, "fx_graph_runnable.py"
"""Files of PyTorch's debug dumps that are programs."""


def short_name(path: Path) -> str:
    """Return the name of a program's file, or of the folder of a capture or dump."""
    if path.name == _LAUNCHER:  # run_.../minifier/minifier_launcher.py
        return path.parents[1].name
    return (path.parent if path.name in (CAPTURE, *_DUMPS) else path).name


def size_of(path: Path) -> int:
    """Return the bytes of a program, or of all programs of a capture or dump."""
    files = [path]
    if path.is_dir():
        files = [*path.glob("*.pt2")]
    elif path.name == _LAUNCHER:
        files = [path, *path.parent.rglob("*.pt2")]
    return sum(file.stat().st_size for file in files)


def _read_list(path: Path) -> Iterator[Entry]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise LoadError(str(path), f"cannot be read as text: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            program = path.parent / entry["program"]
            options = entry.get("options", [])
            if not isinstance(options, list) or not all(
                isinstance(word, str) for word in options
            ):
                raise TypeError("options must be a list of strings")
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            reason = f"line {number} is not an entry: {error}"
            advice = 'expected, for example: {"program": "a.pt2", "options": []}'
            raise LoadError(str(path), reason, advice) from error
        if not program.is_file():
            raise LoadError(str(path), f"line {number}: {program} does not exist")
        yield program.resolve(), tuple(options)
