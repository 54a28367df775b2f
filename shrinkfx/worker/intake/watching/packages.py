"""Which program a compiled package was made of, also in another process."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .diary import Diary

_END_BYTES = 64 << 10
"""Of a package: the list of its members is there, with a checksum of each."""


@dataclass(frozen=True)
class Package:
    """What a program has become: a file in its place, and what is at its end."""

    program: int
    path: str
    content: str


def remember(diary: Diary, number: int, made: Iterable[object]) -> None:
    """Note what a program has become, files of any kind."""
    for place, file in enumerate(made):
        said = _fingerprint(file)
        if said:
            diary.write(f"package-{number}-{place}.json", Package(number, *said))


def number_of(diary: Diary, package: object) -> int:
    """Find the last program that a package was made of: by its place, or its end."""
    said = _fingerprint(package)
    found = [0]
    for name in os.listdir(diary.folder):
        if name.startswith("package-"):
            with contextlib.suppress(OSError, ValueError):
                with open(diary.path(name)) as file:
                    record = json.load(file)
                if {record["path"], record["content"]} & {*filter(None, said)}:
                    found.append(record["program"])
    return max(found)


def _fingerprint(package: Any) -> tuple[str, str] | tuple[()]:
    """Tell a file by its place and by its content; a library only by its place.

    Libraries of programs with other weights may be alike at their ends.
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
