"""Attempts at a rewrite: the changes, the changed program, and its trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shrinkfx.program.listing.changes import Change, place_of
from shrinkfx.program.listing.printed_program import PrintedProgram
from shrinkfx.worker.listing.program_trace import Trace

Changes = tuple[Change, ...]


@dataclass(frozen=True)
class Attempt:
    """A changed printed program, and its trace at the sizes of the example."""

    changes: Changes
    listing: PrintedProgram
    trace: Trace


def find_largest_attempt(
    most: int, attempt_at: Callable[[int], Attempt | None]
) -> Attempt | None:
    """Find the attempt with the largest number up to ``most``, by binary search.

    Returns:
        None if there is no attempt for 1.
    """
    largest = attempt_at(1) if most > 0 else None
    least = 1
    while largest and least < most:
        middle = (least + most + 1) // 2
        if larger := attempt_at(middle):
            largest, least = larger, middle
        else:
            most = middle - 1
    return largest


def merge_changes(changes: Iterable[Change], more: Iterable[Change]) -> Changes:
    """Add changes; a later change replaces an earlier one of the same place."""
    by_place = {place_of(change): change for change in changes}
    by_place |= {place_of(change): change for change in more}
    return tuple(by_place.values())


def sort_changes(changes: Iterable[Change]) -> Changes:
    """Sort changes into their normal order, without duplicates."""
    return tuple(sorted(set(changes), key=lambda c: (type(c).__name__, str(c))))
