"""Excerpts of generated code that the C++ compiler rejects."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from shrinkfx.failure.readers.compilers import parse_gcc_error
from shrinkfx.program.display_text import printable
from shrinkfx.protocol.files import Excerpt

_CONTEXT_LINES = 3
"""The number of lines shown before and after the rejected line."""

_MAX_CHARACTERS = 400
_FUNCTION = re.compile(r"\bvoid +([\w:]+)\(")


def read_excerpt(message: str) -> Excerpt | None:
    """Return the lines around the line that g++ rejects; None if it names no line.

    A check calls this before the generated file is deleted.
    """
    error = parse_gcc_error(message)
    if error is None or not error.file:
        return None
    lines: list[str] = []
    with contextlib.suppress(OSError):
        text = Path(error.file).read_text(errors="replace")
        lines = text.split("\n")
    if not 0 < error.line <= len(lines):
        return None
    first = max(1, error.line - _CONTEXT_LINES)
    shown = lines[first - 1 : error.line + _CONTEXT_LINES]
    above = "\n".join(lines[: error.line])
    return Excerpt(
        file=Path(error.file).name,
        first=first,
        line=error.line,
        lines=tuple(printable(line[:_MAX_CHARACTERS]) for line in shown),
        function=(_FUNCTION.findall(above) or [""])[-1],
    )
