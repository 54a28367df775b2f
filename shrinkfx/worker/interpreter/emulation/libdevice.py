"""Emulate the functions of CUDA's device library with torch.

The library is PTX, which Triton's interpreter cannot run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from shrinkfx.worker.interpreter.findings import Unsupported

_OTHER_NAMES = {
    "cyl_bessel_i0": "i0",
    "cyl_bessel_i1": "i1",
    "div_rn": "div",
    "fabs": "abs",
    "fdim": "_fdim",
    "fdivide": "div",
    "finite": "isfinite",
    "j0": "bessel_j0",
    "j1": "bessel_j1",
    "llrint": "round",
    "mul_rn": "mul",
    "nearbyint": "round",
    "normcdf": "ndtr",
    "normcdfinv": "ndtri",
    "powi": "pow",
    "rcp_rn": "reciprocal",
    "rint": "round",
    "sqrt_rn": "sqrt",
    "y0": "bessel_y0",
    "y1": "bessel_y1",
}


def _half_away_from_zero(x: torch.Tensor) -> torch.Tensor:
    return torch.sign(x) * torch.floor(x.abs() + 0.5)


_BODIES: dict[str, Callable[..., torch.Tensor]] = {
    "cbrt": lambda x: torch.sign(x) * x.abs().pow(1 / 3),
    "exp10": lambda x: torch.pow(10.0, x),
    "fma": lambda x, y, z: x * y + z,
    "_fdim": lambda x, y: torch.clamp(x - y, min=0),
    "llround": _half_away_from_zero,
    "rcbrt": lambda x: torch.sign(x) * x.abs().pow(-1 / 3),
    "round": _half_away_from_zero,
    "sinpi": lambda x: torch.sin(x * torch.pi),
    "cospi": lambda x: torch.cos(x * torch.pi),
}


def give_bodies() -> None:
    """Let interpreted kernels call the device library, for the rest of this process.

    Inductor's kernels call stubs that Triton's compiler replaces by the functions of
    the target. This does the same for CUDA; these functions end in ``_extern``.
    """
    from triton.language.extra import libdevice as stubs
    from triton.language.extra.cuda import libdevice
    from triton.runtime import interpreter

    interpreter.InterpreterBuilder.create_extern_elementwise = _extern
    for name, function in list(vars(libdevice).items()):
        if not name.startswith("_") and hasattr(function, "__triton_builtin__"):
            called = _interpreted(function)
            setattr(libdevice, name, called)
            setattr(stubs, name, called)


def _interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a device function to run under the interpreter's semantics."""
    from triton.runtime.interpreter import interpreter_semantic

    def called(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("_semantic", None)
        return function(*args, **kwargs, _semantic=interpreter_semantic)

    return called


def _extern(
    self: Any,
    library: str,
    path: str,
    symbol: str,
    operands: list[Any],
    result: Any,
    is_pure: bool,
) -> Any:
    """Compute a device function on the interpreter's values with torch."""
    import numpy as np
    from triton.runtime.interpreter import TensorHandle, _get_np_dtype

    function = _body(symbol)
    values = (np.ascontiguousarray(operand.data) for operand in operands)
    made = function(*(torch.from_numpy(v.copy()) for v in values))
    scalar = result.scalar
    return TensorHandle(made.numpy().astype(_get_np_dtype(scalar)), scalar)


def _body(symbol: str) -> Callable[..., torch.Tensor]:
    """Return torch's function for a device function: ``torch.erf`` for ``__nv_erff``.

    Raises:
        Unsupported: no function of torch is known to compute it.
    """
    name = symbol.removeprefix("__nv_").removeprefix("fast_")
    for op in (name, name[:-1]):  # the latter drops float's or double's suffix
        if op in _OTHER_NAMES:
            op = _OTHER_NAMES[op]
            custom = None if op == "round" else _BODIES.get(op)
        else:
            custom = _BODIES.get(op)
        found = custom or getattr(torch, op, None) or getattr(torch.special, op, None)
        if callable(found):
            body: Callable[..., torch.Tensor] = found
            return body
    raise Unsupported(f"the device function {symbol}")
