"""Second phase: the search, until nothing more can go or something stops it."""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.errors import BudgetExhausted, StrategyError
from shrinkfx.failure.verdict import Oracle
from shrinkfx.program.candidate import Candidate
from shrinkfx.run.job import Job
from shrinkfx.run.subject import Subject
from shrinkfx.search.events import Started
from shrinkfx.search.forms import FormSearch
from shrinkfx.search.journal import Journal
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose


@dataclass(frozen=True)
class Found:
    """Where the search has ended.

    Attributes:
        stopped: what ended it early, or ''.
    """

    search: FormSearch
    stopped: str

    @property
    def reducer(self) -> Reducer:
        return self.search.reducer


def reduce(job: Job, subject: Subject) -> Found:
    """Reduce until nothing more can go, the budget is spent, or Ctrl-C."""
    strategies = choose(job.options.strategies)
    journal = Journal(job.out / "journal.sqlite")

    def make(start: Candidate, oracle: Oracle, form: str) -> Reducer:
        return Reducer(
            start,
            oracle,
            strategies,
            budget=job.budget,
            journal=journal,
            listener=job.listener,
            form=form,
        )

    program, source = subject.oracle(), subject.oracle(form="source")
    search = FormSearch(subject.whole, program, source, make)
    job.listener(Started(subject.whole.cost[0], job.options.max_checks))
    stopped = ""
    try:
        search.run()
    except (BudgetExhausted, StrategyError) as reason:
        stopped = str(reason)
    except KeyboardInterrupt:
        stopped = "interrupted"
    finally:
        journal.close()
    if stopped:
        job.note(f"{stopped}: writing and verifying the smallest program so far")
    return Found(search, stopped)
