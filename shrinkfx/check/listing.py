"""Print a candidate, and fit rewrites of it with fake tensors, without compiling."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

from shrinkfx.check.oracle import CheckClient
from shrinkfx.errors import ShrinkfxError, SpeculationError
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.display_text import first_line
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.printed_program import UNTYPED, ListedType, Types
from shrinkfx.protocol.answers import Ending, Fitted, Invalid, Listed, Typed
from shrinkfx.protocol.requests import FitRewrites, ListCandidate


def list_candidate(
    client: CheckClient, candidate: Candidate, data: Path
) -> tuple[Listed | None, str]:
    """Print a candidate as statements.

    Args:
        data: the file for values that are too long for Python source.

    Returns:
        The printed program and ''; or None and the reason.
    """
    ending = client.ask(ListCandidate(candidate.to_json(), str(data)))
    if isinstance(ending.answer, Listed):
        return ending.answer, ""
    return None, _why(ending)


class FakeTensors:
    """Fits rewrites with the worker's fake tensors.

    Attributes:
        refused: why some query had no answer, or ''.
        unseen: why fake tensors cannot run some printed program, or ''.
    """

    def __init__(self, client: CheckClient) -> None:
        self._client = client
        self._types: dict[str, Types] = {}
        self._fits: dict[tuple[str, Rewrite], Rewrite | None] = {}
        self._misfits: dict[str, str] = {}
        self._is_ahead = False
        self.refused = self.unseen = ""

    def ahead(self) -> FakeTensors:
        """Create a fitter for speculation that shares its answers with this one.

        It raises ``SpeculationError`` where it gets no answer, and keeps none. Its
        queries run in the thread that waits for a check; on the demo's printed program
        each takes 3 % of a check's time.
        """
        twin = copy.copy(self)
        twin._is_ahead = True
        return twin

    def types(self, candidate: Candidate) -> Types:
        """Return the types of a printed program's values."""
        if candidate.digest not in self._types:
            self._ask(candidate, [])
        self._see(candidate)
        return self._types[candidate.digest]

    def fit(
        self, candidate: Candidate, rewrites: Sequence[Rewrite]
    ) -> list[Rewrite | None]:
        """Complete each rewrite with the changes that follow from it.

        Returns:
            One entry for each rewrite; None if it does not make a valid program.
        """
        digest = candidate.digest
        new = [r for r in dict.fromkeys(rewrites) if (digest, r) not in self._fits]
        if new:
            self._ask(candidate, new)
        self._see(candidate)
        return [self._fits[digest, rewrite] for rewrite in rewrites]

    def _see(self, candidate: Candidate) -> None:
        self.unseen = self.unseen or self._misfits.get(candidate.digest, "")

    def _ask(self, candidate: Candidate, rewrites: Sequence[Rewrite]) -> None:
        answer, why = self._answer(FitRewrites(candidate.to_json(), tuple(rewrites)))
        fits: Sequence[Rewrite | None] = [None] * len(rewrites)
        if answer is not None:
            fits = answer.fits
            self._misfits.setdefault(candidate.digest, first_line(answer.misfit))
            known = {(t.block, t.name): _type(t) for t in answer.values}
            self._types[candidate.digest] = known
        else:
            self.refused = why
            self._types.setdefault(candidate.digest, UNTYPED)
        for rewrite, fit in zip(rewrites, fits, strict=True):
            self._fits[candidate.digest, rewrite] = fit

    def _answer(self, task: FitRewrites) -> tuple[Fitted | None, str]:
        """Return the answer of the fake tensors, or None and the reason."""
        try:
            ending = self._client.ask(task)
        except (ShrinkfxError, OSError) as error:
            if self._is_ahead:
                raise SpeculationError(str(error)) from error
            raise
        if isinstance(ending.answer, Fitted):
            return ending.answer, ""
        if self._is_ahead:
            raise SpeculationError(_why(ending))
        return None, _why(ending)


def _type(spec: Typed) -> ListedType:
    return ListedType(spec.dtype, spec.shape, spec.stride, spec.device)


def _why(ending: Ending) -> str:
    """Describe in one line why there is no answer."""
    if isinstance(ending.answer, Invalid):
        return first_line(ending.answer.why)
    if ending.raised:
        return first_line(f"{ending.raised.type}: {ending.raised.message}")
    return f"the process ended with {ending.how} {ending.code}"
