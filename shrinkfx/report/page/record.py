"""Records of a run that the page is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from shrinkfx.failure.verdict import Outcome
from shrinkfx.findings.record import Explanation
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.printed_program import PrintedProgram
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.report.record import OtherFailure
from shrinkfx.report.sweep import SweepRow

REPORT = "report.html"
"""Name of the file, next to the repro."""


@dataclass(frozen=True)
class Check:
    """One check of the run, and its verdict.

    Attributes:
        at_s: start of the check, in working seconds of the run.
        operators: number of operators of the candidate.
        keep: names of these operators.
        outcome: None if the check did not end.
        message: the failure's message, or why there is no verdict.
        is_by_catch: the check showed a failure other than the target.
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
    message: str
    seconds: float
    is_by_catch: bool = False

    @property
    def came(self) -> str:
        """The result in words."""
        if self.outcome is Outcome.DIFFERENT and not self.is_by_catch:
            return "no step"  # the target failure at inputs that must pass
        return self.outcome.value if self.outcome else "did not end"


@dataclass(frozen=True)
class SizeChange:
    """A count of the input program and of the reduced program; None if not counted."""

    before: int | None
    after: int | None


@dataclass(frozen=True)
class SuspectRow:
    """An operator that was suspected before the search."""

    rank: int
    operator: str
    node: str
    source: str
    weight: float
    why: str


@dataclass(frozen=True)
class Summary:
    """The content of ``summary.json`` in any schema version; missing parts are empty.

    Attributes:
        failure: the failure of the reduced program, with its message.
        sizes: counts, by what was counted: operators, nodes, inputs.
        cut: number of operators of the graph form that was reduced.
        cached: number of queries answered without a check.
    """

    status: str = ""
    stopped: str = ""
    kind: str = ""
    failure: str = ""
    rate: tuple[float, float] = (1.0, 1.0)
    calls: int = 1
    sizes: Mapping[str, SizeChange] = field(default_factory=dict)
    cut: int | None = None
    checks: int = 0
    cached: int = 0
    seconds: float = 0.0
    cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    by_catch: tuple[OtherFailure, ...] = ()
    minimal: bool = False
    minimal_by_kind: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    suspects: tuple[SuspectRow, ...] = ()
    cause: tuple[str, ...] = ()
    runs: int = 0
    failed: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Parse the output of ``report/summary.py``, of this or an older version."""
        names = ("operators", "nodes", "inputs", "dynamic_dims")
        sizes = {name: data[name] for name in names if name in data}
        rate = data.get("rate", {})
        checks, verified = data.get("checks", {}), data.get("verified", {})
        as_is = ("status", "stopped", "kind", "failure", "calls", "seconds", "minimal")
        return cls(
            **{name: data[name] for name in as_is if name in data},
            rate=(rate.get("before", 1.0), rate.get("after", 1.0)),
            sizes={k: SizeChange(v["before"], v["after"]) for k, v in sizes.items()},
            cut=data.get("operators_cut"),
            checks=checks.get("total", 0),
            cached=checks.get("cached", 0),
            cpu_seconds=data.get("cpu_seconds", {}),
            by_catch=tuple(
                OtherFailure(**caught) for caught in data.get("other_failures", ())
            ),
            minimal_by_kind=data.get("minimal_by_kind", {}),
            warnings=tuple(data.get("warnings", ())),
            suspects=tuple(map(_suspected_from_json, data.get("suspects", ()))),
            cause=tuple(data.get("cause", ())),
            runs=verified.get("runs", 0),
            failed=verified.get("failed", 0),
            versions=data.get("versions", {}),
        )


def _suspected_from_json(data: Mapping[str, Any]) -> SuspectRow:
    names = ("operator", "node", "source", "weight", "why")
    return SuspectRow(data.get("rank", 1), **{name: data[name] for name in names})


@dataclass(frozen=True)
class Source:
    """A file of generated code.

    Attributes:
        name: path relative to the run's folder; '' for lines without a kept file.
        first: number of the first line.
        marked: number of the failing line; 0 for none.
        counted_in: the text that the line numbers refer to, in words, if no file was
            kept.
    """

    name: str
    lines: tuple[str, ...]
    first: int = 1
    marked: int = 0
    counted_in: str = ""


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep over sizes.

    Attributes:
        counts: the number of tested sizes, by result.
    """

    counts: Mapping[str, int]
    findings: tuple[SweepRow, ...]


@dataclass(frozen=True)
class Run:
    """The content of the page; None and '' for unknown parts.

    Attributes:
        model: the user's name of the program.
        anonymous: the names of the user's model are omitted.
        command: the command line of the run, without folders.
        folder: the run's folder, as the command line names it.
        program: the graph that candidates were cut from.
        no_program: why there is no graph.
        reduced: the reduced program.
        listing: the reduced program as statements, if it was printed so.
        no_explanation: why there is no explanation.
        repro: the text of ``repro.py``.
        source: the source of the failing kernel.
    """

    model: str
    anonymous: bool = False
    command: str = ""
    folder: str = ""
    summary: Summary = field(default_factory=Summary)
    checks: tuple[Check, ...] = ()
    program: Skeleton | None = None
    no_program: str = ""
    reduced: Candidate | None = None
    listing: PrintedProgram | None = None
    explanation: Explanation | None = None
    no_explanation: str = ""
    repro: str = ""
    source: Source | None = None
    swept: SweepResult | None = None
