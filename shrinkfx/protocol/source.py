"""The parts of a printed program: the worker prints them, the report joins them."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shrinkfx.protocol.record import Message

SOURCE = "source.json"
"""The member of a source archive that holds a ``Source`` (docs/packages/worker.md)."""


def is_source_archive(path: str | Path) -> bool:
    """Return whether a file is a source archive, and not a ``.pt2`` or missing."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return SOURCE in archive.namelist()


@dataclass(frozen=True)
class Expression(Message):
    """One tensor as source.

    Attributes:
        seeded: an expression with the same shape, dtype, strides and range that draws
            from ``torch.manual_seed``; equal to ``exact`` if that is as short.
        exact: an expression with the exact values, or '' if it would be too long.
    """

    seeded: str
    exact: str


@dataclass(frozen=True)
class Weight(Message):
    """A parameter, buffer or constant of the printed module."""

    attribute: str
    kind: str
    text: Expression


@dataclass(frozen=True)
class Input(Message):
    """One argument of ``forward``.

    Attributes:
        example: the value that the program is exported with.
        failing: the value that it is then called with; None if this is the example.
        passing: the value of a first call that passes; None if there is no such call,
            or if this is the example.
    """

    name: str
    example: Expression
    failing: Expression | None
    passing: Expression | None = None


@dataclass(frozen=True)
class Source(Message):
    """A program as Python source.

    Attributes:
        branches: source of the classes that higher-order operators call.
        members: attribute -> class, for each of those.
        body: statements of ``forward``, including the return.
        dims: statements that declare the dynamic dims.
        dynamic_shapes: an expression over ``dims``, or 'None'.
    """

    weights: tuple[Weight, ...]
    inputs: tuple[Input, ...]
    branches: tuple[str, ...]
    members: Mapping[str, str]
    body: tuple[str, ...]
    dims: tuple[str, ...]
    dynamic_shapes: str
