"""Emulate arithmetic between a global ``tl.constexpr`` and a tensor."""

from __future__ import annotations

from typing import Any


def mix_constants() -> None:
    """Let an operation of a global ``tl.constexpr`` and a tensor return a tensor.

    Triton's compiler does the same; its interpreter returns a ``tl.constexpr``.
    """
    import triton.language as tl

    def mixing(operation: Any) -> Any:
        def called(self: Any, other: Any) -> Any:
            made = operation(self, other)
            value = getattr(made, "value", None)
            return value if isinstance(value, tl.tensor) else made

        return called

    for name in _BINARY:
        if operation := vars(tl.constexpr).get(f"__{name}__"):
            setattr(tl.constexpr, f"__{name}__", mixing(operation))


_BINARY = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor"),
    *("lshift", "rshift", "gt", "ge", "lt", "le", "eq", "ne"),
)
