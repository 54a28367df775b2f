"""An operator that is left of the program, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.program.namespaces import PYTORCHS
from shrinkfx.protocol.record import Message


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

    @property
    def is_custom(self) -> bool:
        """Tell whether it is not PyTorch's own."""
        namespace, *rest = self.operator.split(".")
        return bool(rest) and namespace.isidentifier() and namespace not in PYTORCHS

    def __str__(self) -> str:
        where = ", ".join(filter(None, (self.line, self.module)))
        return f"{self.operator} ({where})" if where else self.operator


def fails_alone(operator: Operator) -> str:
    """Say of the only operator of a minimum that it fails without another."""
    return f"{operator} fails alone: the reduced program has no other operator."
