"""Searches in stages, where a strict search confirms a cheap one, or without stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from shrinkfx.failure.verdict import Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.search.asker import Confirmation
from shrinkfx.search.reducer import Reducer

# search with cheap answers -> query the result strictly
#         it fails: done
#         it does not: go back along the accepted steps to one that fails, and continue
#             the search from there with strict answers
#         no step fails: keep the result, unconfirmed
#
# If a more expensive query implies those of the stages (the repro fails, for
# example), it is made first: ``find`` searches, and ``ask_stages`` makes the queries
# that are still open.
#
# There are three such pairs. A candidate is queried in the form of the program, and
# in that of printed source, which is another program once it is exported again, until
# it has been seen to fail. It is built by the fast build, and by the stock build.
# Last come confirmations: queries that are too expensive for more than a result and
# each step after it.

READABLE = 50
"""The printed source is queried below this number of operators."""

FEW = 10
"""Below this number of operators, that query waits for the end, because the rest of the
search costs little even if it was in vain."""

SOURCE = "source"
"""The name of the stage that queries printed source."""

_NEAR = 5
"""The number of accepted steps that are tried as source before giving up on source."""

Search: TypeAlias = "Reducer | StagedSearch"


def _nobody(text: str) -> None:
    """Ignore a note."""


def select_steps_back(history: Sequence[Candidate]) -> list[Candidate]:
    """Select the steps to query when the last one is not confirmed.

    They are the last step, those one, two, four and so on before it, and the first.
    Each query is expensive, and the search finds the steps between two of them again.
    """
    last = len(history) - 1
    distances = {0, last, *(1 << n for n in range(last.bit_length()))}
    return [history[last - n] for n in sorted(distances)]


def select_near_or_known(
    history: Sequence[Candidate], is_known: Callable[[Candidate], bool]
) -> list[Candidate]:
    """Select steps whose query costs no more than one of the search.

    They are the last few steps, then the steps that are known to be confirmed, then the
    first.
    """
    earlier = history[-2::-1]
    known = [candidate for candidate in earlier[_NEAR:] if is_known(candidate)]
    return [*earlier[:_NEAR], *known, history[0]]


@dataclass(frozen=True)
class Stage:
    """A search by stricter answers than those of the search before.

    Attributes:
        name: the name of the stage, for the journal.
        search: continues if the result is not confirmed.
        steps_back: selects the accepted steps to query in that case.
        early: runs part of the search before, and tells whether to query already.
        going_on, giving_up: the note if a step was confirmed, and if none was.
    """

    name: str
    search: Search
    steps_back: Callable[[Sequence[Candidate]], list[Candidate]] = select_steps_back
    early: Callable[[], bool] | None = None
    going_on: str = ""
    giving_up: str = ""


class StagedSearch:
    """A search, and a stage that confirms its result or continues.

    Both may be staged searches again, so there can be any number of stages.

    Attributes:
        search: the one of the two that holds the result.
        is_open: whether the stage was not asked to confirm the result yet.
    """

    def __init__(
        self, first: Search, stage: Stage, note: Callable[[str], None] = _nobody
    ) -> None:
        self.search = first
        self._first, self._stage, self._note = first, stage, note
        self._gave_up = self.is_open = False
        self._judges: list[Confirmation] = []
        self._earlier: list[Candidate] | None = None

    # --- the search

    def run(self) -> None:
        """Reduce to a fixed point, once.

        Raises:
            BudgetExhausted: ``reducer.best`` holds the reduced program so far.
        """
        self.find()
        self.ask_stages()

    def find(self) -> None:
        """Reduce to a fixed point, but leave the queries of the stages open.

        A stage that asks early is the exception: its answer is used at once.
        """
        early, first = self._stage.early, self._first
        if early is not None and early() and not self._is_confirmed():
            self._continue_by_stage(first.run)
            return
        (first.find if isinstance(first, StagedSearch) else first.run)()
        self.is_open = True

    def ask_stages(self) -> None:
        """Make the queries that ``find`` left open; reduce further after a refusal."""
        if not self.is_open:
            return
        self.is_open = False
        if isinstance(self._first, StagedSearch):
            self._first.ask_stages()
        if not self._is_confirmed():
            self._continue_by_stage()

    def _continue_by_stage(self, rest: Callable[[], object] | None = None) -> None:
        """Reduce further by the stage's answers, from a step that the stage confirms.

        Args:
            rest: the rest of the search before, if the stage ran
        early; runs if
                the stage confirms no step.
        """
        start, stage = self._step_back(), self._stage
        if start is None:
            self._say(stage.giving_up)
            self._gave_up = True
            if rest is not None:
                rest()
                # The stage may confirm the smaller result.
                self._gave_up = not self._is_confirmed()
            return
        self._say(stage.going_on)
        stage.search.restart(start)
        self.search = stage.search
        stage.search.run()

    def _say(self, text: str) -> None:
        if text:
            self._note(text)

    def _is_confirmed(self) -> bool:
        """Query the stage about the result of the search."""
        form = self.reducer.asker.form
        reducers = _reducers(self._stage.search)
        same_form = [other for other in reducers if other.asker.form == form]
        return self._fails_by([*same_form, *reducers][0], self.reducer.best)

    def _step_back(self) -> Candidate | None:
        """Find an accepted step that fails in the stage's first form and build."""
        reducer = _reducers(self._stage.search)[0]
        for candidate in self._stage.steps_back(self._first.history):
            if self._fails_by(reducer, candidate):
                return candidate
        return None

    def _fails_by(self, reducer: Reducer, candidate: Candidate) -> bool:
        reducer.restart(self.reducer.best)  # so that its events report this program
        return reducer.ask(self._stage.name, candidate).reproduced

    def restart(self, start: Candidate) -> None:
        """Continue from another candidate that is known to fail; keep all answers."""
        self._first.restart(start)
        self.search = self._first

    # --- confirmations

    def confirm(self, judge: Confirmation) -> bool:
        """Confirm the reduced program, or go back to a step that is confirmed.

        ``run_on`` continues from there, and each later step is confirmed too.

        Returns:
            False if not even the input program is confirmed; then nothing changes.
        """
        reduced = self.reducer.best
        steps = sorted(self.history, key=lambda c: c.cost, reverse=True)
        known = [c for c in steps if c.cost > reduced.cost]
        judges = [*self._judges, judge]  # a later one is more expensive
        for start in select_steps_back([*known, reduced]):
            if all(judge.confirms(start) for judge in judges):
                break
        else:
            return False
        self._judges.append(judge)
        self.reducer.asker.add_confirmation(judge)
        if start is not reduced:
            self._earlier = [c for c in known if c.cost > start.cost]
            self.reducer.restart(start)
        return True

    def continue_search(self) -> None:
        """Reduce further if ``confirm`` went back.

        Raises:
            BudgetExhausted: ``reducer.best`` holds the reduced program so far,
                confirmed.
        """
        self.reducer.run()

    # --- results

    @property
    def reducer(self) -> Reducer:
        """The search that holds the reduced program."""
        search = self.search
        return search.reducer if isinstance(search, StagedSearch) else search

    @property
    def reducers(self) -> list[Reducer]:
        """The searches of all stages, the first stage first."""
        return [*_reducers(self._first), *_reducers(self._stage.search)]

    @property
    def history(self) -> list[Candidate]:
        """The accepted candidates, without the steps that a confirmation refused."""
        if self._earlier is not None:
            return self._earlier + self.reducer.history
        before = self._first.history
        return before if self.search is self._first else before + self.search.history

    @property
    def unconfirmed(self) -> set[str]:
        """The names of the stages that ran and did not confirm the result."""
        if self._earlier is not None:
            return set()  # no stage was asked since ``confirm`` went back
        search = self.search
        inner = search.unconfirmed if isinstance(search, StagedSearch) else set()
        return inner | ({self._stage.name} if self._gave_up else set())

    @property
    def cached(self) -> int:
        """The number of queries that were answered from memory."""
        return sum(reducer.asker.cached for reducer in self.reducers)

    def verdicts(self) -> list[Verdict]:
        """List every verdict that was paid for, stage by stage."""
        return [v for reducer in self.reducers for v in reducer.asker.verdicts()]

    def list_other_failures(self) -> list[tuple[Candidate, Verdict]]:
        """List the candidates that show other failures, with their verdicts."""
        return [pair for reducer in self.reducers for pair in reducer.asker.by_catch]


def _reducers(search: Search) -> list[Reducer]:
    return search.reducers if isinstance(search, StagedSearch) else [search]


def in_each_form(program: Reducer, source: Reducer) -> StagedSearch:
    """Search in the form of the program, as long as its printed source fails too.

    The source is queried early, at the first step that is small enough to read, and
    again at the end.
    """

    def asks_early(reduced: Candidate) -> bool:
        is_step = reduced is not program.history[0]
        return is_step and FEW <= reduced.cost[0] < READABLE

    back = partial(select_near_or_known, is_known=source.asker.has_reproduced)
    stage = Stage(SOURCE, source, back, lambda: asks_early(program.run(asks_early)))
    return StagedSearch(program, stage)


def in_each_build(
    fast: StagedSearch, stock: StagedSearch, note: Callable[[str], None]
) -> StagedSearch:
    """Search with the fast build, as long as the result fails in the stock build too.

    The fast build runs the same code, but users do not run it.
    """
    confirmation = Stage(
        "confirmation",
        stock,
        going_on="the result does not fail in the stock build: continuing the search "
        "with stock builds",
        giving_up="warning: the program fails in the fast build only",
    )
    return StagedSearch(fast, confirmation, note=note)


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
