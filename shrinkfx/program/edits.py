"""The closed set of edits: what a strategy can ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from shrinkfx.program.listing.changes import (
    Change,
    change_from_json,
    change_to_json,
    place_of,
)


@dataclass(frozen=True)
class Drop:
    """Remove operators; what their users need of them is fed from outside."""

    nodes: frozenset[str]


@dataclass(frozen=True)
class Bypass:
    """Remove an operator and hand its users ``operand``, of the same type.

    It may be of another shape where the operator only repeats it and all users
    broadcast. Values that have another type are fed from outside.
    """

    node: str
    operand: str


@dataclass(frozen=True)
class Replace:
    """Put a simple operator in the place of an expensive one.

    It reads ``operand``, of the same type. If that is ``node`` itself, it reads
    an input that holds the value ``node`` had in the original's eager run.
    """

    node: str
    operand: str


@dataclass(frozen=True)
class Merge:
    """Feed inputs of one type with one value: the first one's."""

    inputs: frozenset[str]


class Specialisation(StrEnum):
    """What a dynamic dim can be specialised to."""

    STATIC = "static"
    """The number that it is wherever the program is run."""
    PLAIN = "plain"
    """A dim of its own, not computed from others."""
    NARROW = "narrow"
    """Of a range that has nothing but the sizes at which the program is run."""


@dataclass(frozen=True)
class Specialise:
    """Leave less open of a size; ``size`` as the shapes of values spell it."""

    size: str
    how: Specialisation


@dataclass(frozen=True)
class Rewrite:
    """Write parts of a listing anew, all of them or none.

    Attributes:
        changes: what is asked for.
        partly: of these in order, so many as make a valid program; what is asked about
            has no such edit any more, but those that are left of it.
    """

    changes: tuple[Change, ...]
    partly: bool = False

    def to_json(self) -> dict[str, Any]:
        changes = [change_to_json(change) for change in self.changes]
        return {"changes": changes, "partly": self.partly}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(tuple(map(change_from_json, data["changes"])), data["partly"])


Edit = Drop | Bypass | Replace | Merge | Specialise | Rewrite


def names_of(edit: Edit) -> frozenset[str]:
    """Name the operators, the inputs or the size that an edit is about."""
    match edit:
        case Drop(names) | Merge(names):
            return names
        case Bypass(name) | Replace(name):
            return frozenset({name})
        case Specialise(size):
            return frozenset({size})
        case Rewrite(changes):
            return frozenset(" ".join(map(str, place_of(c))) for c in changes)
