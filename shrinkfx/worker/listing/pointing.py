"""Indices that point outside once a listing is changed, and what bounds them."""

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
    """The indices of a listing, and of what is made of it.

    Attributes:
        astray: what indices are made of that point outside in a run as it is. That may
            be why it fails: they may stay so.
    """

    indices: Indices
    astray: frozenset[tuple[Run, tuple[str, ...]]] = frozenset()

    def allowing(self, listing: Listing, trace: Trace) -> Self:
        """Let those point outside that do in a listing as it is."""
        found = self._outside(listing, trace)
        return replace(self, astray=frozenset((run, b.givens) for run, b in found))

    def beyond(self, attempt: Attempt) -> Iterator[tuple[Run, Beyond]]:
        """Go through the indices that point outside, and did not before."""
        for run, beyond in self._outside(attempt.listing, attempt.trace):
            if (run, beyond.givens) not in self.astray:
                yield run, beyond

    def refills(self, attempt: Attempt) -> list[Refill | None]:
        """List what bounds the indices that point outside; None where nothing does."""
        refills: dict[Refill | None, None] = {}
        for run, beyond in self.beyond(attempt):
            found = bounding(attempt.listing, run, beyond.givens, beyond.size)
            refills |= dict.fromkeys(found or [None])
        return list(refills)

    def _outside(self, listing: Listing, trace: Trace) -> Iterator[tuple[Run, Beyond]]:
        for run in runs_of(listing):
            for beyond in self.indices.beyond(listing, run, trace):
                yield run, beyond
