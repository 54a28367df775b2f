"""Quoted lines of generated code, and the file that their numbers refer to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shrinkfx.protocol.record import Message


@dataclass(frozen=True)
class CodeLine(Message):
    """A line of generated code.

    Attributes:
        number: line number, from 1, in the quoted file.
        mark: a compiler's caret line below it; '' for none.
    """

    number: int
    text: str
    at_fault: bool = False
    mark: str = ""


Quoted = tuple[CodeLine, ...]
"""Consecutive lines."""


def text_of(file: str) -> str:
    """Name the text that line numbers refer to.

    Args:
        file: a path if the file was kept next to the result; a bare name if a compiler
            named a file that was not kept; '' for a kernel without a known file.
    """
    if not file:
        return "the kernel source"
    return file if "/" in file else "the generated file"


def find_quoted_lines(
    quoted: Quoted, kernel: str, files: Mapping[str, str]
) -> tuple[str, Quoted] | None:
    """Find quoted lines in the files that were kept, and renumber them accordingly.

    Args:
        kernel: the kernel that contains the lines, or ''.
        files: texts of generated code, by file name.

    Returns:
        The file name and the lines; None if no file contains them.
    """
    for name in likeliest_first(files, kernel) if quoted else ():
        lines = files[name].splitlines()
        start = _place(lines, quoted, kernel)
        if start >= 0:
            numbered = (replace(q, number=n) for n, q in enumerate(quoted, start + 1))
            return name, tuple(numbered)
    return None


def likeliest_first(files: Mapping[str, str], kernel: str) -> list[str]:
    """Sort the kernel's own file to the front, and the wrapper's to the end."""

    def order(name: str) -> tuple[bool, bool]:
        is_same = name.rpartition("/")[2].partition(".")[0] == kernel
        return not is_same, "wrapper" in name

    return sorted(files, key=order)


def head_of(lines: Sequence[str], kernel: str) -> int:
    """Return the index of the line with a kernel's definition; -1 for none."""
    head = re.compile(rf"\b(?:void|def)\s+{re.escape(kernel)}\s*\(")
    return next((i for i, line in enumerate(lines) if head.search(line)), -1)


def _place(lines: Sequence[str], quoted: Quoted, kernel: str) -> int:
    """Return the index of the first quoted line, ignoring indentation; -1 for none.

    The search starts at the kernel's definition because two kernels of a file may
    contain the same lines.
    """
    wanted = [line.text.strip() for line in quoted]
    there = [line.strip() for line in lines]
    head = head_of(lines, kernel) if kernel else -1
    for start in range(max(head, 0), len(there) - len(wanted) + 1):
        if there[start : start + len(wanted)] == wanted:
            return start
    return -1
