"""Records of a run that the page is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shrinkfx.failure.verdict import Outcome
from shrinkfx.findings.code import find_quoted_lines, likeliest_first, text_of
from shrinkfx.findings.record import Explanation
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.printed_program import PrintedProgram
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.record import Message
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
class SizeChange(Message):
    """A count of the input program and of the reduced program; None if not counted."""

    before: int | None = None
    after: int | None = None


@dataclass(frozen=True)
class FailureRate(Message):
    """The fraction of the runs of both programs that fail."""

    before: float = 1.0
    after: float = 1.0


@dataclass(frozen=True)
class CheckCounts(Message):
    """The number of checks, and of queries answered without a check."""

    total: int = 0
    cached: int = 0


@dataclass(frozen=True)
class VerifiedRuns(Message):
    """How often the repro ran and failed in the same way."""

    runs: int = 0
    failed: int = 0


@dataclass(frozen=True)
class SuspectRow(Message):
    """An operator that was suspected before the search."""

    operator: str
    node: str
    source: str
    why: str
    rank: int = 1


@dataclass(frozen=True)
class Summary(Message):
    """The content of ``summary.json`` in any schema version; missing parts are empty.

    ``report/summary.py`` writes it; ``read_older`` reads it.
    """

    status: str = ""
    stopped: str = ""
    kind: str = ""
    failure: str = ""
    rate: FailureRate = FailureRate()
    operators: SizeChange | None = None
    nodes: SizeChange | None = None
    inputs: SizeChange | None = None
    operators_cut: int | None = None
    checks: CheckCounts = CheckCounts()
    seconds: float = 0.0
    cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    other_failures: tuple[OtherFailure, ...] = ()
    minimal: bool = False
    minimal_by_kind: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    suspects: tuple[SuspectRow, ...] = ()
    cause: tuple[str, ...] = ()
    verified: VerifiedRuns = VerifiedRuns()
    versions: Mapping[str, str] = field(default_factory=dict)


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


def find_failing_source(
    explanation: Explanation, files: Mapping[str, str]
) -> Source | None:
    """Return the file with the quoted lines, or only these if no file was kept.

    Args:
        files: texts of generated code, by file name.
    """
    parts = explanation.chain, explanation.compile_error
    part = next((part for part in parts if part is not None and part.code), None)
    if part is None:
        return _find_kernel_source(explanation, files)
    found = find_quoted_lines(part.code, part.kernel, files)
    name, quoted = found or ("", part.code)
    marked = next((line.number for line in quoted if line.at_fault), 0)
    if found:
        return Source(name, tuple(files[name].splitlines()), marked=marked)
    texts = tuple(line.text for line in quoted)
    counted_in = text_of(part.file)
    return Source("", texts, quoted[0].number, marked, counted_in)


def _find_kernel_source(
    explanation: Explanation, files: Mapping[str, str]
) -> Source | None:
    """Return the file of a kernel without a known failing line."""
    parts = explanation.values, explanation.chain, explanation.compile_error
    kernel = next((part.kernel for part in parts if part and part.kernel), "")
    if not kernel:
        return None
    for name in likeliest_first(files, kernel):
        lines = files[name].splitlines()
        heads = (i for i, line in enumerate(lines, 1) if f"{kernel}(" in line)
        if head := next(heads, 0):
            return Source(name, tuple(lines), marked=head)
    return None
