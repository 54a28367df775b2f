"""The closed set of edits: what a strategy can ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Drop:
    """Remove operators; what their users need of them is fed from outside."""

    nodes: frozenset[str]


@dataclass(frozen=True)
class Bypass:
    """Remove an operator and hand its users ``operand``, of the same type.

    Values of the operator that have another type are fed from outside.
    """

    node: str
    operand: str


@dataclass(frozen=True)
class Replace:
    """Put a plain operator in the place of a dear one.

    It reads ``operand``, of the same type. If that is ``node`` itself, it reads
    an input that holds the value ``node`` had in the original's eager run.
    """

    node: str
    operand: str


@dataclass(frozen=True)
class Merge:
    """Feed inputs of one type with one value: the first one's."""

    inputs: frozenset[str]


Edit = Drop | Bypass | Replace | Merge


def names_of(edit: Edit) -> frozenset[str]:
    """Name the operators, or the inputs, that an edit is about."""
    match edit:
        case Drop(names) | Merge(names):
            return names
        case Bypass(name) | Replace(name):
            return frozenset({name})
