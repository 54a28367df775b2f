"""A repro in its folder, and how often it has failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from shrinkfx.report.carried import Carried

EMBEDDED = "the program itself"
"""How a repro is written that is no source."""


class NoSource(StrEnum):
    """Why a repro holds the program itself, as its header says it."""

    PASSES = "The printed source was not seen to fail"
    UNPRINTED = "The program could not be printed as source"
    NO_TIME = "No time was left to verify the printed source"


@dataclass(frozen=True)
class Written:
    """A repro and all that must lie beside it, the script first.

    Attributes:
        fails: it was run once, and failed as it should; None if that had no answer.
        carried: what it holds of the preloads.
        environment: the variables that it sets.
        not_needed: names of others, without which it fails alike.
        fails_without_own: what it does without ``carried.in_compiler``; None where
            nobody has seen that.
    """

    files: tuple[Path, ...]
    how: str
    fails: bool | None = False
    carried: Carried = field(default_factory=Carried)
    environment: Mapping[str, str] = field(default_factory=dict)
    not_needed: tuple[str, ...] = ()
    fails_without_own: bool | None = None

    @property
    def needs_own(self) -> bool:
        """Tell whether it fails by code of the user's own in the compiler."""
        return bool(self.carried.in_compiler.places) and self.fails_without_own is False

    @property
    def is_source(self) -> bool:
        """Tell whether the program is printed in it."""
        return self.how != EMBEDDED


@dataclass(frozen=True)
class Verified:
    """A repro, and how often it ran and failed as it says.

    Attributes:
        runs: those that had an answer; the others count neither way.
        log: what it printed when it failed.
        above: lines above its code then; those of its header may be others by now.
    """

    written: Written = Written((), "none: it was not verified")
    runs: int = 0
    failed: int = 0
    log: str = field(default="", repr=False)
    above: int | None = None

    @property
    def always_fails(self) -> bool:
        """Tell whether the repro has failed in every run, of which there was one."""
        return 0 < self.failed == self.runs
