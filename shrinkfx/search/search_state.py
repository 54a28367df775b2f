"""The state of a search, as a value: its next query, and the state after each answer.

A ``Course`` makes no queries. It tells the next query and accepts the answer; the same
answers lead to the same queries. So a copy of it that gets an assumed answer tells what
the search would query then.

    course.question()    return the next query
    course.answer(...)   advance by its answer
    course.copy()        make a copy for speculation
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Protocol, Self

from shrinkfx.errors import InvalidEdit
from shrinkfx.failure.verdict import Outcome
from shrinkfx.program.apply import apply, remaining_edit
from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.edits import Drop, Edit
from shrinkfx.program.view import NO_SUSPECTS
from shrinkfx.search.bundles import Bundles, EditProbabilities, GroupTesting
from shrinkfx.search.fitting import (
    Fitter,
    Unfitted,
    collect_valid_proposals,
    join_fitting_rewrites,
)
from shrinkfx.search.strategy import Strategy, select_strategies

_P_SHOW = 0.75
"""The probability that a program with everything it needs shows the failure."""

_LEAST_OF_BUNDLES, _LEAST_OF_ALTERNATIVES = 0.15, 0.3
"""The lowest probability that an edit is accepted: of bundles, and of alternatives."""

_EVEN, _AGAIN = 0.5, 0.1
"""The probability that rewrites of a printed program are accepted.

The first is for any rewrites, because halves are chosen so that both answers are
equally likely; the second for rewrites that were rejected alone in an earlier round.

