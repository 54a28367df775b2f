"""The program under reduction, once its failure has been seen."""

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
from shrinkfx.report.record import ProgramSize
from shrinkfx.report.warned import OtherCauses


@dataclass(frozen=True)
class Subject:
    """The program under reduction, once its failure has been seen.

    Attributes:
        whole: the candidate that holds all of it.
        before: its size.
        client: set up so that the failure shows.
        rate: the part of the original's runs that failed so.
        command: the user's own test, or None.
        guarding: the guard pages that its failure needs.
        suspects: operators that the failure may come from, the surest first.
        other_causes: what else it may come from than the compiler.
        unasked: why nobody knows whether it can be cut in this form, or ''.
        by_what_is_behind: operators whose results end too soon, where it fails by what
            lies behind these ends.
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
    unasked: str = ""
    by_what_is_behind: tuple[str, ...] = ()

    @property
    def calls(self) -> int:
        """How often a run must call the program before it fails."""
        return self.client.options.calls

    @property
    def build(self) -> Build:
        """How its candidates are built."""
        return self.client.options.build

    def built_stock(self) -> Subject:
        """Build candidates as AOTInductor does."""
        return replace(self, client=self.client.built_stock())

    def built_as(self, build: str) -> Subject:
        """Build candidates as a result was built: as ever, or as AOTInductor does."""
        return self if build == self.build else self.built_stock()

    @with_fields_of(CheckOptions)
    def with_options(self, **changes: Any) -> Subject:  # noqa: ANN401 - its fields
        """Set further options of the worker."""
        return replace(self, client=self.client.with_options(**changes))
