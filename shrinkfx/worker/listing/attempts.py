"""Attempts at a rewrite: changes, what they make of a listing, and how that runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shrinkfx.program.listing.changes import Change, place_of
from shrinkfx.program.listing.listing import Listing
from shrinkfx.worker.listing.stepwise import Trace

Changes = tuple[Change, ...]


@dataclass(frozen=True)
class Attempt:
    """A listing with changes, run at the sizes of its example."""

    changes: Changes
    listing: Listing
    trace: Trace


def largest(most: int, made: Callable[[int], Attempt | None]) -> Attempt | None:
    """Find what is made of the largest number; of none where nothing is made of 1."""
    best = made(1) if most > 0 else None
    least = 1
    while best and least < most:
        middle = (least + most + 1) // 2
        if better := made(middle):
            best, least = better, middle
        else:
            most = middle - 1
    return best


def merged(changes: Iterable[Change], more: Iterable[Change]) -> Changes:
    """Add changes; a later one takes the place of an earlier one."""
    by_place = {place_of(change): change for change in changes}
    by_place |= {place_of(change): change for change in more}
    return tuple(by_place.values())


def in_order(changes: Iterable[Change]) -> Changes:
    """Put changes into the order of their normal form, each once."""
    return tuple(sorted(set(changes), key=lambda c: (type(c).__name__, str(c))))
