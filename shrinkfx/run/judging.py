"""Test whether a result also fails without guard pages, where that is required."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shrinkfx.check.baseline.with_guard_pages import (
    describe_runs,
    seen_without_guard_pages,
)
from shrinkfx.check.oracle import CheckClient
from shrinkfx.failure.signature import Signature, Stage
from shrinkfx.failure.verdict import Verdict, judge
from shrinkfx.journal.journal import Journal
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import CandidateForm
from shrinkfx.run.context import RunContext
from shrinkfx.run.subject import Subject
from shrinkfx.search.asker import Asker, Confirmation
from shrinkfx.search.staged import StagedSearch


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
