"""What a result must do besides what its search has asked: fail without pages."""

from __future__ import annotations

from dataclasses import replace

from shrinkfx.check.baseline.with_guard_pages import in_words, seen_plainly
from shrinkfx.failure.signature import Stage
from shrinkfx.failure.verdict import Verdict, judge
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import Build, CandidateForm
from shrinkfx.run.context import Job
from shrinkfx.run.subject import Subject
from shrinkfx.search.builds import BuildSearch
from shrinkfx.search.judges import Judge


def goes_plainly(subject: Subject) -> bool:
    """Tell whether guard pages are only there to be fast: the goal is without them."""
    at_run_time = subject.target.stage not in (Stage.COMPILE, Stage.LOAD)
    return bool(subject.guarding.name) and subject.guarding.steady and at_run_time


def plain_judge(job: Job, subject: Subject, search: BuildSearch) -> Judge:
    """Confirm what fails without guard pages in every run, in the stock build."""
    form = search.reducer.form
    compiler = subject.compiler.built_stock().with_options(form=CandidateForm(form))

    def check(candidate: Candidate) -> Verdict:
        runs = seen_plainly(compiler, subject.target, candidate)
        total = replace(
            runs[-1],
            runs=len(runs),
            seconds=sum(seen.seconds for seen in runs),
            cpu_seconds=sum(seen.cpu_seconds for seen in runs),
            waited_s=sum(seen.waited_s for seen in runs),
        )
        verdict = Verdict(judge(total, subject.target), total)
        if verdict.reproduced:
            job.journal.note(_name(candidate, form), in_words(runs))
        return verdict

    refusal = "without guard pages it does not fail so in every run"
    build = f"{Build.STOCK}, no guard pages"
    return Judge("plain runs", form, build, check, refusal, job.journal)


def seen_to_fail_plainly(job: Job, candidate: Candidate, form: str) -> str:
    """Say how a candidate fails without guard pages, where a judge has confirmed it."""
    return job.journal.fact(_name(candidate, form)) or ""


def _name(candidate: Candidate, form: str) -> str:
    return f"plain runs of {candidate.digest} as {form}"
