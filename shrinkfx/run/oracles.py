"""Create the oracles that answer queries about a program under reduction.

One of them tests whether a result also fails without guard pages, if it must.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shrinkfx.check.baseline.with_guard_pages import (
    describe_runs,
    seen_without_guard_pages,
)
from shrinkfx.check.client.restarting import RestartingServer
from shrinkfx.check.command import CommandOracle
from shrinkfx.check.jobs import jobs_that_fit, usual_jobs
from shrinkfx.check.oracle import (
    CheckClient,
    InductorOracle,
    RepeatedOracle,
    make_oracle,
)
from shrinkfx.check.worker_slots import ForkPool, ForkSlots
from shrinkfx.failure.signature import Signature, Stage
from shrinkfx.failure.verdict import Oracle, Verdict, judge
from shrinkfx.journal.journal import Journal
from shrinkfx.journal.speculative_checks import SpeculativeChecks
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Ready
from shrinkfx.protocol.choices import Backend, CandidateForm
from shrinkfx.run.context import RunContext
from shrinkfx.run.subject import Subject
from shrinkfx.search.asker import Asker, Confirmation
from shrinkfx.search.speculation import SpeculativeOracle
from shrinkfx.search.staged import StagedSearch


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


def forks_for(context: RunContext, program: Subject) -> ForkPool | None:
    """Return the worker slots for parallel checks; None if checks run one at a time."""
    server = program.client.server
    if not isinstance(server, RestartingServer):
        return None
    context.jobs = jobs_for(context, program, server.ready)
    if context.jobs == 1:
        return None
    gpus = max(1, len(context.options.gpus))
    return ForkPool(server, context.jobs, context.busyness.record_ending, gpus)


def jobs_for(context: RunContext, program: Subject, ready: Ready) -> int:
    """Return how many candidates to check at once; note why it is less than asked."""
    on_gpu = ready.for_cuda and ready.backend == Backend.AOTI
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


def with_speculation(
    oracle: Oracle, forks: ForkPool | None, ahead: SpeculativeChecks
) -> Oracle:
    """Return an oracle that also runs speculative checks in the worker slots."""
    match oracle:
        case InductorOracle() | CommandOracle() if forks is not None:
            return SpeculativeOracle(oracle, ForkSlots(oracle, forks), ahead)
    return oracle


def must_fail_without_guard_pages(program: Subject) -> bool:
    """Return whether guard pages only save runs, so results must fail without them."""
    at_run_time = program.target.stage not in (Stage.COMPILE, Stage.LOAD)
    return bool(program.guarding.name) and program.guarding.steady and at_run_time


def fails_without_guard_pages(
    context: RunContext, program: Subject, search: StagedSearch
) -> bool:
    """Return whether the result of a search fails without guard pages in every run."""
    judge = make_guard_page_confirmation(context, program, search.reducer.asker)
    return judge.confirms(search.reducer.best)


def confirm_without_guard_pages(
    context: RunContext, program: Subject, search: StagedSearch
) -> bool:
    """Require the result, and each later one, to fail without guard pages, too.

    Returns:
        Whether any step does; if none does, the result stays.
    """
    reduced = search.reducer.best
    judge = make_guard_page_confirmation(context, program, search.reducer.asker)
    if not search.confirm(judge):
        context.note(
            "without guard pages, not even the input program fails in every run"
        )
        return False
    if search.reducer.best is not reduced:
        context.note(_SILENT)
    search.continue_search()
    return True


_SILENT = (
    "without guard pages, the reduced program fails only in some runs: "
    "going back to an earlier program that fails in every run"
)


def make_guard_page_confirmation(
    context: RunContext, program: Subject, cache: Asker
) -> Confirmation:
    """Return a confirmation by runs without guard pages, in the build of the search.

    Args:
        cache: the query cache whose verdicts are confirmed.
    """
    form = cache.form
    client = program.built_as(cache.build).client
    client = client.with_options(form=CandidateForm(form))
    oracle = _PlainRuns(context.journal, client, program.target, form)
    build = f"{cache.build}, no guard pages"
    plain = Asker(oracle, journal=context.journal, form=form, build=build, again=True)
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
        total = replace(
            runs[-1],
            runs=len(runs),
            seconds=sum(seen.seconds for seen in runs),
            cpu_seconds=sum(seen.cpu_seconds for seen in runs),
            waited_s=sum(seen.waited_s for seen in runs),
        )
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
