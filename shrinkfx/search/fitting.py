"""Which rewrites of a listing make a valid program: asked of fake tensors, for nothing.

What does not fit is never asked about: no question that fake tensors can answer is put
to the compiler. What fits alone need not fit beside others, or after a step; so what is
asked about is fitted as one, just before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Edit, Rewrite
from shrinkfx.program.listing.changes import Change, place_of
from shrinkfx.program.listing.types import UNTYPED, Types
from shrinkfx.program.view import NOBODY
from shrinkfx.search.strategy import Strategy, proposals

_TRIES = 8
"""How often what does not fit beside the rest is looked for in one bundle."""


class Fitter(Protocol):
    """Tells of rewrites of a listed candidate what makes them a valid program."""

    def types(self, candidate: Candidate) -> Types:
        """Tell what its values are."""
        ...

    def fit(
        self, candidate: Candidate, rewrites: Sequence[Rewrite]
    ) -> Sequence[Rewrite | None]:
        """Add to each what follows from it; None where it makes no valid program."""
        ...

    def ahead(self) -> Fitter:
        """Make one for searches that are foreseen and may never be.

        Nobody hears of what it has no answer to: it raises ``Unforeseen``.
        """
        ...


class Unfitted:
    """Fits all rewrites as they are, for what is no listing: nobody knows better."""

    def types(self, candidate: Candidate) -> Types:
        return UNTYPED

    def fit(
        self, candidate: Candidate, rewrites: Sequence[Rewrite]
    ) -> Sequence[Rewrite | None]:
        return rewrites

    def ahead(self) -> Unfitted:
        return self


def fitting_proposals(
    strategy: Strategy,
    candidate: Candidate,
    fitter: Fitter,
    suspects: Mapping[str, float] = NOBODY,
) -> list[Edit]:
    """Collect a strategy's edits; of a listing those that make a valid program.

    As they were proposed: what follows from one may be something else after a step.
    But of what is to be done in part, that part.

    Raises:
        StrategyError: it raised, or broke a law.
    """
    if candidate.listing is None:
        return proposals(strategy, candidate, suspects)
    types = fitter.types(candidate)
    edits = [
        edit
        for edit in proposals(strategy, candidate, suspects, types)
        if isinstance(edit, Rewrite)
    ]
    fits = fitter.fit(candidate, edits)
    found = [
        fit if edit.partly else edit
        for edit, fit in zip(edits, fits, strict=True)
        if fit is not None and fit.changes
    ]
    return list(dict.fromkeys(found))


def fitted_together(
    candidate: Candidate, edits: Sequence[Edit], fitter: Fitter
) -> tuple[list[Rewrite], Rewrite | None]:
    """Choose of some rewrites, in order, those that make a valid program together.

    Returns:
        These, and all of them as one with what follows; None if there are none.
    """
    chosen = _apart(edit for edit in edits if isinstance(edit, Rewrite))
    fitting: tuple[list[Rewrite], Rewrite | None] = [], None
    for _ in range(_TRIES):
        if not chosen:
            break
        [whole] = fitter.fit(candidate, [_joined(chosen)])
        if whole is not None:
            return chosen, whole
        counts = range(1, len(chosen))
        parts = fitter.fit(candidate, [_joined(chosen[:n]) for n in counts])
        wrong = next((n for n, part in enumerate(parts) if part is None), len(parts))
        fitting = chosen[:wrong], parts[wrong - 1] if wrong else None
        del chosen[wrong]
    return fitting


def single_steps(
    candidate: Candidate, strategy: Strategy, fitter: Fitter
) -> Iterator[Candidate]:
    """Go through what each of a strategy's edits alone would make of a listing."""
    for edit in fitting_proposals(strategy, candidate, fitter):
        _, made = fitted_together(candidate, [edit], fitter)
        if made is None:
            continue
        with contextlib.suppress(InvalidEdit):
            smaller = apply(candidate, [made])
            if smaller.cost < candidate.cost:
                yield smaller


def _joined(rewrites: Sequence[Rewrite]) -> Rewrite:
    changes = (change for rewrite in rewrites for change in rewrite.changes)
    return Rewrite(tuple(dict.fromkeys(changes)))


def _apart(rewrites: Iterable[Rewrite]) -> list[Rewrite]:
    """Leave out what writes a place otherwise than one before."""
    written: dict[tuple[object, ...], Change] = {}
    chosen = []
    for rewrite in rewrites:
        wanted = {place_of(change): change for change in rewrite.changes}
        if all(written.get(place, c) == c for place, c in wanted.items()):
            written |= wanted
            chosen.append(rewrite)
    return chosen
