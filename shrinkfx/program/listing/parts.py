"""Split sequences into parts, to try when all items at once do not work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

Item = TypeVar("Item")


def yield_parts(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Yield all items, then halves, quarters and so on, and finally each item alone.

    >>> [*in_parts("abcd")]
    ['abcd', 'ab', 'cd', 'a', 'b', 'c', 'd']
    """
    count = 1
    while items and count < 2 * len(items):
        count = min(count, len(items))
        yield from (items[start:stop] for start, stop in cuts(len(items), count))
        count *= 2


def cuts(length: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of ``count`` nearly equal parts, none of them empty."""
    ends = [length * part // count for part in range(count + 1)]
    yield from ((start, stop) for start, stop in pairwise(ends) if start < stop)
