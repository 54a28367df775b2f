"""An explanation in words, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shrinkfx.failure.signature import Signature
from shrinkfx.program.words import cut
from shrinkfx.report.explanation.decisions import by_hand, lines
from shrinkfx.report.explanation.guide import Guide, Outcome
from shrinkfx.report.explanation.operators import Operator
from shrinkfx.report.explanation.record import Explanation

LINES = 15
"""Of a terminal, at most."""

_WIDTH = 120
"""Characters of a line of code."""

_OPERATORS, _DECISIONS, _UNKNOWN = 4, 3, 2
"""Lines of each, at most."""


def in_lines(explanation: Explanation, failure: Signature) -> tuple[str, ...]:
    """Say what is known in few lines."""
    told = [f"cause:    {sentence}" for sentence in explanation.cause]
    told += [f"more:     {sentence}" for sentence in _left_out(explanation)]
    told += _code(explanation)
    told += _operators(explanation.operators)
    if (decided := explanation.decisions) is not None:
        more = [s for s in lines(decided, failure) if s not in explanation.cause]
        told += [f"decision: {text}" for text in more[:_DECISIONS]]
        told += [f"by hand:  {text}" for text in by_hand(decided)[:2]]
    if explanation.guide is not None:
        told += _guide(explanation.guide)
    unknown = [*_unknown(explanation)][:_UNKNOWN]
    return (*told[: LINES - len(unknown)], *unknown)


def _unknown(explanation: Explanation) -> Iterator[str]:
    """Say what could not be told; a cause that is known stands without that."""
    for text in explanation.unknown:
        if explanation.is_settled:
            yield f"untold:   {text}; the cause stands without that"
        else:
            yield f"unknown:  {text}"


def _left_out(explanation: Explanation) -> Iterator[str]:
    """Give what the part that knows the cause says, and a decision stands for."""
    parts = explanation.chain, explanation.values, explanation.halted
    told = [sentence for part in parts if part is not None for sentence in part.cause]
    if any(sentence in explanation.cause for sentence in told):
        yield from (s for s in told if s not in explanation.cause)


def _code(explanation: Explanation) -> Iterator[str]:
    """Show the line of generated code at fault; ``explain.json`` has those around."""
    for part in (explanation.chain, explanation.halted):
        for line in part.code if part is not None else ():
            if line.at_fault:
                text = cut(line.text.strip(), _WIDTH)
                yield f"code:     line {line.number}: {text}"


def _operators(left: Sequence[Operator]) -> Iterator[str]:
    """Say where what is left comes from, if that is known."""
    for operator in left[:_OPERATORS]:
        if operator.line or operator.module:
            yield f"where:    {operator}"
    if len(left) > _OPERATORS:
        yield f"where:    {len(left) - _OPERATORS} more: explain.json"


def _guide(guide: Guide) -> Iterator[str]:
    """Name the flags under which it does something else than fail as it does."""
    asked = [row for row in guide.rows if row.outcome is not Outcome.NOT_ASKED]
    told = [f"{row.flag}: {row.outcome}" for row in asked if row.flag]
    other = [text for text in told if not text.endswith(Outcome.SAME)]
    if told:
        same = "the same under all" if not other else "; ".join(other)
        yield f"flags:    {len(told)} tried: {same}"
    if guide.kernel_alone is not None:
        yield f"kernel:   {guide.kernel_alone}"
    if guide.files:
        yield f"files:    {len(guide.files)} in explain/"
