"""Files that a preload uses and that exist only on its author's machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shrinkfx.program.record import Record

ONLY_ON = "Only on:"
"""The marker in the header of a repro that still contains its author's paths."""

_LIBRARY = re.compile(r"\.so(\.\d+)*\Z")


def is_library(name: str) -> bool:
    """Return whether a file name is that of a library, such as ``libops.so.2``."""
    return _LIBRARY.search(name) is not None


def is_path(preload: str) -> bool:
    """Return whether a preload is a path, as opposed to the name of a module."""
    return preload.endswith(".py") or is_library(preload)


@dataclass(frozen=True)
class Loading(Record):
    """The call in a module that loaded a library.

    Attributes:
        file: the file of the module.
        span: first line, column, last line and column, as ``ast`` counts them (in
            bytes).
        library: the file that was loaded.
        is_module: whether it was loaded as a Python module.
    """

    file: str
    span: tuple[int, int, int, int]
    library: str
    is_module: bool = False


@dataclass(frozen=True)
class UninstalledFiles(Record):
    """Used files that are not installed.

    Attributes:
        modules: module name -> file, for each imported module.
        libraries: compiled libraries, and the libraries that they are linked against.
        files: other files that were read.
        loadings: the calls that loaded libraries, in order.
        callers: file and line of each call that led there.
    """

    modules: Mapping[str, str] = field(default_factory=dict)
    libraries: Sequence[str] = ()
    files: Sequence[str] = ()
    loadings: Sequence[Loading] = ()
    callers: Sequence[tuple[str, int]] = ()
