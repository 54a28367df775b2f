"""The explanation of a failure: ``explain.json``.

Each part is a record of the module that determines it; None if it was not requested.
``unknown`` lists what could not be determined, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from shrinkfx.findings.chain import Chain
from shrinkfx.findings.compiling import StopPoint
from shrinkfx.findings.decisions import Decisions
from shrinkfx.findings.guide import Guide
from shrinkfx.findings.operator_mismatch import OperatorMismatch
from shrinkfx.findings.operators import Operator
from shrinkfx.findings.values import WrongValue
from shrinkfx.protocol.record import Message

SCHEMA = 1
"""Version of ``explain.json``: it increases when a key is removed or changes its
meaning, not when a key is added."""

EXPLAIN = "explain.json"
"""Name of the file, next to the repro."""


Finding = Chain | WrongValue | StopPoint
"""A result that points at operators; a failure has at most one."""


@dataclass(frozen=True)
class Explanation(Message):
    """The known facts about a failure's cause.

    Attributes:
        cause: at most three sentences; empty if there is no evidence.
        operators: the operators of the reduced program, in program order.
        culprits: the culprit operators; several only if nothing distinguishes them.
        inputs: a sentence if the program was compiled for other inputs, or ''.
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
        if self.inputs or (self.values is not None and self.values.missized):
            return True
        has_cause = any(part.cause for part in self.parts)
        is_explained = has_cause or self.culprit_mismatch is not None
        return len(self.culprits) == 1 and is_explained
