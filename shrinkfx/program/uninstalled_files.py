"""Files that a preload uses and that exist only on its author's machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

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
class Loading:
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
class UninstalledFiles:
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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read the output of ``to_json``."""
        loadings = tuple(
            Loading(
                each["file"], tuple(each["span"]), each["library"], each["is_module"]
            )
            for each in data.get("loadings", ())
        )
        return cls(
            dict(data.get("modules", {})),
            tuple(data.get("libraries", ())),
            tuple(data.get("files", ())),
            loadings,
            tuple((file, line) for file, line in data.get("callers", ())),
        )
