"""Search with the fast build, as long as the result fails in the stock one too.

The fast build runs the same code, but it is not what users run. So its result is
asked about once more; if it does not fail, the search goes on with the stock build,
from the last step at which that failed.
"""

from __future__ import annotations

from collections.abc import Callable

from shrinkfx.failure.verdict import Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.messages import Build
from shrinkfx.search.forms import FormSearch
from shrinkfx.search.reducer import Reducer

MakeSearch = Callable[[Build], FormSearch]


class BuildSearch:
    """Two searches in turn, the second only if the first's result is not confirmed.

    Attributes:
        build: what the search that holds the result builds with.
        search: that search.
    """

    def __init__(
        self, build: Build, make: MakeSearch, note: Callable[[str], None]
    ) -> None:
        self.build = build
        self.search = make(build)
        self._searches = [self.search]
        self._make = make
        self._note = note

    def run(self) -> None:
        """Reduce to a fixed point.

        Raises:
            BudgetExhausted: ``reducer.best`` holds what was reached.
        """
        self.search.run()
        if self.build is Build.STOCK:
            return
        stock = self._make(Build.STOCK)
        self._searches.append(stock)
        stock.restart(self.reducer.best)
        if stock.fails(self.reducer.best, self.reducer.form):
            return
        start = self._last_that_fails(stock)
        if start is None:
            self._note("careful: it fails in the fast build only")
            return
        self._note("the result does not fail in the stock build: going on with that")
        stock.restart(start)
        self.build, self.search = Build.STOCK, stock
        stock.run()

    def _last_that_fails(self, stock: FormSearch) -> Candidate | None:
        """Go back by one step, two, four and so on; each question costs."""
        steps = list(reversed(self.search.history))
        back = [0, *(1 << n for n in range(len(steps).bit_length()))]
        near = [steps[n] for n in back if n < len(steps)]
        for candidate in [*near, steps[-1]]:
            if stock.fails(candidate, "program"):
                return candidate
        return None

    @property
    def reducer(self) -> Reducer:
        """The search that holds the best candidate."""
        return self.search.reducer

    @property
    def printable(self) -> bool:
        return self.search.printable

    @property
    def cached(self) -> int:
        """Count the questions that were answered without asking."""
        return sum(search.cached for search in self._searches)

    def verdicts(self) -> list[Verdict]:
        """List every answer that was paid for, build by build."""
        return [v for search in self._searches for v in search.verdicts()]

    def by_catch(self) -> list[tuple[Candidate, Verdict]]:
        """List the candidates that fail, but differently."""
        return [pair for search in self._searches for pair in search.by_catch()]
