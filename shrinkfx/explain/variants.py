"""Compile and run the reduced program with other options."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

from shrinkfx.check.oracle import make_oracle
from shrinkfx.errors import BudgetExhausted
from shrinkfx.explain.reduced_program import ReducedProgram
from shrinkfx.failure.signature import Stage
from shrinkfx.failure.verdict import Outcome
from shrinkfx.protocol.choices import Build, InductorOptions
from shrinkfx.protocol.descriptions import Settings
from shrinkfx.protocol.fields import with_fields_of
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.protocol.tasks import ReadSettings


@dataclass(frozen=True)
class Variants:
    """Tests the reduced program with other compile options.

    A variant that crashes, hangs or fails differently counts as an answer, because it
    has not passed.

    Attributes:
        answers: all outcomes, in order.
        stopped: for each outcome, whether the failure was in compilation.
    """

    reduced: ReducedProgram
    answers: list[Outcome] = field(default_factory=list)
    stopped: list[bool] = field(default_factory=list)

    @with_fields_of(CheckOptions)
    def ask(self, **changes: Any) -> Outcome:  # noqa: ANN401 - its fields
        """Compile and run it with other options.

        Raises:
            BudgetExhausted: there is too little time.
        """
        reduced, share = self.reduced, self.reduced.budget.share()
        if reduced.seconds > share:
            raise BudgetExhausted("not enough time left")
        client = reduced.client.with_options(**changes).with_clock_limit(share)
        oracle = make_oracle(client, reduced.target, reduced.rate)
        verdict = oracle.check(reduced.candidate)
        signature = verdict.observation.signature
        self.stopped.append(signature is not None and signature.stage is Stage.COMPILE)
        self.answers.append(verdict.outcome)
        return self.answers[-1]

    def with_settings(self, settings: InductorOptions) -> Outcome:
        """Compile and run it with other settings of Inductor."""
        inductor = self.reduced.client.options.inductor
        return self.ask(inductor={**inductor, **settings})

    def settings(self, wanted: InductorOptions) -> Settings | None:
        """Return the values of Inductor settings; None if the worker does not know."""
        answer = self.reduced.client.ask(ReadSettings(wanted)).answer
        return answer if isinstance(answer, Settings) else None

    @property
    def interpreted(self) -> bool:
        """Whether its kernels run on the interpreter, so that no library is built."""
        return self.reduced.client.options.probe is not None

    @with_fields_of(CheckOptions)
    def with_options(self, **changes: Any) -> Self:  # noqa: ANN401 - its fields
        """Return variants that all use other options."""
        client = self.reduced.client.with_options(**changes)
        return replace(self, reduced=self.reduced.with_client(client))

    def with_fast_build(self) -> Self:
        """Return variants that use the fast build, if the failure stays the same."""
        client = self.reduced.client
        if self.interpreted or client.options.sanitize or not client.builds.pay:
            return self
        fast = self.with_options(build=Build.FAST)
        return fast if fast.ask() is Outcome.REPRODUCED else self

    def with_stock_build(self) -> Self:
        """Return variants with AOTInductor's own build, to confirm results."""
        return self.with_options(build=Build.STOCK)
