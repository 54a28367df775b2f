"""What a run has found out, in records: all that is written of it is read off these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
