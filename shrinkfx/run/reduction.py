"""Second phase: the search, until nothing more can go or something stops it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from shrinkfx.errors import BudgetExhausted, InvalidEdit, StrategyError
from shrinkfx.failure.verdict import Oracle, Outcome, Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop
from shrinkfx.program.messages import Build
from shrinkfx.report.summary import DIGITS, ByCatch, gather
from shrinkfx.run.job import Job
from shrinkfx.run.subject import Subject
from shrinkfx.search.builds import BuildSearch
from shrinkfx.search.events import Started
from shrinkfx.search.forms import FormSearch
from shrinkfx.search.journal import Journal
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose


@dataclass
class Found:
    """Where the search has ended.

    Attributes:
        rate: the part of the result's runs that fail.
        calls: how often a run must call the result before it fails.
        rest: what the original does without the result's operators, or '' where
            the failure's own words tell it apart.
        second: the rest, if it fails alike.
        stopped: what ended the search early, or ''.
    """

    search: BuildSearch
    rate: float
    calls: int = 1
    rest: str = ""
    second: list[tuple[Candidate, Verdict]] = field(default_factory=list)
    stopped: str = ""

    @property
    def reducer(self) -> Reducer:
        """The search that holds the result."""
        return self.search.reducer

    def by_catch(self) -> list[ByCatch]:
        """Gather the other failures; one that might be the target comes first."""
        return [*gather(self.second), *gather(self.search.by_catch())]


def reduce(job: Job, subject: Subject) -> Found:
    """Reduce until nothing more can go, the budget is spent, or Ctrl-C."""
    strategies = choose(job.options.strategies)
    journal = Journal(job.out / "journal.sqlite", _settings(job, subject))

    def make(build: Build) -> FormSearch:
        asked = subject if build is subject.build else subject.built_stock()

        def reducer(start: Candidate, oracle: Oracle, form: str) -> Reducer:
            return Reducer(
                start,
                oracle,
                strategies,
                budget=job.budget,
                journal=journal,
                listener=job.listener,
                form=form,
                build=build,
                suspects={s.node: s.weight for s in subject.suspects},
            )

        program, source = asked.oracle(), asked.oracle(form="source")
        return FormSearch(subject.whole, program, source, reducer)

    search = BuildSearch(subject.build, make, job.note)
    found = Found(search, subject.rate, subject.calls)
    job.listener(Started(subject.whole.cost[0], job.options.max_checks))
    try:
        found.search.run()
        if found.search.build is not subject.build:
            subject = subject.built_stock()
        found.calls = _fewest_calls(subject, found.reducer)
        settled = subject.with_options(calls=found.calls, form=found.reducer.form)
        found.rate = settled.rate_of(found.reducer.best)
        if subject.target.is_vague:
            _ablate(job, subject, found)
    except (BudgetExhausted, StrategyError) as reason:
        found.stopped = str(reason)
    except KeyboardInterrupt:
        found.stopped = "interrupted"
    finally:
        journal.close()
    if found.stopped:
        job.note(f"{found.stopped}: writing and verifying the smallest program so far")
    return found


def _settings(job: Job, subject: Subject) -> dict[str, Any]:
    """Gather what a candidate of this run must be run with to do the same again."""
    options = job.options
    return {
        "options": dict(subject.compiler.options),
        "rate": subject.rate,
        "target": asdict(subject.target),
        "inductor": dict(options.inductor),
        "environment": dict(options.environment),
        "device": options.device,
        "backend": options.backend,
        "arch": options.arch,
    }


def _fewest_calls(subject: Subject, reducer: Reducer) -> int:
    """Find how often the result must be called; the original needed them all."""
    for calls in range(1, subject.calls):
        fewer = subject.oracle(calls=calls, form=reducer.form)
        if fewer.check(reducer.best).reproduced:
            return calls
    return subject.calls


def _ablate(job: Job, subject: Subject, found: Found) -> None:
    """Run the original without the result's operators.

    Where a failure has no words of its own, this tells whether the result is what
    makes the original fail: then the rest does not.
    """
    try:
        rest = subject.whole.edit([Drop(found.reducer.best.keep)])
    except InvalidEdit:
        return
    try:
        verdict = found.reducer.ask("ablation", rest)
    except BudgetExhausted:
        return  # the search itself was not stopped
    found.rest = verdict.outcome.value
    if verdict.outcome is Outcome.REPRODUCED:
        found.second = [(rest, verdict)]
        job.note(
            "careful: without these operators the program fails alike. There is a "
            f"second such failure: --candidate {rest.digest[:DIGITS]} writes the rest"
        )
