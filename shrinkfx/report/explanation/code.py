"""A line of generated code, as it is quoted."""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.protocol.record import Message


@dataclass(frozen=True)
class CodeLine(Message):
    """A line of generated code.

    Attributes:
        number: from 1, in the kernel's own text; in its file where a compiler of C++
            says so.
        mark: a compiler's caret below it, in its columns; '' where there is none.
    """

    number: int
    text: str
    at_fault: bool = False
    mark: str = ""
