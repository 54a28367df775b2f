"""The edits that a strategy can propose."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shrinkfx.program.listing.changes import Change
from shrinkfx.program.record import Record


@dataclass(frozen=True)
class Drop:
    """Remove operators; their users get the removed values as inputs."""

    nodes: frozenset[str]


@dataclass(frozen=True)
class Bypass:
    """Remove an operator and pass its users ``operand``, which has the same type.

    The operand may have another shape if the operator only repeats it and all users
    broadcast. Values of the operator that have another type become inputs.
    """

    node: str
    operand: str


@dataclass(frozen=True)
class Replace:
    """Replace an expensive operator by a simple one.

    The simple operator reads ``operand``, which has the same type. If ``operand`` is
    ``node`` itself, it reads an input that holds the value of ``node`` in the input
    program's eager run.
    """

    node: str
    operand: str


@dataclass(frozen=True)
class Merge:
    """Replace inputs of one type by a single input, the first of them."""

    inputs: frozenset[str]


class Specialisation(StrEnum):
    """How a dynamic dim is specialized."""

    STATIC = "static"
    """A constant: the size that it has in all runs."""
    PLAIN = "plain"
    """A dim of its own, not computed from others."""
    NARROW = "narrow"
    """A range that contains only the sizes of the runs."""


@dataclass(frozen=True)
class Specialise:
    """Specialize a size; ``size`` is its expression in the shapes of values."""

    size: str
    how: Specialisation


@dataclass(frozen=True)
class Rewrite(Record):
    """Change parts of a printed program, all of them or none.

    Attributes:
        changes: the changes.
        partly: apply, in order, as many of them as yield a valid program. A rewrite
            that was tested is not partial any more: it contains the changes that were
            applied.
    """

    changes: tuple[Change, ...]
    partly: bool = False


Edit = Drop | Bypass | Replace | Merge | Specialise | Rewrite


def names_of(edit: Edit) -> frozenset[str]:
    """Return the names of the operators, the inputs or the size in an edit."""
    match edit:
        case Drop(names) | Merge(names):
            return names
        case Bypass(name) | Replace(name):
            return frozenset({name})
        case Specialise(size):
            return frozenset({size})
        case Rewrite(changes):
            return frozenset(" ".join(map(str, c.place)) for c in changes)
