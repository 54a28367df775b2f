"""What is known of a failure's cause: ``explain.json``.

Each part is a record of the module that finds it out; None where nobody asked. What was
asked and could not be told is in ``unknown``, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.protocol.record import Message
from shrinkfx.report.explanation.guide import Guide

SCHEMA = 1


@dataclass(frozen=True)
class Operator(Message):
    """An operator that is left, and where it comes from.

    Attributes:
        name: of its node, in the original too.
        operator: what it calls: ``aten.roll.default``.
        line: ``model.py:14`` of the user's code, or ''.
        module: path of the ``nn.Module`` that called it, or ''.
    """

    name: str
    operator: str
    line: str = ""
    module: str = ""


@dataclass(frozen=True)
class Explanation(Message):
    """What is known of a failure's cause.

    Attributes:
        cause: at most three sentences; empty where nothing points at anything.
        operators: what is left of the program, in its order.
        guilty: those of them that are at fault, as far as is known; several only where
            nothing tells them apart.
        guide: what the flags of PyTorch's debugging guide say.
        unknown: what could not be told, and why.
    """

    schema: int = SCHEMA
    cause: tuple[str, ...] = ()
    operators: tuple[Operator, ...] = ()
    guilty: tuple[Operator, ...] = ()
    guide: Guide | None = None
    unknown: tuple[str, ...] = ()
