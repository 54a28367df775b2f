"""Out-of-bounds indices of changed programs, and refills that bound them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from shrinkfx.program.listing.changes import Refill
from shrinkfx.program.listing.printed_program import PrintedProgram, Run
from shrinkfx.worker.listing.attempts import Attempt
from shrinkfx.worker.listing.dims import runs_of
from shrinkfx.worker.listing.indices import (
    IndexChecker,
    OutOfBoundsIndex,
    list_bounding_refills,
)
from shrinkfx.worker.listing.program_trace import Trace


@dataclass(frozen=True)
class BoundsCheck:
    """The bounds check of a printed program, and of its changed versions.

    Attributes:
        known_out_of_bounds: the run and the inputs of each index that is out of bounds
            in the unchanged program. This may be why it fails, so they may stay out of
            bounds.
    """

    indices: IndexChecker
    known_out_of_bounds: frozenset[tuple[Run, tuple[str, ...]]] = frozenset()

    def with_allowed(self, listing: PrintedProgram, trace: Trace) -> Self:
        """Allow the indices that are out of bounds in the unchanged program."""
        found = self._iter_out_of_bounds(listing, trace)
        return replace(
            self, known_out_of_bounds=frozenset((run, b.givens) for run, b in found)
        )

    def beyond(self, attempt: Attempt) -> Iterator[tuple[Run, OutOfBoundsIndex]]:
        """Yield the indices that are out of bounds and were not before."""
        for run, beyond in self._iter_out_of_bounds(attempt.listing, attempt.trace):
            if (run, beyond.givens) not in self.known_out_of_bounds:
                yield run, beyond

    def list_refills(self, attempt: Attempt) -> list[Refill | None]:
        """List refills that bound the indices; None for an index without a refill."""
        refills: dict[Refill | None, None] = {}
        for run, beyond in self.beyond(attempt):
            found = list_bounding_refills(
                attempt.listing, run, beyond.givens, beyond.size
            )
            refills |= dict.fromkeys(found or [None])
        return list(refills)

    def _iter_out_of_bounds(
        self, listing: PrintedProgram, trace: Trace
    ) -> Iterator[tuple[Run, OutOfBoundsIndex]]:
        for run in runs_of(listing):
            for beyond in self.indices.find_out_of_bounds(listing, run, trace):
                yield run, beyond
