"""Second phase: search until no operator can be removed, or the search is stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shrinkfx.check.baseline.with_guard_pages import (
    describe_runs,
    seen_without_guard_pages,
)
from shrinkfx.check.client.restarting import RestartingServer
from shrinkfx.check.command import CommandOracle
from shrinkfx.check.limits import jobs_that_fit, usual_jobs
from shrinkfx.check.listing import FakeTensors
from shrinkfx.check.oracle import (
    CheckClient,
    InductorOracle,
    RepeatedOracle,
    make_oracle,
    with_times_of,
)
from shrinkfx.check.worker_slots import ForkPool, ForkSlots
from shrinkfx.errors import (
    BudgetExhausted,
    InvalidEdit,
    PhaseLimitReached,
    StorageError,
    StrategyError,
    WorkerError,
)
from shrinkfx.events import SearchStarted
from shrinkfx.failure.signature import Signature, Stage
from shrinkfx.failure.verdict import Oracle, Outcome, Verdict, judge
from shrinkfx.journal.journal import Journal
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.display_text import first_line
from shrinkfx.program.edits import Drop
from shrinkfx.protocol.choices import Build, CandidateForm
from shrinkfx.report.record import OtherFailure
from shrinkfx.report.summary import DIGITS, group_other_failures
from shrinkfx.run.context import INTERRUPTED, RunContext, Subject
from shrinkfx.search.asker import Asker, Confirmation
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.speculation import SpeculativeOracle
from shrinkfx.search.staged import SOURCE, StagedSearch, in_each_build, in_each_form
from shrinkfx.search.strategy import Strategy, choose


def oracle_for(program: Subject) -> Oracle:
    """Return an oracle that checks whether candidates fail as the subject does."""
    if program.command:
        return CommandOracle(program.client, program.command)
    return make_oracle(program.client, program.target, program.rate)


def rate_of(program: Subject, candidate: Candidate) -> float:
    """Measure the fraction of runs in which a candidate fails."""
    if program.rate == 1.0:
        return 1.0
    oracle = RepeatedOracle(program.client, program.target, program.rate)
    return oracle.measure(candidate)


def forks_for(program: Subject) -> ForkPool | None:
    """Return the worker slots for parallel checks; None if checks run one at a time."""
    server = program.client.server
    if not isinstance(server, RestartingServer):
        return None
    context = program.context
    context.jobs = jobs_for(program)
    if context.jobs == 1:
        return None
    gpus = max(1, len(context.options.gpus))
    return ForkPool(server, context.jobs, context.busyness.record_ending, gpus)


def jobs_for(program: Subject) -> int:
    """Return how many candidates to check at once; note why it is less than asked."""
    context, on_gpu = program.context, program.context.on_gpu
    # A command, or the memory of a GPU, may not allow parallel checks.
    usual = 1 if program.command or on_gpu else usual_jobs()
    if on_gpu and not program.command:
        usual = max(usual, len(context.options.gpus))
    jobs = context.options.jobs or usual
    if jobs > 1 and program.rate < 1.0:
        if context.options.jobs:
            context.note(_ONE_BY_ONE)
        return 1
    peak_bytes = context.meters["baseline"].peak_rss_bytes
    fit = jobs_that_fit(peak_bytes, program.client.limits.max_rss_bytes)
    if context.options.jobs and fit < jobs:
        context.note(_NO_MEMORY.format(jobs, fit, peak_bytes / 1e9))
    return min(jobs, fit)


_ONE_BY_ONE = (
    "the failure shows only in some runs: candidates are checked one at a time, "
    "regardless of --jobs"
)
_NO_MEMORY = (
    "--jobs {}: memory suffices for {} at a time; a check needs up to {:.1f} GB"
)


def with_speculation(oracle: Oracle, forks: ForkPool | None) -> Oracle:
    """Return an oracle that also runs speculative checks in the worker slots."""
    match oracle:
        case InductorOracle() | CommandOracle() if forks is not None:
            return SpeculativeOracle(oracle, ForkSlots(oracle, forks))
    return oracle


def must_fail_without_guard_pages(program: Subject) -> bool:
    """Return whether guard pages only save runs, so results must fail without them."""
    at_run_time = program.target.stage not in (Stage.COMPILE, Stage.LOAD)
    return bool(program.guarding.name) and program.guarding.steady and at_run_time


def fails_without_guard_pages(program: Subject, search: StagedSearch) -> bool:
    """Return whether the result of a search fails without guard pages in every run."""
    judge = make_guard_page_confirmation(program, search.reducer.asker)
    return judge.confirms(search.reducer.best)


def confirm_without_guard_pages(program: Subject, search: StagedSearch) -> bool:
    """Require the result, and each later one, to fail without guard pages, too.

    Returns:
        Whether any step does; if none does, the result stays.
    """
    note, reduced = program.context.note, search.reducer.best
    judge = make_guard_page_confirmation(program, search.reducer.asker)
    if not search.confirm(judge):
        note("without guard pages, not even the input program fails in every run")
        return False
    if search.reducer.best is not reduced:
        note(_SILENT)
    search.continue_search()
    return True


_TESTING_REST = (
    "testing the rest of the input program, without the operators of the reduced "
    "program: their results become inputs"
)
_SILENT = (
    "without guard pages, the reduced program fails only in some runs: "
    "going back to an earlier program that fails in every run"
)


def make_guard_page_confirmation(program: Subject, cache: Asker) -> Confirmation:
    """Return a confirmation by runs without guard pages, in the build of the search.

    Args:
        cache: the query cache whose verdicts are confirmed.
    """
    form, journal = cache.form, program.context.journal
    client = program.built_as(cache.build).client
    client = client.with_options(form=CandidateForm(form))
    oracle = _PlainRuns(journal, client, program.target, form)
    build = f"{cache.build}, no guard pages"
    plain = Asker(oracle, journal=journal, form=form, build=build, again=True)
    refusal = "it does not fail in every run without guard pages"
    return Confirmation("plain runs", plain, refusal)


@dataclass(frozen=True)
class _PlainRuns:
    """An oracle: a candidate must fail in every run without guard pages."""

    journal: Journal
    client: CheckClient
    target: Signature
    form: str

    def check(self, candidate: Candidate) -> Verdict:
        runs = seen_without_guard_pages(self.client, self.target, candidate)
        total = replace(with_times_of(runs[-1], runs), runs=len(runs))
        verdict = Verdict(judge(total, self.target), total)
        if verdict.reproduced:
            self.journal.note(_name(candidate, self.form), describe_runs(runs))
        return verdict


def seen_to_fail_without_guard_pages(
    context: RunContext, candidate: Candidate, form: str
) -> str:
    """Return how a confirmed candidate fails without guard pages, or ''."""
    return context.journal.fact(_name(candidate, form)) or ""


def _name(candidate: Candidate, form: str) -> str:
    return f"plain runs of {candidate.digest} as {form}"


@dataclass
class SearchResult:
    """The result of a search.

    Attributes:
        rate: the fraction of the result's runs that fail.
        calls: how often a run must call the result before it fails.
        rest: the outcome of the input program without the result's operators, and
            without all calls of operators that are not what they declare; '' if it was
            not tested, because the message identifies the failure, or for lack of time.
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

    def forget(self, program: Subject) -> None:
        """Drop the calls and the rate of a result that another one replaces."""
        self.calls, self.rate = program.calls, program.rate

    def collect_other_failures(self, target: Signature) -> list[OtherFailure]:
        """Return the other failures; the one that may be the target comes first.

        The target is not among them, also if it shows on the inputs that must pass:
        then the candidate's sizes became those that fail.
        """
        failures = (
            pair for each in self.all for pair in each.search.list_other_failures()
        )
        others = [
            (candidate, verdict)
            for candidate, verdict in failures
            if not target.occurs_in(verdict.observation.signature)
        ]
        return [*group_other_failures(self.second), *group_other_failures(others)]


