"""What the page is made from: records of a run, of whatever is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from shrinkfx.failure.verdict import Outcome
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.listing import Listing
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.report.explanation.record import Explanation
from shrinkfx.report.record import ByCatch

REPORT = "report.html"
"""Lies beside the repro."""


@dataclass(frozen=True)
class Check:
    """One check of the run, and its answer.

    Attributes:
        at_s: when it was asked, in seconds that the run had worked.
        operators: of the candidate.
        keep: those by name.
        outcome: None where it did not end.
        said: the failure in its own words, or why there is none to judge.
        is_by_catch: it has shown another failure than the target, wherever.
    """

    number: int
    at_s: float
    strategy: str
    form: str
    build: str
    digest: str
    operators: int
    keep: frozenset[str]
    outcome: Outcome | None
    said: str
    seconds: float
    is_by_catch: bool = False

    @property
    def came(self) -> str:
        """Name what came of it."""
        if self.outcome is Outcome.DIFFERENT and not self.is_by_catch:
            return "no step"  # the target, where it must not show
        return self.outcome.value if self.outcome else "did not end"


@dataclass(frozen=True)
class Before:
    """A number of the original, and of the result; None where it was not counted."""

    before: int | None
    after: int | None


@dataclass(frozen=True)
class Suspected:
    """An operator that was suspected before the search."""

    rank: int
    operator: str
    node: str
    source: str
    weight: float
    why: str


@dataclass(frozen=True)
class Summary:
    """What ``summary.json`` says, of whichever version of it; empty where it does not.

    Attributes:
        failure: how the result fails, in its own words.
        sizes: by what was counted: operators, nodes, inputs.
        cached: answers that took no check.
    """

    status: str = ""
    stopped: str = ""
    kind: str = ""
    failure: str = ""
    rate: tuple[float, float] = (1.0, 1.0)
    calls: int = 1
    sizes: Mapping[str, Before] = field(default_factory=dict)
    cut: int | None = None
    checks: int = 0
    cached: int = 0
    seconds: float = 0.0
    cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    by_catch: tuple[ByCatch, ...] = ()
    minimal: bool = False
    minimal_by_kind: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    suspects: tuple[Suspected, ...] = ()
    cause: tuple[str, ...] = ()
    runs: int = 0
    failed: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what ``report/summary.py`` has written, or an older version of it."""
        names = ("operators", "nodes", "inputs", "dynamic_dims")
        sizes = {name: data[name] for name in names if name in data}
        rate = data.get("rate", {})
        checks, verified = data.get("checks", {}), data.get("verified", {})
        as_is = ("status", "stopped", "kind", "failure", "calls", "seconds", "minimal")
        return cls(
            **{name: data[name] for name in as_is if name in data},
            rate=(rate.get("before", 1.0), rate.get("after", 1.0)),
            sizes={k: Before(v["before"], v["after"]) for k, v in sizes.items()},
            cut=data.get("operators_cut"),
            checks=checks.get("total", 0),
            cached=checks.get("cached", 0),
            cpu_seconds=data.get("cpu_seconds", {}),
            by_catch=tuple(
                ByCatch(**caught) for caught in data.get("other_failures", ())
            ),
            minimal_by_kind=data.get("minimal_by_kind", {}),
            warnings=tuple(data.get("warnings", ())),
            suspects=tuple(map(_suspected_from_json, data.get("suspects", ()))),
            cause=tuple(data.get("cause", ())),
            runs=verified.get("runs", 0),
            failed=verified.get("failed", 0),
            versions=data.get("versions", {}),
        )


def _suspected_from_json(data: Mapping[str, Any]) -> Suspected:
    names = ("operator", "node", "source", "weight", "why")
    return Suspected(data.get("rank", 1), **{name: data[name] for name in names})


@dataclass(frozen=True)
class Source:
    """A file of generated code.

    Attributes:
        name: of the file, below the run's folder; '' for lines of which none was kept.
        first: the number of its first line.
        marked: the line at fault, by its number; 0 for none.
        counted_in: the text that numbers are of, in words, where no file was kept.
    """

    name: str
    lines: tuple[str, ...]
    first: int = 1
    marked: int = 0
    counted_in: str = ""


@dataclass(frozen=True)
class SizesTold:
    """What a sweep has found of one failure."""

    sizes: str
    kind: str
    failure: str
    nearest: str


@dataclass(frozen=True)
class Swept:
    """What a sweep over sizes has found.

    Attributes:
        counts: of the sizes that were run, by what came of them.
    """

    counts: Mapping[str, int]
    findings: tuple[SizesTold, ...]


@dataclass(frozen=True)
class Run:
    """All that the page shows; None and '' where it is not known.

    Attributes:
        model: what the user calls the program.
        anonymous: names of the user's model were left out.
        command: how the run was started, without folders.
        folder: of the run, as a command names it where it was typed.
        program: the graph that candidates were cut from; ``no_program`` says why there
            is none.
        left: what is left; ``listing`` is that as statements, if it was written so.
        no_explanation: why there is none.
        repro: the text of ``repro.py``.
        source: the guilty kernel's.
    """

    model: str
    anonymous: bool = False
    command: str = ""
    folder: str = ""
    summary: Summary = field(default_factory=Summary)
    checks: tuple[Check, ...] = ()
    program: Skeleton | None = None
    no_program: str = ""
    left: Candidate | None = None
    listing: Listing | None = None
    explanation: Explanation | None = None
    no_explanation: str = ""
    repro: str = ""
    source: Source | None = None
    swept: Swept | None = None