These five constants affect speculation only (``benchmarks/foreseeing.py``)."""


@dataclass(frozen=True)
class Query:
    """A query of the search.

    Attributes:
        strategy: the name of the strategy that makes the query, for the journal.
        edits: the edits that lead from the reduced program to the candidate; empty if
            the candidate cannot become the reduced program.
    """

    strategy: str
    candidate: Candidate
    edits: Sequence[Edit] = ()


class _Turn(Protocol):
    """One pass through the edits of a strategy."""

    def next(self) -> Sequence[Edit]:
        """Choose the edits to try next; empty at the end."""
        ...

    def record_accepted(self, edits: Sequence[Edit], reduced: Candidate) -> None: ...

    def record_rejected(self, edits: Sequence[Edit]) -> None: ...

    def copy(self, probabilities: EditProbabilities) -> Self:
        """Copy the state, to use other probabilities."""
        ...


class _Alternatives:
    """Edits that are tried one by one."""

    def __init__(self, edits: Sequence[Edit]) -> None:
        self._edits, self._tried = edits, 0

    def next(self) -> Sequence[Edit]:
        return self._edits[self._tried : self._tried + 1]

    def record_accepted(self, edits: Sequence[Edit], reduced: Candidate) -> None:
        # After a step, the other rewrites of a printed program do not fit any more:
        # one that would have reduced a size may increase it now.
        self._tried = self._tried + 1 if reduced.listing is None else len(self._edits)

    def record_rejected(self, edits: Sequence[Edit]) -> None:
        self._tried += 1

    def copy(self, probabilities: EditProbabilities) -> Self:
        return copy.copy(self)


class _Combined:
    """Edits that are tried in bundles, until each was rejected alone.

    They are not repeated to a fixed point, because another strategy may free what this
    one could not, and every step makes the later queries new.
    """

    def __init__(self, edits: Sequence[Edit], probabilities: EditProbabilities) -> None:
        self._bundles = Bundles(list(dict.fromkeys(edits)), probabilities)

    def next(self) -> Sequence[Edit]:
        return self._bundles.next()

    def record_accepted(self, edits: Sequence[Edit], reduced: Candidate) -> None:
        self._bundles.record_accepted(
            edits,
            lambda items: [e for item in items if (e := remaining_edit(item, reduced))],
        )

    def record_rejected(self, edits: Sequence[Edit]) -> None:
        self._bundles.record_rejected(edits)

    def copy(self, probabilities: EditProbabilities) -> Self:
        copied = copy.copy(self)
        copied._bundles = self._bundles.copy(probabilities)
        return copied


class SearchState:
    """The state: all strategies in turn, for both output policies, to a fixed point.

    Attributes:
        best: the reduced program so far; its cost only falls.
        probabilities: the probability that each operator is needed.
    """

    def __init__(
        self,
        start: Candidate,
        strategies: Sequence[Strategy],
        suspects: Mapping[str, float] = NO_SUSPECTS,
        fitter: Fitter = Unfitted(),  # noqa: B008 - it holds nothing
    ) -> None:
        self.best = start
        self.probabilities = EditProbabilities(suspects, start.cost[0])
        self._strategies = select_strategies(start, strategies)
        self._suspects, self._fitter = suspects, fitter
        self._rejections = Rejections()
        self._refused: frozenset[Edit] = frozenset()  # rejected alone, in any round
        self._question: Query | None = None
        self._before = start.cost  # cost at the start of this round
        self._round: Sequence[tuple[Outputs, Strategy]] | None = None
        self._place = 0  # index in the round
        self._turn: _Turn | None = None
        self._start = start  # reduced program at the start of the turn

    def copy(self) -> SearchState:
        """Copy the mutable state; candidates and edits are immutable."""
        copied = copy.copy(self)
        copied.probabilities = self.probabilities.copy()
        copied._rejections = self._rejections.copy()
        copied._turn = self._turn and self._turn.copy(copied.probabilities)
        return copied

    def copy_for_speculation(self) -> SearchState:
        """Copy the state for speculation: the copy may get assumed answers."""
        copied = self.copy()
        copied._fitter = self._fitter.ahead()
        return copied

    # --- queries and answers

    def next_query(self) -> Query | None:
        """Return the next query; None when no strategy finds another step.

        Raises:
            StrategyError: a strategy raised, or broke a law.
        """
        if self._round is None and self._question is None:
            self._question = self._query_fewer_outputs()
        while self._question is None and (turn := self._current_turn()):
            if edits := turn.next():
                self._question = self._build_query(edits)
                if self._question is None:
                    turn.record_rejected(edits)
            else:
                self._end_turn()
        return self._question

    def answer(self, outcome: Outcome) -> bool:
        """Advance by the answer to the current query; return whether it was a step."""
        question, self._question = self._question, None
        assert question is not None
        accepted = outcome is Outcome.REPRODUCED
        if self._round is None:
            self._begin(Outputs.SINKS if accepted else Outputs.ORIGINAL)
            return False
        assert self._turn is not None
        if accepted:
            self.best = question.candidate
            self._turn.record_accepted(question.edits, self.best)
        else:
            self._rejections.note(question.edits, question.candidate, outcome)
            self._turn.record_rejected(question.edits)
            if len(question.edits) == 1:
                self._refused |= {*question.edits}
        return accepted

    def chance(self) -> float:
        """Estimate the probability that the current query is answered by REPRODUCED.

        The probability that no removed operator is needed is not enough, because the
        remaining program may hide the failure. It is also too low for big parts,
        because the model takes operators as independent, while the needed ones are
        mostly in one place.
        """
        question = self.next_query()
        assert question is not None
        if not question.edits:
            return _P_SHOW
        if self.best.listing is not None:
            return _AGAIN if self._refused.issuperset(question.edits) else _EVEN
        combines = isinstance(self._turn, _Combined)
        least = _LEAST_OF_BUNDLES if combines else _LEAST_OF_ALTERNATIVES
        return max(
            least, _P_SHOW * self.probabilities.acceptance_probability(question.edits)
        )

    def _query_fewer_outputs(self) -> Query | None:
        """Query whether the program may return fewer values, unless it does already.

        A returned value cannot be fused away, and an unreturned one can.
        """
        fewer = self.best.returning(Outputs.SINKS)
        if fewer.digest == self.best.digest:
            self._begin(Outputs.SINKS)
            return None
        return Query("outputs", fewer)

    def _build_query(self, edits: Sequence[Edit]) -> Query | None:
        """Build the query for ``edits``; None if they are invalid or not worth one."""
        assert self._round is not None
        policy, strategy = self._round[self._place]
        made = edits
        if self.best.listing is not None:
            edits, joined = join_fitting_rewrites(self.best, edits, self._fitter)
            made = [joined] if joined else []
        try:
            candidate = apply(self.best, made).returning(policy)
        except InvalidEdit:
            return None
        if candidate.cost >= self.best.cost:
            return None
        if self._rejections.rule_out(edits, candidate):
            return None
        return Query(strategy.name, candidate, edits)

    # --- the turns of strategies

    def _begin(self, first: Outputs) -> None:
        """Start the first round with this output policy, then the other one."""
        policies = sorted(Outputs, key=lambda policy: policy is not first)
        if self.best.listing is not None:
            policies = [first]  # a printed program states its outputs itself
        self._round = list(product(policies, self._strategies))

    def _current_turn(self) -> _Turn | None:
        """Return the current turn, or begin the next one; None at the fixed point."""
        assert self._round is not None
        if self._turn is not None:
            return self._turn
        if self._place == len(self._round):
            if self.best.cost == self._before:
                return None
            self._place, self._before = 0, self.best.cost
        _, strategy = self._round[self._place]
        arguments = strategy, self.best, self._fitter, self._suspects
        edits = collect_valid_proposals(*arguments)
        self._start = self.best
        if self.best.listing is not None:  # edits that were rejected alone come last
            edits.sort(key=self._refused.__contains__)
        if strategy.combines and self.best.listing is not None:
            self._turn = GroupTesting(edits, self._refused)
        elif strategy.combines:
            self.probabilities.start_round(self.best.cost[0])
            self._turn = _Combined(edits, self.probabilities)
        else:
            self._turn = _Alternatives(edits)
        return self._turn

    def _end_turn(self) -> None:
        """End a turn. Alternatives get another turn if one of them was a step."""
        assert self._round is not None
        _, strategy = self._round[self._place]
        self._turn = None
        if strategy.combines or self._start is self.best:
            self._place += 1


@dataclass
class Rejections:
    """Sets of operators that could not be dropped.

    This uses the monotonicity of delta debugging: a program that passes without some
    operators is assumed to pass without more of them. The assumption ends when one of
    these operators can be removed after all, because one accidental pass of half the
    program must not decide the rest of the search. Only PASSED counts: a bigger cut may
    repair one that is INVALID or fails DIFFERENTly.
    """

    _passed: list[tuple[Outputs, frozenset[str]]] = field(default_factory=list)

    def copy(self) -> Rejections:
        return Rejections(list(self._passed))

    def note(
        self, edits: Sequence[Edit], candidate: Candidate, outcome: Outcome
    ) -> None:
        """Record that ``edits``, which led to ``candidate``, were rejected."""
        nodes = dropped_operators(edits)
        if nodes and outcome is Outcome.PASSED:
            self._passed.append((candidate.outputs, nodes))

    def rule_out(self, edits: Sequence[Edit], candidate: Candidate) -> bool:
        """Tell whether the answer is known; always False for a single operator.

        Args:
            edits: all of them are still to be made, and make ``candidate``.
        """
        nodes = dropped_operators(edits)
        return len(nodes) > 1 and any(
            outputs is candidate.outputs and fewer <= nodes
            for outputs, fewer in self._passed
        )


def dropped_operators(edits: Sequence[Edit]) -> frozenset[str]:
    """Collect the operators that a bundle of drops removes; empty for other bundles."""
    nodes = [edit.nodes for edit in edits if isinstance(edit, Drop)]
    return frozenset().union(*nodes) if len(nodes) == len(edits) else frozenset()
