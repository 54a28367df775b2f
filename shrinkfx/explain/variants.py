"""The minimum, compiled otherwise: what it does then."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

from shrinkfx.check.oracle import make_oracle
from shrinkfx.errors import BudgetExhausted
from shrinkfx.explain.minimum import Minimum
from shrinkfx.failure.signature import Stage
from shrinkfx.failure.verdict import Outcome
from shrinkfx.protocol.choices import Build, InductorOptions
from shrinkfx.protocol.descriptions import Settings
from shrinkfx.protocol.fields import with_fields_of
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.protocol.tasks import ReadSettings


@dataclass(frozen=True)
class Variants:
    """Asks what the minimum does where it is compiled otherwise.

    A variant that crashes, hangs or fails otherwise has answered, too: it has not
    passed.

    Attributes:
        rate: the part of the minimum's runs that fail.
        answers: to all that was asked, in order.
        stopped: for each of these, whether it failed before there was a program to run.
    """

    minimum: Minimum
    rate: float = 1.0
    answers: list[Outcome] = field(default_factory=list)
    stopped: list[bool] = field(default_factory=list)

    @with_fields_of(CheckOptions)
    def ask(self, **changes: Any) -> Outcome:  # noqa: ANN401 - its fields
        """Compile and run it with other options.

        Raises:
            BudgetExhausted: minutes are short.
        """
        minimum, share = self.minimum, self.minimum.budget.share()
        if minimum.seconds > share:
            raise BudgetExhausted("not enough time left")
        client = minimum.client.with_options(**changes).within(share)
        oracle = make_oracle(client, minimum.target, self.rate)
        verdict = oracle.check(minimum.candidate)
        seen = verdict.observation.signature
        self.stopped.append(seen is not None and seen.stage is Stage.COMPILE)
        self.answers.append(verdict.outcome)
        return self.answers[-1]

    def with_settings(self, careful: InductorOptions) -> Outcome:
        """Compile and run it with other settings of Inductor."""
        own = self.minimum.client.options.inductor
        return self.ask(inductor={**own, **careful})

    def settings(self, wanted: InductorOptions) -> Settings | None:
        """Look up what Inductor is set to; None if the worker cannot say."""
        answer = self.minimum.client.ask(ReadSettings(wanted)).answer
        return answer if isinstance(answer, Settings) else None

    @property
    def interpreted(self) -> bool:
        """Whether its kernels are run on the interpreter: no library is built."""
        return self.minimum.client.options.probe is not None

    @with_fields_of(CheckOptions)
    def with_options(self, **changes: Any) -> Self:  # noqa: ANN401 - its fields
        """Ask all from now on with other options."""
        client = self.minimum.client.with_options(**changes)
        return replace(self, minimum=self.minimum.with_client(client))

    def built_fast(self) -> Self:
        """Build in less time from now on, if it fails alike then."""
        client = self.minimum.client
        if self.interpreted or client.options.sanitize or not client.builds.pay:
            return self
        fast = self.with_options(build=Build.FAST)
        return fast if fast.ask() is Outcome.REPRODUCED else self

    def built_stock(self) -> Self:
        """Build as AOTInductor does: what is told is asked so once more."""
        return self.with_options(build=Build.STOCK)
