"""From the values that are not eager's to the operators that made them so."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from shrinkfx.program.queries import ancestors
from shrinkfx.program.skeleton import Role, Skeleton

Accusation = tuple[str, float, str]
"""A node's name, how sure that is, and why."""

_FIRST = "is the first operator with a wrong result"
_WRITES = "writes into the first wrong value"
_BETWEEN = "is between correct values and a wrong one"


def divergence(
    skeleton: Skeleton, differing: Collection[str], agreeing: Collection[str]
) -> Iterator[Accusation]:
    """Accuse what makes the first values that differ, all that they read agreeing."""
    first = [
        name
        for name in skeleton.in_order(differing)
        if all(value in agreeing for value in _read_by(skeleton, name))
    ]
    for name in first:
        writers = _writers_into(skeleton, name)
        # All that shares memory is compared as it is after the last write.
        well = {skeleton.node(value).target for value in agreeing}
        for writer in writers:
            kind = skeleton.node(writer).target
            yield writer, 0.6 if kind in well else 1.0, _WRITES
        if not writers:
            yield name, 1.0, _FIRST
    if not first:
        for name in _in_between(skeleton, differing, agreeing):
            yield name, 0.6, _BETWEEN


def _read_by(skeleton: Skeleton, value: str) -> Iterator[str]:
    """List the tensors that a value is computed from, if an operator makes them."""
    for operand in skeleton.node(skeleton.producer(value)).operands:
        node = skeleton.node(operand)
        made_by = skeleton.node(skeleton.producer(operand))
        if node.value is not None and made_by.role is Role.OPERATOR:
            yield operand


def _writers_into(skeleton: Skeleton, value: str) -> list[str]:
    """List the in-place operators that write into a value or a view of it."""
    storage = skeleton.node(value).storage
    if storage is None:
        return []
    nodes = map(skeleton.node, skeleton.operators)
    return [n.name for n in nodes if n.impure and n.storage == storage]


def _in_between(
    skeleton: Skeleton, differing: Collection[str], agreeing: Collection[str]
) -> list[str]:
    """List what the first value that differs needs, and none that agrees does."""
    first = skeleton.in_order(differing)[:1]
    return skeleton.in_order(ancestors(skeleton, first) - ancestors(skeleton, agreeing))
