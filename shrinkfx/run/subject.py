"""The program under reduction, after its failure was reproduced."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from shrinkfx.check.baseline.with_guard_pages import Guarding
from shrinkfx.check.command import Command
from shrinkfx.check.oracle import CheckClient
from shrinkfx.failure.blame import Suspect
from shrinkfx.failure.signature import Signature
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import Build
from shrinkfx.protocol.fields import with_fields_of
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.report.caveats import OtherCauses
from shrinkfx.report.record import ProgramSize


@dataclass(frozen=True)
class Subject:
    """The program under reduction, after its failure was reproduced.

    Attributes:
        whole: the candidate with all operators.
        before: the size of the input program.
        client: the client, with options that show the failure.
        rate: the fraction of the input program's runs that failed.
        command: the user's own test, or None.
        guarding: the guard pages that the failure needs.
        suspects: operators that may cause the failure, the most likely first.
        other_causes: possible causes other than the compiler.
        not_tested: why it was not tested whether this graph form can be cut, or ''.
        short_results: operators whose result's storage is smaller than declared, if
            the failure depends on the adjacent memory.
    """

    whole: Candidate
    before: ProgramSize
    client: CheckClient
    target: Signature
    rate: float
    command: Command | None = None
    guarding: Guarding = field(default_factory=Guarding)
    suspects: tuple[Suspect, ...] = ()
    other_causes: OtherCauses = field(default_factory=OtherCauses)
    not_tested: str = ""
    short_results: tuple[str, ...] = ()

    @property
    def calls(self) -> int:
        """The number of calls in a run before the program fails."""
        return self.client.options.calls

    @property
    def build(self) -> Build:
        """The build of its candidates."""
        return self.client.options.build

    def built_stock(self) -> Subject:
        """Return this subject with the stock build."""
        return replace(self, client=self.client.with_stock_build())

    def built_as(self, build: str) -> Subject:
        """Return this subject with a build that is its own, or the stock build."""
        return self if build == self.build else self.built_stock()

    @with_fields_of(CheckOptions)
    def with_options(self, **changes: Any) -> Subject:  # noqa: ANN401 - its fields
        """Return this subject with further options of the worker."""
        return replace(self, client=self.client.with_options(**changes))
