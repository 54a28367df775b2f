"""Map a compiled package to its program, also across processes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .event_log import EventLog

_END_BYTES = 64 << 10
"""Bytes at the end of a package to hash; its member list, with checksums, is there."""


@dataclass(frozen=True)
class Package:
    """A file that a program was compiled to: its path, and a digest of its end."""

    program: int
    path: str
    content: str


def record_package_files(log: EventLog, number: int, made: Iterable[object]) -> None:
    """Record the files that a program was compiled to."""
    for place, file in enumerate(made):
        keys = _fingerprint(file)
        if keys:
            log.write(f"package-{number}-{place}.json", Package(number, *keys))


def find_program_number(log: EventLog, package: object) -> int:
    """Return the number of the last program that was compiled to a package.

    The package is recognized by its path or by its end. Returns 0 if it is unknown.
    """
    keys = _fingerprint(package)
    numbers = [0]
    for name in os.listdir(log.folder):
        if name.startswith("package-"):
            with contextlib.suppress(OSError, ValueError):
                with open(log.path(name)) as file:
                    record = json.load(file)
                if {record["path"], record["content"]} & {*filter(None, keys)}:
                    numbers.append(record["program"])
    return max(numbers)


def _fingerprint(package: Any) -> tuple[str, str] | tuple[()]:
    """Return the path and the content digest of a file; for a library only the path.

    Libraries of programs that differ only in their weights may have the same end.
    """
    if isinstance(package, (str, os.PathLike)):
        path = os.path.realpath(os.fspath(package))
        if not os.path.isfile(path):
            return ()
        if not path.endswith(".pt2"):
            return path, ""
        with open(path, "rb") as file:
            return path, _content(file)
    if hasattr(package, "seek") and hasattr(package, "read"):
        place = package.tell()
        try:
            return "", _content(package)
        finally:
            package.seek(place)
    return ()


def _content(file: Any) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _END_BYTES))
    return f"{size} {hashlib.sha256(file.read()).hexdigest()}"
