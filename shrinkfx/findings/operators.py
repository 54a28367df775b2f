"""An operator of the reduced program, and its place in the user's model."""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.program.skeleton import PYTORCH_NAMESPACES
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
        namespace, *rest = self.operator.split(".")
        is_named = bool(rest) and namespace.isidentifier()
        return is_named and namespace not in PYTORCH_NAMESPACES

    def __str__(self) -> str:
        where = ", ".join(filter(None, (self.line, self.module)))
        return f"{self.operator} ({where})" if where else self.operator


def format_fails_alone(operator: Operator) -> str:
    """State that the only operator of the reduced program fails alone."""
    return f"{operator} fails alone: the reduced program has no other operator."
