"""A search without stages: only confirmations test its result."""

from __future__ import annotations

from collections.abc import Sequence

from shrinkfx.program.candidate import Candidate
from shrinkfx.search.asker import Confirmation
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.staged import Search, StagedSearch


class UnstagedSearch(StagedSearch):
    """A search that only confirmations confirm.

    Args:
        before: larger programs that are known to fail; a confirmation may go back to
            them.
    """

    def __init__(self, reducer: Reducer, before: Sequence[Candidate] = ()) -> None:
        self.search: Search = reducer
        self._first: Search = reducer
        self._only, self._before = reducer, before
        self.is_open = False
        self._judges: list[Confirmation] = []
        self._earlier: list[Candidate] | None = None

    def find(self) -> None:
        """Reduce to a fixed point."""
        self._only.run()

    def ask_stages(self) -> None:
        """Do nothing: no query is open."""

    @property
    def reducers(self) -> list[Reducer]:
        return [self._only]

    @property
    def history(self) -> list[Candidate]:
        if self._earlier is not None:
            return super().history
        began = self._only.history[0]
        larger = [c for c in self._before if c.cost > began.cost]
        return [*larger, *self._only.history]

    @property
    def unconfirmed(self) -> set[str]:
        return set()
