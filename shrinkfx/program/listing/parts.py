"""Parts of a whole: what is tried of several things, where all at once do not go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

Item = TypeVar("Item")


def in_parts(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Yield all, halves, quarters and so on, and each alone in the end.

    >>> [*in_parts("abcd")]
    ['abcd', 'ab', 'cd', 'a', 'b', 'c', 'd']
    """
    count = 1
    while items and count < 2 * len(items):
        count = min(count, len(items))
        yield from (items[start:stop] for start, stop in cuts(len(items), count))
        count *= 2


def cuts(length: int, count: int) -> Iterator[tuple[int, int]]:
    """Cut a length into so many parts of about one size, none of them empty."""
    ends = [length * part // count for part in range(count + 1)]
    yield from ((start, stop) for start, stop in pairwise(ends) if start < stop)
