"""An operator of the reduced program, its place in the user's model, its mismatches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from shrinkfx.program.pytorch_names import PYTORCH_NAMESPACES
from shrinkfx.protocol.operators import (
    UNDECLARED_EFFECTS,
    VALUE_DEPENDENCIES,
    Misbehavior,
    TensorFacts,
)
from shrinkfx.protocol.record import Message


@dataclass(frozen=True)
class Operator(Message):
    """An operator of the reduced program, and its place in the user's model.

    Attributes:
        name: of the node, the same in the input program.
        operator: the target: ``aten.roll.default``.
        line: ``model.py:14`` of the user's code, or ''.
        module: the path of the ``nn.Module`` that called it, or ''.
    """

    name: str
    operator: str
    line: str = ""
    module: str = ""

    @property
    def is_custom(self) -> bool:
        """Whether it is not one of PyTorch's operators."""
        name, dot, _ = self.operator.partition(".")
        return bool(dot) and name.isidentifier() and name not in PYTORCH_NAMESPACES

    def __str__(self) -> str:
        module = f"module {self.module}" if self.module else ""
        where = ", ".join(filter(None, (self.line, module)))
        return f"{self.operator} ({where})" if where else self.operator


def format_fails_alone(operator: Operator) -> str:
    """State that the only operator of the reduced program fails alone."""
    return f"{operator} fails alone: the reduced program has no other operator."


@dataclass(frozen=True)
class OperatorMismatch(Message):
    """An operator of the reduced program whose result is not as declared.

    Attributes:
        difference: the difference, at the sizes of the reduced program.
        fake_kernel: file and line of its fake kernel, or ''.
        in_original: ``difference`` describes the input program instead, whose sizes may
            differ: the reduced program was not examined, or its fake kernel is correct
            at its sizes.
        result: which of several results it is, as ``[1]``; or ''.
        declared, made: the declared and the actual result; None if not known, or not
            what is wrong.
        what: the kind of error; one of ``VALUE_DEPENDENCIES`` if the result of eager
            itself is no valid reference.
    """

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"said": "difference"}

    operator: Operator
    difference: str
    fake_kernel: str = ""
    in_original: bool = False
    result: str = ""
    declared: TensorFacts | None = None
    made: TensorFacts | None = None
    what: Misbehavior = Misbehavior.FAKE

    @property
    def sentence(self) -> str:
        """The mismatch as the cause of a failure."""
        if self.wrong_part != "fake kernel":
            return f"{self.operator} {self.difference}."
        where = " in the input program" if self.in_original else ""
        return f"Fake-kernel mismatch{where}: {self.operator} {self._placed()}."

    @property
    def is_of_values(self) -> bool:
        """Whether the result depends on more than the values of the arguments."""
        return self.what in VALUE_DEPENDENCIES

    @property
    def wrong_part(self) -> str:
        """The part of the operator that its author must correct."""
        if self.what in UNDECLARED_EFFECTS:
            return "schema"
        return "kernel" if self.is_of_values else "fake kernel"

    @property
    def place(self) -> str:
        """File and line of its fake kernel, without folders; or ''.

        A copy of definitions from a script has other lines than the script.
        """
        folder, _, place = self.fake_kernel.rpartition("/")
        is_copy = folder.endswith("/capture") and "_definitions.py:" in place
        return "" if is_copy else place

    def _placed(self) -> str:
        kernel = f"fake kernel ({self.place})" if self.place else "fake kernel"
        return self.difference.replace("fake kernel", kernel, 1)
