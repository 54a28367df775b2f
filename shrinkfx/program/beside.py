"""What a preload uses that lies with its maker only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

ONLY_ON = "Only on:"
"""In the header of a repro: it was not freed of its maker's paths."""

_LIBRARY = re.compile(r"\.so(\.\d+)*\Z")


def is_library(name: str) -> bool:
    """Tell a library by its name, as ``ops.so`` or ``libops.so.2``."""
    return _LIBRARY.search(name) is not None


def is_path(preload: str) -> bool:
    """Tell a preload that is a file from one that is a module's name."""
    return preload.endswith(".py") or is_library(preload)


@dataclass(frozen=True)
class Loading:
    """The call in a module that loaded a library.

    Attributes:
        file: of the module.
        span: first line, column, last line, column: as ``ast`` counts them, in bytes.
        library: the file that was loaded.
        is_module: as a module of Python.
    """

    file: str
    span: tuple[int, int, int, int]
    library: str
    is_module: bool = False


@dataclass(frozen=True)
class Beside:
    """Files that have been used, none of which is installed.

    Attributes:
        modules: the file of each module that was imported, by the module's name.
        libraries: compiled ones, and those that they are linked against.
        files: others that were read.
        loadings: where libraries were loaded, in their order.
        callers: file and line of each call on the way there.
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
        """Read what ``to_json`` has written."""
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
