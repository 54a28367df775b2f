"""The explanation of a failure: ``explain.json``.

Each part is a record of the module that determines it; None if it was not requested.
``unknown`` lists what could not be determined, with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Self

from shrinkfx.failure.signature import Signature
from shrinkfx.findings.chain import Chain
from shrinkfx.findings.code import text_of
from shrinkfx.findings.compiling import StopPoint
from shrinkfx.findings.decisions import Decisions, by_hand, format_decisions
from shrinkfx.findings.operators import Operator, OperatorMismatch
from shrinkfx.findings.values import WrongValue
from shrinkfx.program.display_text import cut_text, short_kernels
from shrinkfx.protocol.record import Message

SCHEMA = 1
"""Version of ``explain.json``: it increases when a key is removed or changes its
meaning, not when a key is added."""

EXPLAIN = "explain.json"
"""Name of the file, next to the repro."""


Finding = Chain | WrongValue | StopPoint
"""A result that points at operators; a failure has at most one."""


class Outcome(StrEnum):
    """What a program does under a flag."""

    SAME = "same failure"
    OTHER = "another failure"
    PASSES = "passes"
    OPEN = "no answer"
    NOT_TESTED = "not tested"

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        """Accept the word of earlier versions."""
        return cls.NOT_TESTED if value == "not asked" else None


EAGER_FAILS = "Eager fails on the input program, too: check inputs and operators first."
"""The first sentence on a cause if eager is no reference."""


@dataclass(frozen=True)
class Row(Message):
    """A flag and its result.

    Attributes:
        flag: with its value, as in a shell; '' for none.
        command: the command that a user types.
        failure: the failure in one line; '' for none.
        output: the relevant lines of the output.
        why: why there is no result, or the flag was not tested; otherwise ''.
    """

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"said": "output"}

    flag: str
    command: str
    outcome: Outcome
    failure: str = ""
    output: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class LeftFile(Message):
    """A file that was written for further analysis.

    Attributes:
        name: relative to the folder of these files.
        what: a description of the file.
    """

    name: str
    bytes: int
    what: str


@dataclass(frozen=True)
class Guide(Message):
    """The results of the flags of PyTorch's debugging guide on a reduced program.

    Attributes:
        last_launch: the last kernel that was launched before the failure, or ''.
        files: the files that were written, if requested.
        left_out: files that were not written or not found, and why.
    """

    rows: tuple[Row, ...] = ()
    last_launch: str = ""
    files: tuple[LeftFile, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explanation(Message):
    """The known facts about a failure's cause.

    Attributes:
        cause: at most three sentences; empty if there is no evidence.
        operators: the operators of the reduced program, in program order.
        culprits: the culprit operators; several only if nothing distinguishes them.
        inputs: a sentence if the program was compiled for other inputs, or ''.
        torch_compile: what a program that fails with AOTInductor does with
            torch.compile.
        mismatches: operators of the reduced program whose results are not as declared.
        unknown: what could not be determined, and why.
        chain: for a failing kernel: the chain from it back to the inputs.
        values: for a wrong value: the kernel that computes it.
        compile_error: for a program that stops: the point at which it stopped.
        decisions: the compiler decisions that the failure needs.
        guide: the results of the flags of PyTorch's debugging guide.
    """

    OLD_NAMES: ClassVar[Mapping[str, str]] = {
        "guilty": "culprits",
        "halted": "compile_error",
        "lies": "mismatches",
    }

    schema: int = SCHEMA
    cause: tuple[str, ...] = ()
    operators: tuple[Operator, ...] = ()
    culprits: tuple[Operator, ...] = ()
    unknown: tuple[str, ...] = ()
    chain: Chain | None = None
    values: WrongValue | None = None
    compile_error: StopPoint | None = None
    decisions: Decisions | None = None
    guide: Guide | None = None
    mismatches: tuple[OperatorMismatch, ...] = ()
    inputs: str = ""
    torch_compile: Outcome = Outcome.NOT_TESTED

    @property
    def parts(self) -> tuple[Finding, ...]:
        """The results that point at operators, without those that are None."""
        parts = self.chain, self.values, self.compile_error
        return tuple(part for part in parts if part is not None)

    @property
    def culprit_mismatch(self) -> OperatorMismatch | None:
        """The mismatch of the culprit operator, or None."""
        found = (one for one in self.mismatches if self.culprits == (one.operator,))
        return next(found, None)

    @property
    def is_settled(self) -> bool:
        """Whether the cause is known, despite any entries of ``unknown``."""
        if self.inputs:
            return True
        has_cause = any(part.cause for part in self.parts)
        is_explained = has_cause or self.culprit_mismatch is not None
        return len(self.culprits) == 1 and is_explained


# The explanation as lines for a terminal.

LINES = 15
"""Maximum number of lines."""

_WIDTH = 120
"""Maximum characters of a line of code."""

_OPERATORS, _DECISIONS, _UNKNOWN = 4, 3, 2
"""Maximum number of lines of each."""


def explanation_lines(explanation: Explanation, failure: Signature) -> tuple[str, ...]:
    """Return the explanation in at most ``LINES`` lines."""
    lines = [f"cause:    {short_kernels(s)}" for s in explanation.cause]
    lines += [f"more:     {short_kernels(s)}" for s in _left_out(explanation)]
    lines += _code(explanation)
    lines += _operators(explanation)
    if (decided := explanation.decisions) is not None:
        more = [
            s for s in format_decisions(decided, failure) if s not in explanation.cause
        ]
        lines += [f"compiler: {text}" for text in more[:_DECISIONS]]
        lines += [f"by hand:  {text}" for text in by_hand(decided)[:2]]
    if explanation.guide is not None:
        lines += _guide(explanation.guide)
    note = "; the cause does not depend on it" if explanation.is_settled else ""
    shown = explanation.unknown[:_UNKNOWN]
    unknown = [f"unknown:  {short_kernels(text)}{note}" for text in shown]
    return (*lines[: LINES - len(unknown)], *unknown)


def _left_out(explanation: Explanation) -> Iterator[str]:
    """Yield sentences of the part with the cause that the cause itself omits."""
    texts = [sentence for part in explanation.parts for sentence in part.cause]
    if any(sentence in explanation.cause for sentence in texts):
        yield from (s for s in texts if s not in explanation.cause)


def _code(explanation: Explanation) -> Iterator[str]:
    """Yield the failing line of generated code; ``explain.json`` has its context."""
    parts = explanation.chain, explanation.compile_error
    for part in (part for part in parts if part is not None):
        for line in part.code:
            text = line.text.strip()
            is_quoted = any(f"`{text}`" in sentence for sentence in explanation.cause)
            if line.at_fault and not is_quoted:
                where = f"line {line.number} of {text_of(part.file)}"
                yield f"code:     {where}: {cut_text(text, _WIDTH)}"


def _operators(found: Explanation) -> Iterator[str]:
    """Yield the culprits, and the places of operators in the user's model, if known."""
    operators, culprits = found.operators, found.culprits
    calls = Counter(str(operator) for operator in operators)
    known = {str(o) for o in operators if o.line or o.module or o in culprits}
    for name in [*calls][:_OPERATORS]:
        if name in known:
            times = f": {calls[name]} calls" if calls[name] > 1 else ""
            yield f"location: {name}{times}"
    if len(calls) > _OPERATORS:
        yield f"location: {len(calls) - _OPERATORS} more in explain.json"


