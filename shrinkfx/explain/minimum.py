"""The smallest failing program, and how it is asked about its failure."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
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

    def fails(self, ending: Ending | None) -> bool:
        """Tell whether it has failed as it does."""
        return ending is not None and self.target.admits(observe(ending).signature)

    def why_not(self, ending: Ending | None) -> str:
        """Say why an answer tells nothing of how the program fails, or ''."""
        if ending is None:
            return "minutes were short"
        if self.fails(ending):
            return ""
        seen = observe(ending)
        if why := seen.unresolved or seen.invalid:
            return f"it had no answer: {why}"
        if seen.signature is not None:
            return f"it failed otherwise when it was to tell: {seen.signature}"
        if self.rate < 1.0:
            return "it did not fail so then, as in some of its runs"
        if self.client.options.form is CandidateForm.SOURCE:
            return "it fails as its printed source, and did not as the program it is of"
        return "it did not fail so when it was to tell"

    def with_client(self, client: CheckClient) -> Minimum:
        """Ask by another client."""
        return replace(self, client=client)
