"""Find the operators that cause the first values that differ from eager's."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from shrinkfx.program.queries import ancestors
from shrinkfx.program.skeleton import Role, Skeleton

Accusation = tuple[str, float, str]
"""A node's name, a weight from 0 to 1, and the reason."""

_FIRST = "is the first operator with a wrong result"
_WRITES = "writes into the first wrong value"
_BETWEEN = "is between correct values and a wrong one"


def accuse_first_divergence(
    skeleton: Skeleton, differing: Collection[str], agreeing: Collection[str]
) -> Iterator[Accusation]:
    """Accuse the operators of the first differing values, whose operands all agree."""
    first = [
        name
        for name in skeleton.in_order(differing)
        if all(value in agreeing for value in _read_by(skeleton, name))
    ]
    for name in first:
        writers = _writers_into(skeleton, name)
        # Values that share memory are compared in their state after the last write.
        agreeing_kinds = {skeleton.node(value).target for value in agreeing}
        for writer in writers:
            kind = skeleton.node(writer).target
            yield writer, 0.6 if kind in agreeing_kinds else 1.0, _WRITES
        if not writers:
            yield name, 1.0, _FIRST
    if not first:
        for name in _find_operators_between(skeleton, differing, agreeing):
            yield name, 0.6, _BETWEEN


def _read_by(skeleton: Skeleton, value: str) -> Iterator[str]:
    """Yield the operands of a value's producer that are tensors from operators."""
    for operand in skeleton.node(skeleton.producer(value)).operands:
        node = skeleton.node(operand)
        made_by = skeleton.node(skeleton.producer(operand))
        if node.value is not None and made_by.role is Role.OPERATOR:
            yield operand


def _writers_into(skeleton: Skeleton, value: str) -> list[str]:
    """List the in-place operators that write into a value or into a view of it."""
    storage = skeleton.node(value).storage
    if storage is None:
        return []
    nodes = map(skeleton.node, skeleton.operators)
    return [n.name for n in nodes if n.impure and n.storage == storage]


def _find_operators_between(
    skeleton: Skeleton, differing: Collection[str], agreeing: Collection[str]
) -> list[str]:
    """List the ancestors of the first differing value that no agreeing value has."""
    first = skeleton.in_order(differing)[:1]
    return skeleton.in_order(ancestors(skeleton, first) - ancestors(skeleton, agreeing))
