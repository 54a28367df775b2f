"""Excerpts of generated code that the C++ compiler rejects."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from shrinkfx.failure.readers.compilers import parse_gcc_error
from shrinkfx.program.display_text import printable
from shrinkfx.protocol.files import Excerpt

_AROUND = 3
"""The number of lines shown before and after the rejected line."""

_LONGEST = 400
_FUNCTION = re.compile(r"\bvoid +([\w:]+)\(")


def read_excerpt(message: str) -> Excerpt | None:
    """Return the lines around the line that g++ rejects; None if it names no line.

    A check calls this before the generated file is deleted.
    """
    complaint = parse_gcc_error(message)
    if complaint is None or not complaint.file:
        return None
    lines: list[str] = []
    with contextlib.suppress(OSError):
        text = Path(complaint.file).read_text(errors="replace")
        lines = text.split("\n")
    if not 0 < complaint.line <= len(lines):
        return None
    first = max(1, complaint.line - _AROUND)
    shown = lines[first - 1 : complaint.line + _AROUND]
    above = "\n".join(lines[: complaint.line])
    return Excerpt(
        file=Path(complaint.file).name,
        first=first,
        line=complaint.line,
        lines=tuple(printable(line[:_LONGEST]) for line in shown),
        function=(_FUNCTION.findall(above) or [""])[-1],
    )
