"""The files of a repro, and how often it failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from shrinkfx.preloads.preload_bundle import PreloadBundle

EMBEDDED = "the program itself"
"""``ReproFiles.how`` of a repro that embeds the program instead of its source."""


class NoSource(StrEnum):
    """Why a repro embeds the program, in the words of its header."""

    PASSES = "The printed source did not fail when it was run"
    UNPRINTED = "The program could not be printed as source"
    NO_TIME = "No time was left to verify the printed source"


@dataclass(frozen=True)
class ReproFiles:
    """A repro and all files that it needs, the script first.

    Attributes:
        how: the form of the script: ``EMBEDDED``, or ``source`` and the origin of its
            values.
        fails: whether it failed as expected in one run; None if that run gave no
            result.
        carried: the preload bundle of the script.
        environment: the environment variables that the script sets.
        not_needed: names of further variables that the failure does not need.
        fails_without_own: whether it fails without ``carried.in_compiler``; None if
            that was not tested.
    """

    files: tuple[Path, ...]
    how: str
    fails: bool | None = False
    carried: PreloadBundle = field(default_factory=PreloadBundle)
    environment: Mapping[str, str] = field(default_factory=dict)
    not_needed: tuple[str, ...] = ()
    fails_without_own: bool | None = None

    @property
    def needs_own(self) -> bool:
        """Whether the failure is known to need the user's code in the compiler."""
        return bool(self.carried.in_compiler.places) and self.fails_without_own is False

    @property
    def is_source(self) -> bool:
        """Whether the script contains the program as source."""
        return self.how != EMBEDDED


@dataclass(frozen=True)
class VerifiedRepro:
    """A repro, and the result of its verification runs.

    Attributes:
        runs: the number of runs with a result; others are not counted.
        failed: the number of runs that failed as expected.
        log: the output of a run that failed.
        above: the number of lines above its code in that run; the header may have
            another length now.
    """

    written: ReproFiles = ReproFiles((), "none: it was not verified")
    runs: int = 0
    failed: int = 0
    log: str = field(default="", repr=False)
    above: int | None = None

    @property
    def always_fails(self) -> bool:
        """Whether there was at least one run, and every run failed."""
        return 0 < self.failed == self.runs
