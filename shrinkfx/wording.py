"""Messages that name options, for the command line or for the Python API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

Value = str | int | float | bool | tuple[str, str | int | float | bool]
"""The value of an option; a pair of name and value for an option like ``--env``."""


@dataclass(frozen=True)
class Flag:
    """An option that a message names.

    Attributes:
        flag: the flag as typed, such as ``--until``.
        value: the value to show; True for a switch, '' to show only the flag.
        stands: placeholder for a value that the reader chooses, such as ``FILE``.
    """

    flag: str
    value: Value = ""
    stands: str = ""

    def __str__(self) -> str:
        """Return the option as typed, such as ``--until ima``."""
        if self.stands or self.value in ("", True):
            return f"{self.flag} {self.stands}".rstrip()
        if isinstance(self.value, tuple):
            return f"{self.flag} {'='.join(map(str, self.value))}"
        return f"{self.flag} {self.value}"

    def to_json(self) -> Mapping[str, object]:
        return vars(self)


class MessageText(tuple[str | Flag, ...]):
    """A message in parts: text, and a ``Flag`` for each option that it names."""

    __slots__ = ()

    def __new__(cls, *parts: MessagePart) -> Self:
        flat: list[str | Flag] = []
        for part in parts:
            flat.extend(part if isinstance(part, MessageText) else [part])
        return super().__new__(cls, filter(None, flat))

    @classmethod
    def lines(cls, messages: Iterable[MessagePart]) -> Self:
        """Join messages with newlines, without the empty ones."""
        parts = [part for each in messages if each for part in ("\n", each)]
        return cls(*parts[1:])

    def __str__(self) -> str:
        """Return the message with options as on the command line."""
        return self.format_flags(str)

    def format_flags(self, word: Callable[[Flag], str]) -> str:
        """Return the message with each option written by a function."""
        return "".join(word(p) if isinstance(p, Flag) else p for p in self)

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Self:
        """Read a message from JSON: strings, and objects with fields of ``Flag``."""
        return cls(*(p if isinstance(p, str) else _flag(**p) for p in data))


EMPTY_MESSAGE = MessageText()

MessagePart = str | Flag | MessageText
"""A message of an error, or a part of one."""


def _flag(flag: str, value: Any, stands: str) -> Flag:  # noqa: ANN401 - of JSON
    return Flag(flag, tuple(value) if isinstance(value, list) else value, stands)