def reduce(program: Subject) -> SearchResult:
    """Search until no operator can be removed, or the search is stopped.

    The repro of the result will show whether it fails as source and in the stock build.
    These stages run here only if the result must fail without guard pages, and does
    not.
    """
    context, forks = program.context, forks_for(program)
    search = make_staged_search(program, choose(context.options.strategies), forks)
    state = SearchResult(
        search,
        program.rate,
        program.calls,
        without_guard_pages=must_fail_without_guard_pages(program),
        forks=forks,
    )
    context.listener(SearchStarted(program.whole.cost[0], context.options.max_checks))
    with stop_on_errors(context, state):
        if program.not_tested:
            raise BudgetExhausted(program.not_tested)
        search.find()
        plain = state.without_guard_pages
        if plain and not fails_without_guard_pages(program, search):
            search.ask_stages()
            state.without_guard_pages = confirm_without_guard_pages(program, search)
        measure_result(program, state)
    return state


def make_staged_search(
    program: Subject, strategies: Sequence[Strategy], forks: ForkPool | None
) -> StagedSearch:
    """Return a search with all its stages: by form, and by build."""
    context, suspects = program.context, {s.node: s.weight for s in program.suspects}

    def reducer(variant: Subject, form: CandidateForm, oracle: Oracle) -> Reducer:
        cache = Asker(
            with_speculation(oracle, forks),
            budget=context.budget,
            journal=context.journal,
            form=form,
            build=variant.build,
        )
        cache.record_failure(program.whole, program.target)
        return Reducer(
            program.whole,
            cache,
            strategies,
            suspects=suspects,
            listener=context.listener,
        )

    def built_as(variant: Subject) -> StagedSearch:
        source = oracle_for(variant.with_options(form=CandidateForm.SOURCE))
        return in_each_form(
            reducer(variant, CandidateForm.PROGRAM, oracle_for(variant)),
            reducer(variant, CandidateForm.SOURCE, source),
        )

    if program.build is Build.STOCK:
        return built_as(program)
    stock = built_as(program.built_stock())
    return in_each_build(built_as(program), stock, context.note)


