"""The explanation as lines for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from shrinkfx.failure.signature import Signature
from shrinkfx.findings.code import text_of
from shrinkfx.findings.decisions import by_hand, format_decisions
from shrinkfx.findings.guide import Guide, Outcome, Row
from shrinkfx.findings.operators import Operator
from shrinkfx.findings.record import Explanation
from shrinkfx.program.display_text import cut_text, short_kernels

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
    lines += _operators(explanation.operators)
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


def _operators(operators: Sequence[Operator]) -> Iterator[str]:
    """Yield the places of operators in the user's model, if known."""
    calls = Counter(str(operator) for operator in operators)
    known = {str(o) for o in operators if o.line or o.module}
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
            why = f" ({_why(rows)})" if outcome is Outcome.NOT_ASKED else ""
            yield f"flags:    {outcome}: {', '.join(names)}{why}"
    if guide.kernel_alone is not None:
        yield f"kernel:   {short_kernels(str(guide.kernel_alone))}"
    if guide.files:
        yield f"files:    {len(guide.files)} in explain/"


_ORDER = (
    Outcome.PASSES,
    Outcome.OTHER,
    Outcome.OPEN,
    Outcome.SAME,
    Outcome.NOT_ASKED,
)


def _why(rows: Sequence[Row]) -> str:
    """Return why flags were not tested, if the reason is the same for all."""
    first, *others = dict.fromkeys(row.why for row in rows)
    return first if first and not others else "for the reasons, see explain.json"


def _name(row: Row) -> str:
    """Name a flag without the list of kernels that follows it."""
    return row.flag.partition(" ")[0]
