"""What is known of a failure's cause: ``explain.json``.

Each part is a record of the module that finds it out; None where nobody asked. What was
asked and could not be told is in ``unknown``, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.protocol.record import Message
from shrinkfx.report.explanation.chain import Chain
from shrinkfx.report.explanation.compiling import Halted
from shrinkfx.report.explanation.decisions import Decisions
from shrinkfx.report.explanation.guide import Guide
from shrinkfx.report.explanation.lies import Lie
from shrinkfx.report.explanation.operators import Operator
from shrinkfx.report.explanation.values import WrongValue

SCHEMA = 1
"""Of ``explain.json``: one more where a key that was there is gone, or means something
else; not for a new key."""

EXPLAIN = "explain.json"
"""Lies beside the repro."""


@dataclass(frozen=True)
class Explanation(Message):
    """What is known of a failure's cause.

    Attributes:
        cause: at most three sentences; empty where nothing points at anything.
        operators: what is left of the program, in its order.
        guilty: those of them that are at fault, as far as is known; several only where
            nothing tells them apart.
        inputs: a sentence if the program was compiled for other inputs, or ''.
        lies: operators left whose results are not what their fake kernels say.
        unknown: what could not be told, and why.
        chain: of a failure of a kernel: from it back to the inputs.
        values: of a wrong value: which kernel has made it.
        halted: of a program that stops: what it was at.
        decisions: those of the compiler that it needs.
        guide: what the flags of PyTorch's debugging guide say.
    """

    schema: int = SCHEMA
    cause: tuple[str, ...] = ()
    operators: tuple[Operator, ...] = ()
    guilty: tuple[Operator, ...] = ()
    unknown: tuple[str, ...] = ()
    chain: Chain | None = None
    values: WrongValue | None = None
    halted: Halted | None = None
    decisions: Decisions | None = None
    guide: Guide | None = None
    lies: tuple[Lie, ...] = ()
    inputs: str = ""

    @property
    def liar(self) -> Lie | None:
        """What the failure is blamed on, where that is a lie."""
        return next((lie for lie in self.lies if self.guilty == (lie.operator,)), None)

    @property
    def is_settled(self) -> bool:
        """Tell whether what is at fault is known, whatever could not be told."""
        if self.inputs or (self.values is not None and self.values.missized):
            return True
        parts = self.chain, self.values, self.halted
        has_cause = any(part is not None and part.cause for part in parts)
        return len(self.guilty) == 1 and (has_cause or self.liar is not None)
