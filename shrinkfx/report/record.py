"""What a run has found out, in records: all that is written of it is read off these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from shrinkfx.failure.readers.asan import MemoryReport
from shrinkfx.protocol.choices import Guard
from shrinkfx.report.carried import Carried


@dataclass(frozen=True)
class Sizes:
    """How large a program is, as far as it was looked at."""

    operators: int
    nodes: int | None = None
    inputs: int | None = None
    dynamic_dims: int | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(*(int(data[name]) for name in cls.__dataclass_fields__))


@dataclass(frozen=True)
class ByCatch:
    """Another failure that the search has met.

    Attributes:
        checks: how many showed it.
        operators: of the smallest candidate that did.
        candidate: that one's digest, for ``--candidate``.
    """

    kind: str
    stage: str
    text: str
    checks: int
    operators: int
    candidate: str


@dataclass(frozen=True)
class Spent:
    """What a run has cost.

    Attributes:
        outcomes: of every check that was paid for.
        by_catch: failures other than the target, each once.
        cached: questions answered without one.
        cpu_seconds: by part of the run, all processes together.
    """

    outcomes: Sequence[str]
    by_catch: Sequence[ByCatch]
    cached: int
    seconds: float
    cpu_seconds: Mapping[str, float]


@dataclass(frozen=True)
class OtherCauses:
    """What else than the compiler may be the cause of a failure.

    Attributes:
        mismatches: operators whose results are not what their fake kernels say, in the
            form of the program that is cut.
        examined: custom operators that do what their schemas and fake kernels do not
            say, seen in a run of their own.
        warnings: of anything but an operator.
    """

    mismatches: tuple[str, ...] = ()
    examined: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def with_warning(self, text: str) -> Self:
        """Add a warning, unless it is ''."""
        return replace(self, warnings=(*self.warnings, text)) if text else self

    def of_operators(self) -> tuple[str, ...]:
        """List those that are about an operator."""
        lying = (f"lying operator: {told}" for told in self.mismatches)
        return (*lying, *self.examined)

    def all(self) -> tuple[str, ...]:
        """List all, those about an operator first."""
        return (*self.of_operators(), *self.warnings)

    def left_in(self, targets: Sequence[str]) -> tuple[str, ...]:
        """List those that concern a program which calls no more than ``targets``."""
        left = (
            text
            for text in self.of_operators()
            if any(f"({target})" in text for target in targets)
        )
        return (*left, *self.warnings)


@dataclass(frozen=True)
class Memory:
    """What is known of the memory error that a result shows.

    Attributes:
        guard: what the repro needs to fail; OFF where it fails without guard pages.
        plain: what the result does without them, or ''.
        report: AddressSanitizer's, or None.
        no_report: why there is none, or ''.
    """

    guard: Guard = Guard.OFF
    plain: str = ""
    report: MemoryReport | None = None
    no_report: str = ""


@dataclass(frozen=True)
class Written:
    """A repro and all that must lie beside it, the script first.

    Attributes:
        fails: it was run once, and failed as it should; None if that had no answer.
        carried: what it holds of the preloads.
        environment: the variables that it sets.
        not_needed: names of others, without which it fails alike.
    """

    files: tuple[Path, ...]
    how: str
    fails: bool | None = False
    carried: Carried = field(default_factory=Carried)
    environment: Mapping[str, str] = field(default_factory=dict)
    not_needed: tuple[str, ...] = ()
