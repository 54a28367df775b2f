"""Search in the form of the program, as long as its printed source fails too.

A repro is source, and source exported again is another program until it has
been shown to fail. So it is asked about early, when the candidate is small
enough to be read, and again at the end. Where it does not fail, the search goes
on in the form of source, from the last step at which that failed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from shrinkfx.failure.verdict import Oracle, Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.search.reducer import Reducer

READABLE = 50
"""Operators below which the printed source is asked about."""

_STEPS_BACK = 5
"""Accepted steps that are tried as source before giving up on source."""

MakeReducer = Callable[[Candidate, Oracle, str], Reducer]


class FormSearch:
    """Two searches in turn, the second only if the first's result cannot be printed.

    Attributes:
        reducer: the search that holds the best candidate.
        printable: the best candidate's source is known to fail, or was not
            asked about yet.
    """

    def __init__(
        self, whole: Candidate, program: Oracle, source: Oracle, make: MakeReducer
    ) -> None:
        self._source = source
        self._make = make
        self._in_program = make(whole, program, "program")
        self.reducer = self._in_program
        self.printable = True

    @cached_property
    def _in_source(self) -> Reducer:
        """Answers every question about source; runs only if it has to."""
        return self._make(self.reducer.best, self._source, "source")

    def run(self) -> None:
        """Reduce to a fixed point.

        Raises:
            BudgetExhausted: ``reducer.best`` holds what was reached.
        """
        self.reducer.run(pause=lambda best: best.cost[0] < READABLE)
        if self._fails_as_source(self.reducer.best):
            self.reducer.run()
            if self._fails_as_source(self.reducer.best):
                return
        start = self._last_that_fails_as_source()
        if start is None:
            self.printable = False
            self.reducer.run()
            # Less of a program may be printable where all of it was not.
            self.printable = self._fails_as_source(self.reducer.best)
        else:
            self._in_source.restart(start)
            self.reducer = self._in_source
            self.reducer.run()

    def restart(self, best: Candidate) -> None:
        """Go on from another candidate that is known to fail; keep all answers."""
        self._in_program.restart(best)
        self.reducer = self._in_program

    def fails(self, candidate: Candidate, form: str) -> bool:
        """Ask about a candidate that another search has come to."""
        source = form == self._in_source.form
        reducer = self._in_source if source else self._in_program
        return reducer.ask("confirmation", candidate).reproduced

    @property
    def history(self) -> list[Candidate]:
        """List every accepted candidate, the starting one first."""
        if self.reducer is self._in_program:
            return self.reducer.history
        return self._in_program.history + self.reducer.history

    def verdicts(self) -> list[Verdict]:
        """List every answer that was paid for, in order of asking by each form."""
        return self._in_program.verdicts() + self._in_source.verdicts()

    def by_catch(self) -> list[tuple[Candidate, Verdict]]:
        """List the candidates that fail, but differently."""
        return self._in_program.by_catch + self._in_source.by_catch

    @property
    def cached(self) -> int:
        """Count the questions that were answered without asking."""
        return self._in_program.cached + self._in_source.cached

    def _fails_as_source(self, candidate: Candidate) -> bool:
        self._in_source.restart(self.reducer.best)  # what it tells as the best so far
        return self._in_source.ask("source", candidate).reproduced

    def _last_that_fails_as_source(self) -> Candidate | None:
        earlier = self._in_program.history[-2::-1]
        near, far = earlier[:_STEPS_BACK], earlier[_STEPS_BACK:]
        known = [c for c in far if self._in_source.has_reproduced(c)]
        for candidate in [*near, *known, self._in_program.history[0]]:
            if self._fails_as_source(candidate):
                return candidate
        return None
