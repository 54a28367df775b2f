"""Out-of-bounds indices of changed programs, and refills that bound them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from shrinkfx.program.listing.changes import Refill
from shrinkfx.program.listing.listing import Listing, Run
from shrinkfx.worker.listing.attempts import Attempt
from shrinkfx.worker.listing.dims import runs_of
from shrinkfx.worker.listing.indices import Beyond, Indices, bounding
from shrinkfx.worker.listing.stepwise import Trace


@dataclass(frozen=True)
class Pointing:
    """The bounds check of a printed program, and of its changed versions.

    Attributes:
        astray: the run and the inputs of each index that is out of bounds in the
            unchanged program. This may be why it fails, so they may stay out of bounds.
    """

    indices: Indices
    astray: frozenset[tuple[Run, tuple[str, ...]]] = frozenset()

    def allowing(self, listing: Listing, trace: Trace) -> Self:
        """Allow the indices that are out of bounds in the unchanged program."""
        found = self._outside(listing, trace)
        return replace(self, astray=frozenset((run, b.givens) for run, b in found))

    def beyond(self, attempt: Attempt) -> Iterator[tuple[Run, Beyond]]:
        """Yield the indices that are out of bounds and were not before."""
        for run, beyond in self._outside(attempt.listing, attempt.trace):
            if (run, beyond.givens) not in self.astray:
                yield run, beyond

    def refills(self, attempt: Attempt) -> list[Refill | None]:
        """List refills that bound the indices; None for an index without a refill."""
        refills: dict[Refill | None, None] = {}
        for run, beyond in self.beyond(attempt):
            found = bounding(attempt.listing, run, beyond.givens, beyond.size)
            refills |= dict.fromkeys(found or [None])
        return list(refills)

    def _outside(self, listing: Listing, trace: Trace) -> Iterator[tuple[Run, Beyond]]:
        for run in runs_of(listing):
            for beyond in self.indices.beyond(listing, run, trace):
                yield run, beyond
