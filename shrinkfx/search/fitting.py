"""Select the rewrites of a printed program that make a valid program.

Fake tensors decide that without a check, so the compiler gets no invalid programs. A
rewrite that is valid alone may be invalid with others, or after a step; so each bundle
is tested as a whole just before its query.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Edit, Rewrite
from shrinkfx.program.listing.changes import Change
from shrinkfx.program.listing.printed_program import UNTYPED, Types
from shrinkfx.program.view import NO_SUSPECTS
from shrinkfx.search.strategy import Strategy, collect_proposals

_TRIES = 8
"""The highest number of rewrites to remove from one bundle because they do not fit."""


class Fitter(Protocol):
    """Decides which rewrites of a printed program make a valid program."""

    def types(self, candidate: Candidate) -> Types:
        """Return the types of the candidate's values."""
        ...

    def fit(
        self, candidate: Candidate, rewrites: Sequence[Rewrite]
    ) -> Sequence[Rewrite | None]:
        """Complete each rewrite with the changes that follow from it.

        Returns:
            One entry for each rewrite; None if it does not make a valid program.
        """
        ...

    def ahead(self) -> Fitter:
        """Create a fitter for speculation: searches that may never happen.

        It reports no errors: where it has no answer, it raises ``SpeculationError``.
        """
        ...


class Unfitted:
    """Accepts all rewrites as they are, for candidates without a printed program."""

    def types(self, candidate: Candidate) -> Types:
        return UNTYPED

    def fit(
        self, candidate: Candidate, rewrites: Sequence[Rewrite]
    ) -> Sequence[Rewrite | None]:
        return rewrites

    def ahead(self) -> Unfitted:
        return self


def collect_valid_proposals(
    strategy: Strategy,
    candidate: Candidate,
    fitter: Fitter,
    suspects: Mapping[str, float] = NO_SUSPECTS,
) -> list[Edit]:
    """Collect a strategy's edits; for a printed program, only the valid ones.

    Edits are returned as the strategy proposed them, because the changes that follow
    from them may differ after a step. Of a partial rewrite, the part that fits is
    returned.

    Raises:
        StrategyError: the strategy raised, or broke a law.
    """
    if candidate.listing is None:
        return collect_proposals(strategy, candidate, suspects)
    types = fitter.types(candidate)
    edits = [
        edit
        for edit in collect_proposals(strategy, candidate, suspects, types)
        if isinstance(edit, Rewrite)
    ]
    fits = fitter.fit(candidate, edits)
    valid = [
        fit if edit.partly else edit
        for edit, fit in zip(edits, fits, strict=True)
        if fit is not None and fit.changes
    ]
    return list(dict.fromkeys(valid))


def join_fitting_rewrites(
    candidate: Candidate, edits: Sequence[Edit], fitter: Fitter
) -> tuple[list[Rewrite], Rewrite | None]:
    """Select rewrites, in order, that make a valid program together.

    Returns:
        The selected rewrites, and one rewrite that joins them with the changes that
        follow; None instead of it if none fits.
    """
    chosen = _omit_conflicting(edit for edit in edits if isinstance(edit, Rewrite))
    fitting: tuple[list[Rewrite], Rewrite | None] = [], None
    for _ in range(_TRIES):
        if not chosen:
            break
        [joined] = fitter.fit(candidate, [_joined(chosen)])
        if joined is not None:
            return chosen, joined
        counts = range(1, len(chosen))
        parts = fitter.fit(candidate, [_joined(chosen[:n]) for n in counts])
        wrong = next((n for n, part in enumerate(parts) if part is None), len(parts))
        fitting = chosen[:wrong], parts[wrong - 1] if wrong else None
        del chosen[wrong]
    return fitting


def single_steps(
    candidate: Candidate, strategy: Strategy, fitter: Fitter
) -> Iterator[Candidate]:
    """Yield each smaller program that a single edit of a strategy would make."""
    for edit in collect_valid_proposals(strategy, candidate, fitter):
        _, made = join_fitting_rewrites(candidate, [edit], fitter)
        if made is None:
            continue
        with contextlib.suppress(InvalidEdit):
            smaller = apply(candidate, [made])
            if smaller.cost < candidate.cost:
                yield smaller


def _joined(rewrites: Sequence[Rewrite]) -> Rewrite:
    changes = (change for rewrite in rewrites for change in rewrite.changes)
    return Rewrite(tuple(dict.fromkeys(changes)))


def _omit_conflicting(rewrites: Iterable[Rewrite]) -> list[Rewrite]:
    """Omit each rewrite that contradicts an earlier one at the same place."""
    written: dict[tuple[object, ...], Change] = {}
    chosen = []
    for rewrite in rewrites:
        wanted = {change.place: change for change in rewrite.changes}
        if all(written.get(place, c) == c for place, c in wanted.items()):
            written |= wanted
            chosen.append(rewrite)
    return chosen
