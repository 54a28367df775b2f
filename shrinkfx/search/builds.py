"""Search with the fast build, as long as the result fails in the stock one too.

The fast build runs the same code, but it is not what users run. So its result is
asked about once more; if it does not fail, the search goes on with the stock build,
from the last step at which that failed. What else has to be true of the result is up to
judges, in the same way.
"""

from __future__ import annotations

from collections.abc import Callable

from shrinkfx.failure.verdict import Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import Build
from shrinkfx.search.forms import FormSearch
from shrinkfx.search.judges import Judge, steps_back
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
        self._judges: list[Judge] = []
        self._earlier: list[Candidate] | None = None

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
        for candidate in steps_back(self.search.history):
            if stock.fails(candidate, "program"):
                return candidate
        return None

    def confirm(self, judge: Judge) -> bool:
        """Have a judge confirm the best candidate, or go back to a step that it does.

        ``run_on`` goes on from there, and each step is confirmed. Where not even the
        original is, all stays as it was.
        """
        best = self.reducer.best
        steps = sorted(self.history, key=lambda c: c.cost, reverse=True)
        known = [c for c in steps if c.cost > best.cost]
        judges = [*self._judges, judge]  # a later one is dearer
        for start in steps_back([*known, best]):
            if all(judge.confirms(start) for judge in judges):
                break
        else:
            return False
        self._judges.append(judge)
        self.reducer.confirm_by(judge)
        if start is not best:
            self._earlier = [c for c in known if c.cost > start.cost]
            self.reducer.restart(start)
        return True

    def run_on(self) -> None:
        """Reduce on from where ``confirm`` went back to, if it did.

        Raises:
            BudgetExhausted: ``reducer.best`` holds what was reached, and is confirmed.
        """
        self.reducer.run()

    @property
    def history(self) -> list[Candidate]:
        """List the accepted candidates, but not those that judges went back behind."""
        if self._earlier is not None:
            return self._earlier + self.reducer.history
        return [c for search in self._searches for c in search.history]

    @property
    def reducer(self) -> Reducer:
        """The search that holds the best candidate."""
        return self.search.reducer

    @property
    def printable(self) -> bool:
        """Tell whether the source may fail too: nobody has asked since it went back."""
        return self.search.printable or self._earlier is not None

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
