"""What a result must do besides what its search has asked: fail without pages."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shrinkfx.check.baseline.with_guard_pages import in_words, seen_without_guard_pages
from shrinkfx.check.oracle import CheckClient
from shrinkfx.failure.signature import Signature, Stage
from shrinkfx.failure.verdict import Verdict, judge
from shrinkfx.journal.journal import Journal
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import Build, CandidateForm
from shrinkfx.run.context import RunContext
from shrinkfx.run.subject import Subject
from shrinkfx.search.asker import Asker, Confirmation


def must_fail_without_guard_pages(subject: Subject) -> bool:
    """Tell whether guard pages are only there to be fast: the goal is without them."""
    at_run_time = subject.target.stage not in (Stage.COMPILE, Stage.LOAD)
    return bool(subject.guarding.name) and subject.guarding.steady and at_run_time


def without_guard_pages(
    context: RunContext, subject: Subject, asker: Asker
) -> Confirmation:
    """Confirm what fails without guard pages in every run, in the stock build.

    Args:
        asker: whose answers are confirmed.
    """
    form = asker.form
    client = subject.client.built_stock().with_options(form=CandidateForm(form))
    oracle = _PlainRuns(context.journal, client, subject.target, form)
    build = f"{Build.STOCK}, no guard pages"
    plain = Asker(oracle, journal=context.journal, form=form, build=build, again=True)
    refusal = "without guard pages it does not fail so in every run"
    return Confirmation("plain runs", plain, refusal)


@dataclass(frozen=True)
class _PlainRuns:
    """Answers whether a candidate fails without guard pages in every run."""

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
            self.journal.note(_name(candidate, self.form), in_words(runs))
        return verdict


def seen_to_fail_without_guard_pages(
    context: RunContext, candidate: Candidate, form: str
) -> str:
    """Say how a candidate fails without guard pages, where a judge has confirmed it."""
    return context.journal.fact(_name(candidate, form)) or ""


def _name(candidate: Candidate, form: str) -> str:
    return f"plain runs of {candidate.digest} as {form}"
