"""Messages that name options as they are typed on the command line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

Value = str | int | float | bool | tuple[str, str | int | float | bool]
"""The value of an option; a pair of name and value for an option like ``--env``."""

MessagePart = str
"""A message of an error, or a part of one."""


class Flag(str):
    """An option in a message, such as ``--until ima``.

    Args:
        flag: the flag as typed, such as ``--until``.
        value: the value to show; True for a switch, '' to show only the flag.
        stands: placeholder for a value that the reader chooses, such as ``FILE``.
    """

    __slots__ = ()

    def __new__(cls, flag: str, value: Value = "", stands: str = "") -> Self:
        if stands or value in ("", True):
            return super().__new__(cls, f"{flag} {stands}".rstrip())
        shown = "=".join(map(str, value)) if isinstance(value, tuple) else value
        return super().__new__(cls, f"{flag} {shown}")


class MessageText(str):
    """A message, joined from its parts."""

    __slots__ = ()

    def __new__(cls, *parts: str) -> Self:
        return super().__new__(cls, "".join(parts))

    @classmethod
    def lines(cls, messages: Iterable[str]) -> Self:
        """Join messages with newlines, without the empty ones."""
        return cls("\n".join(filter(None, messages)))
