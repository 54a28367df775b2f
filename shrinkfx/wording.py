"""Sentences that name options: as they are typed, or as Python has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

Value = str | int | float | bool | tuple[str, str | int | float | bool]
"""What an option is set to; of one that takes pairs, a name and its value."""


@dataclass(frozen=True)
class Flag:
    """An option that a sentence names.

    Attributes:
        flag: as it is typed: ``--until``.
        value: what to set it to; True for a switch, '' where only it is named.
        stands: what stands for a value, where that is the reader's: ``FILE``.
    """

    flag: str
    value: Value = ""
    stands: str = ""

    def __str__(self) -> str:
        """Write it as it is typed: ``--until ima``."""
        if self.stands or self.value in ("", True):
            return f"{self.flag} {self.stands}".rstrip()
        if isinstance(self.value, tuple):
            return f"{self.flag} {'='.join(map(str, self.value))}"
        return f"{self.flag} {self.value}"

    def to_json(self) -> Mapping[str, object]:
        return vars(self)


class Words(tuple[str | Flag, ...]):
    """A text in parts, of which those that name options are records."""

    __slots__ = ()

    def __new__(cls, *parts: Said) -> Self:
        flat: list[str | Flag] = []
        for part in parts:
            flat.extend(part if isinstance(part, Words) else [part])
        return super().__new__(cls, filter(None, flat))

    @classmethod
    def lines(cls, said: Iterable[Said]) -> Self:
        """Put each on a line of its own; what is empty is left out."""
        parts = [part for each in said if each for part in ("\n", each)]
        return cls(*parts[1:])

    def __str__(self) -> str:
        """Write it as the command line has it."""
        return self.worded(str)

    def worded(self, word: Callable[[Flag], str]) -> str:
        """Write it with other words for its options."""
        return "".join(word(p) if isinstance(p, Flag) else p for p in self)

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Self:
        """Read it back: a list of texts, and of objects with a flag's fields."""
        return cls(*(p if isinstance(p, str) else _flag(**p) for p in data))


NOTHING = Words()

Said = str | Flag | Words
"""What an error may be told: a text, or one that names options."""


def _flag(flag: str, value: Any, stands: str) -> Flag:  # noqa: ANN401 - of JSON
    return Flag(flag, tuple(value) if isinstance(value, list) else value, stands)
