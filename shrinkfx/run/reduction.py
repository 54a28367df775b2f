"""Second phase: search until no operator can be removed, or the search is stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shrinkfx.check.listing import FakeTensors
from shrinkfx.check.worker_slots import ForkPool
from shrinkfx.errors import (
    BudgetExhausted,
    InvalidEdit,
    PhaseLimitReached,
    StorageError,
    StrategyError,
    WorkerError,
)
from shrinkfx.events import SearchStarted
from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Oracle, Outcome, Verdict
from shrinkfx.journal.speculative_checks import SpeculativeChecks
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.display_text import first_line
from shrinkfx.program.edits import Drop
from shrinkfx.protocol.choices import Build, CandidateForm
from shrinkfx.report.record import OtherFailure
from shrinkfx.report.summary import DIGITS, group_other_failures
from shrinkfx.run.context import INTERRUPTED, RunContext
from shrinkfx.run.judging import (
    confirm_without_guard_pages,
    fails_without_guard_pages,
    must_fail_without_guard_pages,
)
from shrinkfx.run.oracles import forks_for, oracle_for, rate_of, with_speculation
from shrinkfx.run.subject import Subject
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.staged import SOURCE, StagedSearch, in_each_build, in_each_form
from shrinkfx.search.strategy import Strategy, choose


@dataclass
class SearchResult:
    """The result of a search.

    Attributes:
        rate: the fraction of the result's runs that fail.
        calls: how often a run must call the result before it fails.
        rest: the outcome of the input program without the result's operators, and
            without all calls of operators that are not what they declare; '' if the
            message identifies the failure.
        second: the rest of the program, if it fails alike.
        known: calls and rate, by candidate and form.
        without_guard_pages: the result must fail without guard pages, too.
        stopped: why the search ended early, or ''.
        made_of: the search whose result this search has simplified as a printed
            program.
        unused_searches: searches whose results were not used.
        data: the file with values of a printed program that it names only by key.
        fitter: tests with fake tensors which rewrites of a printed program are valid.
        short_of: why the search among printed programs is incomplete, or ''.
        is_short: a larger budget would complete it.
        kinds: for each kind, that the result is 1-minimal, or why that is not known.
        forks: the worker slots of parallel checks, or None.
    """

    search: StagedSearch
    rate: float
    calls: int = 1
    rest: str = ""
    second: list[tuple[Candidate, Verdict]] = field(default_factory=list)
    known: dict[str, tuple[int, float]] = field(default_factory=dict)
    without_guard_pages: bool = False
    stopped: str = ""
    made_of: SearchResult | None = None
    unused_searches: list[SearchResult] = field(default_factory=list)
    data: str | None = None
    fitter: FakeTensors | None = None
    short_of: str = ""
    is_short: bool = False
    kinds: Mapping[str, str] = field(default_factory=dict)
    forks: ForkPool | None = None

    @property
    def reducer(self) -> Reducer:
        """The reducer that holds the result."""
        return self.search.reducer

    @property
    def minimal(self) -> bool:
        """Whether no single operator can be removed from the result."""
        return (self.made_of or self).reducer.minimal

    @property
    def all(self) -> list[SearchResult]:
        """All searches of the run, in their order."""
        before = [self.made_of] if self.made_of else []
        return [*before, self, *self.unused_searches]

    @property
    def printable(self) -> bool:
        """Whether the printed source of the result is not known to pass."""
        return SOURCE not in self.search.unconfirmed

    def cut_short(self, reason: BudgetExhausted) -> None:
        """Record that the search among printed programs ended early.

        The operators are minimal in any case.
        """
        self.short_of = str(reason)
        self.is_short = not isinstance(reason, PhaseLimitReached)

    def forget(self, subject: Subject) -> None:
        """Drop the facts about a result that another one replaces."""
        self.calls, self.rate = subject.calls, subject.rate
        if self.made_of is None:
            self.rest, self.second = "", []

    def collect_other_failures(self, target: Signature) -> list[OtherFailure]:
        """Return the other failures; the one that may be the target comes first.

        The target is not among them, also if it shows on the inputs that must pass:
        then the candidate's sizes became those that fail.
        """
        caught = (
            pair for each in self.all for pair in each.search.list_other_failures()
        )
        others = [
            (candidate, verdict)
            for candidate, verdict in caught
            if not target.occurs_in(verdict.observation.signature)
        ]
        return [*group_other_failures(self.second), *group_other_failures(others)]


def reduce(context: RunContext, subject: Subject) -> SearchResult:
    """Search until no operator can be removed, or the search is stopped.

    The repro of the result will show whether it fails as source and in the stock build.
    These stages run here only if the result must fail without guard pages, and does
    not.
    """
    forks = forks_for(context, subject)
    search = make_staged_search(
        context, subject, choose(context.options.strategies), forks
    )
    found = SearchResult(
        search,
        subject.rate,
        subject.calls,
        without_guard_pages=must_fail_without_guard_pages(subject),
        forks=forks,
    )
    context.listener(SearchStarted(subject.whole.cost[0], context.options.max_checks))
    with stop_on_errors(context, found):
        if subject.not_tested:
            raise BudgetExhausted(subject.not_tested)
        found.search.find()
        if found.without_guard_pages and not fails_without_guard_pages(
            context, subject, search
        ):
            search.ask_stages()
            found.without_guard_pages = confirm_without_guard_pages(
                context, subject, search
            )
        measure_result(context, subject, found)
    return found


def make_staged_search(
    context: RunContext,
    subject: Subject,
    strategies: Sequence[Strategy],
    forks: ForkPool | None,
) -> StagedSearch:
    """Return a search with all its stages: by form, and by build."""
    suspects = {s.node: s.weight for s in subject.suspects}

    def reducer(asked: Subject, form: CandidateForm, oracle: Oracle) -> Reducer:
        ahead = SpeculativeChecks(context.journal, form, asked.build)
        asker = Asker(
            with_speculation(oracle, forks, ahead),
            budget=context.budget,
            journal=context.journal,
            form=form,
            build=asked.build,
        )
        asker.record_failure(subject.whole, subject.target)
        return Reducer(
            subject.whole,
            asker,
            strategies,
            suspects=suspects,
            listener=context.listener,
        )

    def built_as(asked: Subject) -> StagedSearch:
        source = oracle_for(asked.with_options(form=CandidateForm.SOURCE))
        return in_each_form(
            reducer(asked, CandidateForm.PROGRAM, oracle_for(asked)),
            reducer(asked, CandidateForm.SOURCE, source),
        )

    if subject.build is Build.STOCK:
        return built_as(subject)
    return in_each_build(
        built_as(subject), built_as(subject.built_stock()), context.note
    )


@contextlib.contextmanager
def stop_on_errors(context: RunContext, found: SearchResult) -> Iterator[None]:
    """End only the search on an error that stops it, so that its result is written."""
    try:
        yield
    except BudgetExhausted as reason:
        if found.made_of is None:
            found.stopped, context.out_of_budget = str(reason), True
        else:
            found.cut_short(reason)
    except StorageError as reason:  # the disk may have space for the result
        found.stopped = "; ".join(str(reason).splitlines())
    except (StrategyError, WorkerError) as reason:
        found.stopped = first_line(str(reason))
    except OSError as reason:  # for example, a folder cannot be created
        found.stopped = str(reason)
    except KeyboardInterrupt:
        found.stopped = INTERRUPTED
    finally:
        context.budget.reserve_s = 0.0


def run_search_stages(
    context: RunContext, subject: Subject, found: SearchResult
) -> None:
    """Run the stages of the result as source and in the stock build."""
    best = found.reducer.best
    try:
        found.search.ask_stages()
    finally:
        if found.reducer.best is not best:
            found.forget(subject)
    if found.reducer.best is not best:
        measure_result(context, subject, found)


def measure_result(context: RunContext, subject: Subject, found: SearchResult) -> None:
    """Measure how often the result fails, and test the rest of the program."""
    found.calls, found.rate = calls_and_rate(
        context, subject, found, found.reducer.best
    )
    if found.made_of is not None:
        return  # the rest was tested before the result was printed
    found.rest, found.second = "", []
    if subject.target.is_vague:
        _ablate(context, subject, found)


def calls_and_rate(
    context: RunContext, subject: Subject, found: SearchResult, candidate: Candidate
) -> tuple[int, float]:
    """Return how many calls a candidate needs, and the fraction of runs that fail.

    If the search was stopped and they are not known, return those of the input program.
    """
    form = found.reducer.asker.form
    name = f"rate of {candidate.digest} as {form}"
    if name in found.known:
        return found.known[name]
    if found.stopped:
        return subject.calls, subject.rate
    subject = subject.built_as(found.reducer.asker.build)
    calls = _fewest_calls(context, subject, candidate, form)
    subject = subject.with_options(calls=calls, form=CandidateForm(form))
    rate = context.journal.get_or_compute(name, lambda: rate_of(subject, candidate))
    found.known[name] = calls, rate
    return calls, rate


def _fewest_calls(
    context: RunContext, subject: Subject, best: Candidate, form: str
) -> int:
    """Return the least number of calls with which a result fails.

    The input program's number is the maximum.
    """
    for calls in range(1, subject.calls):
        fewer = subject.with_options(calls=calls, form=CandidateForm(form))
        build = f"{subject.build}, called {calls} times"
        verdict = context.journal.recall(best, form, build)
        if verdict is None:
            check = oracle_for(fewer).check
            verdict = context.journal.ask("calls", form, best, build, check)
        if verdict.reproduced:
            return calls
    return subject.calls


def _ablate(context: RunContext, subject: Subject, found: SearchResult) -> None:
    """Test the input program without the result's operators.

    If a failure has no message that identifies it, this shows whether the result's
    operators cause it: then the rest passes. Any call of an operator that is not what
    it declares may fail alike, so all its calls are removed.
    """
    best = found.reducer.best
    targets = {best.target(name) for name in best.operators}
    wrong = subject.other_causes.faulty_among(targets)
    whole = subject.whole
    also = {name for name in whole.operators if whole.target(name) in wrong}
    try:
        rest = apply(whole, [Drop(best.keep | also)])
    except InvalidEdit:
        return
    if context.budget.check_s > context.budget.share():
        context.note(
            "not enough time left: not testing the program without these operators"
        )
        return
    try:
        verdict = found.reducer.ask("ablation", rest, judged=False)
    except BudgetExhausted:
        return  # the search itself is complete
    found.rest = verdict.outcome.value
    if verdict.outcome is Outcome.REPRODUCED:
        found.second = [(rest, verdict)]
        more = f" or any call of {', '.join(sorted(wrong))}" if wrong else ""
        context.note(
            f"note: without the operators of the result{more}, the program still "
            "fails, because of the same bug or a different one; to write that program: "
            f"--candidate {rest.digest[:DIGITS]} --out {context.out}"
        )
