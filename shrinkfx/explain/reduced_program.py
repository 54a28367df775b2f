"""The reduced program, and instrumented runs of it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shrinkfx.check.allowance import UNLIMITED, Allowance
from shrinkfx.check.oracle import CheckClient
from shrinkfx.errors import BudgetExhausted
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import Signature
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.choices import CandidateForm
from shrinkfx.protocol.fields import with_fields_of
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.protocol.tasks import CheckCandidate

_MISSED = 0.05
"""Accepted probability that a flaky failure does not show in any of the tries."""

_MOST_TRIES = 10


@dataclass(frozen=True)
class ReducedProgram:
    """The reduced program, with the settings of its failure.

    Attributes:
        client: has the settings of the failing run and the build of the search.
        target: the signature of its failure.
        note: called with a line for the user before each step that takes seconds.
        budget: the time left; runs that do not fit are skipped.
        seconds: the approximate duration of one check.
        rate: the fraction of its runs that fail.
    """

    client: CheckClient
    candidate: Candidate
    target: Signature
    note: Callable[[str], None] = lambda _: None
    budget: Allowance = UNLIMITED
    seconds: float = 0.0
    rate: float = 1.0

    @with_fields_of(CheckOptions)
    def ask(self, **changes: Any) -> Ending | None:  # noqa: ANN401 - its fields
        """Compile and run it once with other options; None if time is short."""
        share = self.budget.share()
        if self.seconds > share:
            return None
        client = self.client.with_options(**changes).with_clock_limit(share)
        with contextlib.suppress(BudgetExhausted):
            return client.ask(CheckCandidate(self.candidate.to_json()))
        return None

    @with_fields_of(CheckOptions)
    def run_until_failing(self, **changes: Any) -> Ending | None:  # noqa: ANN401 - its fields
        """Run until it fails as before, at most as often as a flaky failure needs."""
        ending = self.ask(**changes)
        for _ in range(self._tries - 1):
            if ending is None or self.fails(ending):
                break
            ending = self.ask(**changes)
        return ending

    def run_recorded(self, folder: Path, **changes: Any) -> Ending | None:  # noqa: ANN401
        """Run it in program form, and in source form if only that fails.

        Args:
            folder: holds the files of the run that is returned; it is emptied before
                each.
        """
        ending = None
        for form in dict.fromkeys((CandidateForm.PROGRAM, self.client.options.form)):
            for leftover in folder.iterdir():
                leftover.unlink()
            ending = self.run_until_failing(**{**changes, "form": form})
            if self.is_conclusive(ending):
                break
        return ending

    @property
    def _tries(self) -> int:
        if not 0.0 < self.rate < 1.0:
            return 1
        return min(_MOST_TRIES, math.ceil(math.log(_MISSED) / math.log1p(-self.rate)))

    def fails(self, ending: Ending | None) -> bool:
        """Return whether a run failed in the same way."""
        return ending is not None and self.target.admits(
            classify_ending(ending).signature
        )

    def is_conclusive(self, ending: Ending | None) -> bool:
        """Return whether a run in another form would tell no more than this one."""
        if ending is None or self.fails(ending):
            return True
        return bool(classify_ending(ending).unresolved)

    def why_not(self, ending: Ending | None) -> str:
        """Return why a run does not explain the failure, or ''."""
        if ending is None:
            return "no time was left"
        if self.fails(ending):
            return ""
        result = classify_ending(ending)
        if why := result.unresolved or result.invalid:
            return f"the run had no result: {why}"
        if result.signature is not None:
            return f"the instrumented run failed differently: {result.signature}"
        if self.rate < 1.0:
            return "the instrumented run did not fail, as some runs do not"
        if self.client.options.form is CandidateForm.SOURCE:
            return "neither the program nor its printed source failed when instrumented"
        return "the instrumented run did not fail"

    def with_client(self, client: CheckClient) -> ReducedProgram:
        """Return a copy with another client."""
        return replace(self, client=client)
