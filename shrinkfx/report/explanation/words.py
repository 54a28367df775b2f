"""An explanation in words: for a terminal, and for the top of a repro."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shrinkfx.report.explanation.operators import Operator
from shrinkfx.report.explanation.record import Explanation

LINES = 15
"""Of a terminal, at most."""

_OPERATORS = 5
"""That are listed there."""


def in_lines(explanation: Explanation) -> tuple[str, ...]:
    """Say what is known in few lines for a terminal."""
    told = [f"cause:    {sentence}" for sentence in explanation.cause]
    told += _operators(explanation.operators)
    told += [f"unknown:  {text}" for text in explanation.unknown]
    return tuple(told[:LINES])


def _operators(left: Sequence[Operator]) -> Iterator[str]:
    """Say where what is left comes from, if that is known."""
    for operator in left[:_OPERATORS]:
        if operator.line or operator.module:
            yield f"left:     {operator}"
    if len(left) > _OPERATORS:
        yield f"left:     {len(left) - _OPERATORS} more: explain.json"