@contextlib.contextmanager
def stop_on_errors(context: RunContext, state: SearchResult) -> Iterator[None]:
    """End only the search on an error that stops it, so that its result is written."""
    try:
        yield
    except BudgetExhausted as reason:
        if state.made_of is None:
            state.stopped, context.out_of_budget = str(reason), True
        else:
            state.cut_short(reason)
    except StorageError as reason:  # the disk may have space for the result
        state.stopped = "; ".join(str(reason).splitlines())
    except (StrategyError, WorkerError) as reason:
        state.stopped = first_line(str(reason))
    except OSError as reason:  # for example, a folder cannot be created
        state.stopped = str(reason)
    except KeyboardInterrupt:
        state.stopped = INTERRUPTED
    finally:
        context.budget.reserve_s = 0.0


def run_search_stages(program: Subject, state: SearchResult) -> None:
    """Run the stages of the result as source and in the stock build."""
    reduced = state.reducer.best
    try:
        state.search.ask_stages()
    finally:
        if state.reducer.best is not reduced:
            state.forget(program)
    if state.reducer.best is not reduced:
        measure_result(program, state)


def measure_result(program: Subject, state: SearchResult) -> None:
    """Measure how often the result fails."""
    state.calls, state.rate = calls_and_rate(program, state, state.reducer.best)


def calls_and_rate(
    program: Subject, state: SearchResult, candidate: Candidate
) -> tuple[int, float]:
    """Return how many calls a candidate needs, and the fraction of runs that fail.

    If the search was stopped and they are not known, return those of the input program.
    """
    form = state.reducer.asker.form
    name = f"rate of {candidate.digest} as {form}"
    if name in state.known:
        return state.known[name]
    if state.stopped:
        return program.calls, program.rate
    program = program.built_as(state.reducer.asker.build)
    calls = _fewest_calls(program, candidate, form)
    program = program.with_options(calls=calls, form=CandidateForm(form))
    journal = program.context.journal
    rate = journal.get_or_compute(name, lambda: rate_of(program, candidate))
    state.known[name] = calls, rate
    return calls, rate


def _fewest_calls(program: Subject, candidate: Candidate, form: str) -> int:
    """Return the least number of calls with which a result fails.

    The input program's number is the maximum.
    """
    journal = program.context.journal
    for calls in range(1, program.calls):
        fewer = program.with_options(calls=calls, form=CandidateForm(form))
        build = f"{program.build}, called {calls} times"
        verdict = journal.recall(candidate, form, build)
        if verdict is None:
            check = oracle_for(fewer).check
            verdict = journal.ask("calls", form, candidate, build, check)
        if verdict.reproduced:
            return calls
    return program.calls


def check_rest(program: Subject, state: SearchResult) -> None:
    """Test the input program without the operators of a verified result.

    If a failure has no message that identifies it, this shows whether the result's
    operators cause it: then the rest passes. Any call of an operator that is not what
    it declares may fail alike, so all its calls are removed.
    """
    if state.stopped or not program.target.is_vague:
        return
    reducer, context = (state.made_of or state).reducer, program.context
    reduced = reducer.best
    targets = {reduced.target(name) for name in reduced.operators}
    wrong = program.other_causes.faulty_among(targets)
    full = program.whole
    also = {name for name in full.operators if full.target(name) in wrong}
    try:
        rest = apply(full, [Drop(reduced.keep | also)])
    except InvalidEdit:
        return
    if context.budget.check_s > context.budget.share():
        context.note("not enough time left: not testing the rest of the input program")
        return
    context.note(_TESTING_REST)
    try:
        verdict = reducer.ask("ablation", rest, judged=False)
    except BudgetExhausted:
        return  # the search itself is complete
    state.rest = verdict.outcome.value
    more = f", without any call of {', '.join(sorted(wrong))}," if wrong else ""
    the_rest = f"the rest of the input program{more}"
    if verdict.outcome is Outcome.PASSED:
        context.note(f"{the_rest} passes")
    if verdict.outcome is Outcome.REPRODUCED:
        state.second = [(rest, verdict)]
        repro = f"shrinkfx --candidate {rest.digest[:DIGITS]} --out {context.out}"
        why = "because of the same bug or another one"
        context.note(f"note: {the_rest} fails as well, {why}; for a repro: {repro}")
