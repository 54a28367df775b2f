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


Edit = Drop | Bypass
