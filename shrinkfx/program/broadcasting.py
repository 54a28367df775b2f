"""Bypasses to a value of another shape, if all its readers broadcast it.

    norm -> expand -> div          becomes        norm -> div

Such a bypass is valid if the removed value only repeats the other one, and if each
reader works element by element and still returns its full shape because of another
operand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Role, Skeleton


def repeats(skeleton: Skeleton, value: str, base: str) -> bool:
    """Return whether a value is a view of ``base`` that repeats it or adds 1-dims."""
    node, source = skeleton.node(value), skeleton.node(base)
    if node.value is None or source.value is None or node.storage is None:
        return False
    shape, expanded = source.value.shape, node.value.shape
    return (
        node.storage == source.storage
        and node.value.dtype == source.value.dtype
        # A 0-dim tensor would not take part in the type promotion of a result.
        and bool(shape)
        and shape != expanded
        and _broadcast([shape, expanded]) == expanded
    )


def can_read(candidate: Candidate, value: str, base: str) -> bool:
    """Return whether all readers of a value would keep their types with ``base``."""
    names = {value, *(v for v in candidate.bypass if candidate.resolve(v) == value)}
    readers = _readers(candidate, names)
    return all(_fits(candidate, reader, {value: base}) for reader in readers)


def find_retyped_values(candidate: Candidate) -> set[str]:
    """Collect the values that are bypassed by values of another type."""
    node = candidate.skeleton.node
    return {
        v for v in candidate.bypass if node(v).value != node(candidate.resolve(v)).value
    }


def find_misfitting_readers(candidate: Candidate) -> list[str]:
    """List the nodes whose type would change, because an operand has another shape."""
    read = [*_readers(candidate, find_retyped_values(candidate)), *candidate.replace]
    misfits = (reader for reader in read if not _fits(candidate, reader, {}))
    return candidate.skeleton.in_order(misfits)


def _readers(candidate: Candidate, values: Iterable[str]) -> Iterator[str]:
    """Yield the readers of values: kept operators, and sizes, whether used or not."""
    skeleton, replaced = candidate.skeleton, candidate.replace
    for value in values:
        for user in skeleton.graph.successors(value):
            is_size = skeleton.node(user).role is Role.SIZE
            if is_size or (user in candidate.keep and user not in replaced):
                yield user
        yield from (user for user, operand in replaced.items() if operand == value)


def _fits(candidate: Candidate, reader: str, handed_on: Mapping[str, str]) -> bool:
    node = candidate.skeleton.node(reader)
    read = (handed_on.get(v, v) for v in candidate.operands(reader))
    types = [t for v in read if (t := candidate.skeleton.node(v).value)]
    if reader in candidate.replace:
        return types == [node.value]
    if node.value is None or not node.pointwise:
        return False
    return _broadcast([t.shape for t in types]) == node.value.shape


def _broadcast(shapes: Iterable[tuple[str, ...]]) -> tuple[str, ...] | None:
    """Return the broadcast shape of several shapes; None if it is uncertain.

    >>> _broadcast([("s", "1"), ("8",)])
    ('s', '8')
    >>> _broadcast([("s",), ("8",)])
    """
    dims: list[set[str]] = []
    for shape in shapes:
        dims += [set() for _ in range(len(shape) - len(dims))]
        for sizes, size in zip(dims, reversed(shape), strict=False):
            sizes.add(size)
    known = [sizes - {"1"} for sizes in dims]
    if any(len(sizes) > 1 for sizes in known):
        return None
    return tuple(next(iter(sizes), "1") for sizes in reversed(known))
