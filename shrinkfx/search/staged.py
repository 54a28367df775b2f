"""Searches in turn: a cheap one finds, a strict one confirms, or goes on.

    search with cheap answers -> ask strictly about the result
        it fails so too: done
        it does not: back along the accepted steps to one that does, and search on from
            there with strict answers
        none does: the result stays as it is, unconfirmed

Who has dearer answers that imply those of the stages, a repro that fails say, has them
first: ``find`` searches, ``ask_stages`` asks afterwards what is still open.

There are three such pairs of answers. A candidate is asked about in the form of the
program, and in that of printed source, which exported again is another program until it
has been shown to fail. It is built fast, and as users build. Last, judges: what costs
too much to be asked about more than a result and each step after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from shrinkfx.failure.verdict import Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.search.asker import Confirmation
from shrinkfx.search.reducer import Reducer

READABLE = 50
"""Operators below which the printed source is asked about."""

FEW = 10
"""Operators below which that waits for the end: the rest costs little, if in vain."""

SOURCE = "source"
"""The stage that asks about printed source."""

_NEAR = 5
"""Accepted steps that are tried as source before giving up on source."""

Search: TypeAlias = "Reducer | StagedSearch"


def _nobody(text: str) -> None:
    """Listen to no notes."""


def steps_back(history: Sequence[Candidate]) -> list[Candidate]:
    """Choose which steps to ask about when the last one is not confirmed.

    The last one, those one, two, four and so on before it, and the first. Each
    question costs, and what is between two of them the search finds again.
    """
    last = len(history) - 1
    back = {0, last, *(1 << n for n in range(last.bit_length()))}
    return [history[last - n] for n in sorted(back)]


def near_or_known(
    history: Sequence[Candidate], is_known: Callable[[Candidate], bool]
) -> list[Candidate]:
    """Choose steps where a question costs no more than one of the search.

    The last few, one by one, then those that are known to be confirmed, then the first.
    """
    earlier = history[-2::-1]
    known = [candidate for candidate in earlier[_NEAR:] if is_known(candidate)]
    return [*earlier[:_NEAR], *known, history[0]]


@dataclass(frozen=True)
class Stage:
    """A search by stricter answers than those of the one before.

    Attributes:
        name: who wants to know, for the journal.
        search: goes on where the result is not confirmed.
        steps_back: which of the accepted steps to ask about then.
        early: does a part of the search before, and tells whether to ask already.
        going_on, giving_up: what is noted where a step was found, and where none was.
    """

    name: str
    search: Search
    steps_back: Callable[[Sequence[Candidate]], list[Candidate]] = steps_back
    early: Callable[[], bool] | None = None
    going_on: str = ""
    giving_up: str = ""


class StagedSearch:
    """A search, and a stage that confirms its result or goes on.

    Either may be a staged search again: so there are as many stages as need be.

    Attributes:
        search: the one of the two that holds the result.
        is_open: the stage was not asked about it.
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
            BudgetExhausted: ``reducer.best`` holds what was reached.
        """
        self.find()
        self.ask_stages()

    def find(self) -> None:
        """Do so, but leave open what stages say that were not asked about less."""
        early, first = self._stage.early, self._first
        if early is not None and early() and not self._is_confirmed():
            self._go_on(first.run)
            return
        (first.find if isinstance(first, StagedSearch) else first.run)()
        self.is_open = True

    def ask_stages(self) -> None:
        """Ask what ``find`` has left open, and reduce on where the answer is no."""
        if not self.is_open:
            return
        self.is_open = False
        if isinstance(self._first, StagedSearch):
            self._first.ask_stages()
        if not self._is_confirmed():
            self._go_on()

    def _go_on(self, rest: Callable[[], object] | None = None) -> None:
        """Reduce on by the stage's answers, from a step where it says yes.

        Args:
            rest: of the search before, if the stage was asked early; for where it
                says yes to no step.
        """
        start, stage = self._step_back(), self._stage
        if start is None:
            self._say(stage.giving_up)
            self._gave_up = True
            if rest is not None:
                rest()
                # Less may be confirmed where all of it was not.
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
        """Ask the stage about what the search has come to."""
        form = self.reducer.asker.form
        reducers = _reducers(self._stage.search)
        alike = [other for other in reducers if other.asker.form == form]
        return self._fails_by([*alike, *reducers][0], self.reducer.best)

    def _step_back(self) -> Candidate | None:
        """Find an accepted step that fails in what the stage would begin with."""
        reducer = _reducers(self._stage.search)[0]
        for candidate in self._stage.steps_back(self._first.history):
            if self._fails_by(reducer, candidate):
                return candidate
        return None

    def _fails_by(self, reducer: Reducer, candidate: Candidate) -> bool:
        reducer.restart(self.reducer.best)  # what it tells as the best so far
        return reducer.ask(self._stage.name, candidate).reproduced

    def restart(self, best: Candidate) -> None:
        """Go on from another candidate that is known to fail; keep all answers."""
        self._first.restart(best)
        self.search = self._first

    # --- judges

    def confirm(self, judge: Confirmation) -> bool:
        """Have a judge confirm the best candidate, or go back to a step that it does.

        ``run_on`` goes on from there, and each step is confirmed. Where not even the
        original is, all stays as it was.
        """
        best = self.reducer.best
        steps = sorted(self.history, key=lambda c: c.cost, reverse=True)
        known = [c for c in steps if c.cost > best.cost]
        judges = [*self._judges, judge]  # a later one is more expensive
        for start in steps_back([*known, best]):
            if all(judge.confirms(start) for judge in judges):
                break
        else:
            return False
        self._judges.append(judge)
        self.reducer.asker.confirm_by(judge)
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

    # --- what came of it

    @property
    def reducer(self) -> Reducer:
        """The search that holds the best candidate."""
        found = self.search
        return found.reducer if isinstance(found, StagedSearch) else found

    @property
    def reducers(self) -> list[Reducer]:
        """List the searches of all stages, the first one's first."""
        return [*_reducers(self._first), *_reducers(self._stage.search)]

    @property
    def history(self) -> list[Candidate]:
        """List the accepted candidates, but not those that judges went back behind."""
        if self._earlier is not None:
            return self._earlier + self.reducer.history
        before = self._first.history
        return before if self.search is self._first else before + self.search.history

    @property
    def unconfirmed(self) -> set[str]:
        """Name the stages that were asked about the result and do not confirm it."""
        if self._earlier is not None:
            return set()  # nobody has asked since it went back
        found = self.search
        inner = found.unconfirmed if isinstance(found, StagedSearch) else set()
        return inner | ({self._stage.name} if self._gave_up else set())

    @property
    def cached(self) -> int:
        """Count the questions that were answered without asking."""
        return sum(reducer.asker.cached for reducer in self.reducers)

    def verdicts(self) -> list[Verdict]:
        """List every answer that was paid for, in order of asking by each stage."""
        return [v for reducer in self.reducers for v in reducer.asker.verdicts()]

    def by_catch(self) -> list[tuple[Candidate, Verdict]]:
        """List the candidates that fail, but differently."""
        return [pair for reducer in self.reducers for pair in reducer.asker.by_catch]


def _reducers(search: Search) -> list[Reducer]:
    return search.reducers if isinstance(search, StagedSearch) else [search]


def in_each_form(program: Reducer, source: Reducer) -> StagedSearch:
    """Search in the form of the program, as long as its printed source fails too.

    That is asked about early, of the first step that is small enough to be read, and
    again at the end.
    """

    def asks_early(best: Candidate) -> bool:
        is_step = best is not program.history[0]
        return is_step and FEW <= best.cost[0] < READABLE

    back = partial(near_or_known, is_known=source.asker.has_reproduced)
    stage = Stage(SOURCE, source, back, lambda: asks_early(program.run(asks_early)))
    return StagedSearch(program, stage)


def in_each_build(
    fast: StagedSearch, stock: StagedSearch, note: Callable[[str], None]
) -> StagedSearch:
    """Search with the fast build, as long as the result fails in the stock one too.

    The fast build runs the same code, but it is not what users run.
    """
    confirmation = Stage(
        "confirmation",
        stock,
        going_on="the result does not fail in the stock build: continuing the search "
        "with stock builds",
        giving_up="warning: the program fails in the fast build only",
    )
    return StagedSearch(fast, confirmation, note=note)
