"""The smallest failing program, and how it is asked about its failure."""

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
from shrinkfx.failure.classify import observe
from shrinkfx.failure.signature import Signature
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.choices import CandidateForm
from shrinkfx.protocol.fields import with_fields_of
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.protocol.tasks import CheckCandidate

_MISSED = 0.05
"""Of failures that show at times, the part that may not show once in so many tries."""

_MOST_TRIES = 10


@dataclass(frozen=True)
class Minimum:
    """The smallest failing program, and how it is asked about its failure.

    Attributes:
        client: set up as it fails, and built as in the search.
        target: how it fails.
        note: told a line for the user of each thing that takes seconds.
        budget: where it is short, what is left to ask is not asked.
        seconds: what a check of it takes, about.
        rate: the part of its runs that fail.
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
        """Compile and run it once, with other options; None if minutes are short."""
        share = self.budget.share()
        if self.seconds > share:
            return None
        client = self.client.with_options(**changes).within(share)
        with contextlib.suppress(BudgetExhausted):
            return client.ask(CheckCandidate(self.candidate.to_json()))
        return None

    @with_fields_of(CheckOptions)
    def see(self, **changes: Any) -> Ending | None:  # noqa: ANN401 - its fields
        """Ask until it fails as it does, as often as most that fail at times take."""
        ending = self.ask(**changes)
        for _ in range(self._tries - 1):
            if ending is None or self.fails(ending):
                break
            ending = self.ask(**changes)
        return ending

    def tell(self, folder: Path, **changes: Any) -> Ending | None:  # noqa: ANN401
        """See it as the program that it is, or as its source where that alone fails.

        Args:
            folder: what lies there is of the one that is answered with.
        """
        ending = None
        for form in dict.fromkeys((CandidateForm.PROGRAM, self.client.options.form)):
            for left in folder.iterdir():
                left.unlink()
            ending = self.see(**{**changes, "form": form})
            if ending is None or self.fails(ending) or observe(ending).unresolved:
                break
        return ending

    @property
    def _tries(self) -> int:
        if not 0.0 < self.rate < 1.0:
            return 1
        return min(_MOST_TRIES, math.ceil(math.log(_MISSED) / math.log1p(-self.rate)))

    def fails(self, ending: Ending | None) -> bool:
        """Tell whether it has failed as it does."""
        return ending is not None and self.target.admits(observe(ending).signature)

    def why_not(self, ending: Ending | None) -> str:
        """Say why an answer tells nothing of how the program fails, or ''."""
        if ending is None:
            return "no time was left"
        if self.fails(ending):
            return ""
        seen = observe(ending)
        if why := seen.unresolved or seen.invalid:
            return f"the run had no result: {why}"
        if seen.signature is not None:
            return f"the instrumented run failed differently: {seen.signature}"
        if self.rate < 1.0:
            return "the instrumented run did not fail, as some runs do not"
        if self.client.options.form is CandidateForm.SOURCE:
            return "neither the program nor its printed source failed when instrumented"
        return "the instrumented run did not fail"

    def with_client(self, client: CheckClient) -> Minimum:
        """Ask by another client."""
        return replace(self, client=client)
