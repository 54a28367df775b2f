"""Lines of generated code, as they are quoted, and of which text their numbers are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shrinkfx.protocol.record import Message


@dataclass(frozen=True)
class CodeLine(Message):
    """A line of generated code.

    Attributes:
        number: from 1, in the text that the quotation is of.
        mark: a compiler's caret below it, in its columns; '' where there is none.
    """

    number: int
    text: str
    at_fault: bool = False
    mark: str = ""


Quoted = tuple[CodeLine, ...]
"""Lines that follow each other."""


def text_of(file: str) -> str:
    """Say of which text numbers are.

    Args:
        file: with its folder where it was kept beside the result; its name alone where
            a compiler names one that was not; '' for a kernel of which no file is
            known.
    """
    if not file:
        return "the kernel source"
    return file if "/" in file else "the generated file"


def in_a_file(
    quoted: Quoted, kernel: str, files: Mapping[str, str]
) -> tuple[str, Quoted] | None:
    """Find quoted lines in the files that were kept, and number them as these do.

    Args:
        kernel: that they are of, or ''.
        files: text of generated code, by what the file is called.

    Returns:
        The file and the lines; None where no file has them.
    """
    for name in likeliest_first(files, kernel) if quoted else ():
        lines = files[name].splitlines()
        start = _place(lines, quoted, kernel)
        if start >= 0:
            numbered = (replace(q, number=n) for n, q in enumerate(quoted, start + 1))
            return name, tuple(numbered)
    return None


def likeliest_first(files: Mapping[str, str], kernel: str) -> list[str]:
    """Put a kernel's own file first, and that of who calls it last."""

    def order(name: str) -> tuple[bool, bool]:
        own = name.rpartition("/")[2].partition(".")[0] == kernel
        return not own, "wrapper" in name

    return sorted(files, key=order)


def head_of(lines: Sequence[str], kernel: str) -> int:
    """Find the line, from 0, that a kernel's definition begins in; -1 for none."""
    head = re.compile(rf"\b(?:void|def)\s+{re.escape(kernel)}\s*\(")
    return next((i for i, line in enumerate(lines) if head.search(line)), -1)


def _place(lines: Sequence[str], quoted: Quoted, kernel: str) -> int:
    """Find where quoted lines stand, however far they are indented; -1 for nowhere.

    Two kernels of a file may have the same lines: these are looked for in their own.
    """
    wanted = [line.text.strip() for line in quoted]
    there = [line.strip() for line in lines]
    head = head_of(lines, kernel) if kernel else -1
    for start in range(max(head, 0), len(there) - len(wanted) + 1):
        if there[start : start + len(wanted)] == wanted:
            return start
    return -1