def _guide(guide: Guide) -> Iterator[str]:
    """Yield the flags by result; those without an effect come last."""
    for outcome in (o for o in _ORDER if any(row.outcome is o for row in guide.rows)):
        rows = [row for row in guide.rows if row.outcome is outcome and row.flag]
        # Another failure, or the reason for no result, differs by flag.
        if outcome in (Outcome.OTHER, Outcome.OPEN):
            names = [
                f"{_name(row)} ({cut_text(row.failure or row.why, 60)})" for row in rows
            ]
        else:
            names = [_name(row) for row in rows]
        if names:
            why = f" ({_why(rows)})" if outcome is Outcome.NOT_TESTED else ""
            yield f"flags:    {outcome}: {', '.join(names)}{why}"
    if guide.files:
        yield f"files:    {len(guide.files)} in explain/"


_ORDER = (
    Outcome.PASSES,
    Outcome.OTHER,
    Outcome.OPEN,
    Outcome.SAME,
    Outcome.NOT_TESTED,
)


def _why(rows: Sequence[Row]) -> str:
    """Return why flags were not tested, if the reason is the same for all."""
    first, *others = dict.fromkeys(row.why for row in rows)
    return first if first and not others else "for the reasons, see explain.json"


def _name(row: Row) -> str:
    """Name a flag without the list of kernels that follows it."""
    return row.flag.partition(" ")[0]
