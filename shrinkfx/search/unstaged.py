"""A search whose result no stage confirms, but judges may."""

from __future__ import annotations

from shrinkfx.program.candidate import Candidate
from shrinkfx.search.asker import Confirmation
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.staged import Search, StagedSearch


class Unstaged(StagedSearch):
    """A search that only judges confirm."""

    def __init__(self, reducer: Reducer) -> None:
        self.search: Search = reducer
        self._first: Search = reducer
        self._only = reducer
        self.is_open = False
        self._judges: list[Confirmation] = []
        self._earlier: list[Candidate] | None = None

    def find(self) -> None:
        """Reduce to a fixed point."""
        self._only.run()

    def ask_stages(self) -> None:
        """Leave nothing open."""

    @property
    def reducers(self) -> list[Reducer]:
        return [self._only]

    @property
    def unconfirmed(self) -> set[str]:
        return set()
