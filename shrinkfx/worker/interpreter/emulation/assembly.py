"""Emulate the inline assembly that Inductor writes into kernels.

PyTorch writes two instructions for ``atan`` (``_inductor/codegen/triton.py``, since
2.13), and one for ``cvt_e8m0_rceil`` (``_inductor/lowering.py``). Each text is one
instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shrinkfx.worker.interpreter.findings import Unsupported


def run_assembly() -> None:
    """Let interpreted kernels run these instructions, for the rest of this process."""
    from triton.language.extra import cuda
    from triton.runtime import interpreter

    interpreter.InterpreterBuilder.create_inline_asm = _inline
    # Dependent launches run one after the other here, so they need not wait.
    for name in ("gdc_wait", "gdc_launch_dependents"):
        setattr(cuda, name, lambda: None)


class _Results:
    """The result of an instruction, with the interface of Triton's builder."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def get_result(self, _: int) -> Any:
        return self._handle


def _inline(
    self: Any,
    text: str,
    constraints: str,
    operands: list[Any],
    kinds: list[Any],
    is_pure: bool,
    pack: int,
) -> _Results:
    """Compute one instruction on the interpreter's values with NumPy.

    Raises:
        Unsupported: the text is none of the instructions that Inductor writes.
    """
    from triton.runtime.interpreter import TensorHandle, _get_np_dtype

    instruction = " ".join(text.split())
    body = _INSTRUCTIONS.get(instruction)
    if body is None or len(kinds) != 1 or pack != 1:
        raise Unsupported(f"inline assembly that Inductor does not write: {text!r}")
    scalar = kinds[0].scalar
    made = body(*(operand.data for operand in operands))
    return _Results(TensorHandle(made.astype(_get_np_dtype(scalar)), scalar))


def _fma(a: Any, b: Any, c: Any) -> Any:
    """Multiply and add float32 numbers, in float64, where the product is exact."""
    import numpy as np

    return (a.astype(np.float64) * b + c).astype(np.float32)


def _reciprocal(x: Any) -> Any:
    """Divide 1 by float32 numbers; subnormal inputs and results are flushed to zero."""
    import numpy as np

    tiny = np.float32(np.finfo(np.float32).tiny)

    def flushed(value: Any) -> Any:
        return np.where(np.abs(value) < tiny, np.copysign(np.float32(0), value), value)

    return flushed(np.float32(1) / flushed(x))


def _exponent(x: Any) -> Any:
    """Round float32 numbers up to powers of two, and return the biased exponents."""
    import numpy as np

    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    above = (bits >> 23 & 0xFF) + (bits & 0x7FFFFF != 0)
    return np.minimum(above, 254).astype(np.uint16)


_INSTRUCTIONS: dict[str, Callable[..., Any]] = {
    "fma.rn.f32 $0, $1, $2, $3;": _fma,
    "rcp.approx.ftz.f32 $0, $1;": _reciprocal,
    "cvt.rp.satfinite.ue8m0x2.f32 $0, 0.0, $1;": _exponent,
}
