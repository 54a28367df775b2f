"""Planted: twenty bugs of Inductor, each at an operator that models rarely call.

Importing this twice is harmless; eager never sees it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import ir
from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides
from torch._inductor.decomposition import decompositions
from torch._inductor.lowering import lowerings, make_pointwise
from torch._inductor.virtualized import V, ops

aten = torch.ops.aten
Lowering = Callable[..., Any]
CORRECT = dict(lowerings)


def lower_wrongly(operator: Any, lowering: Lowering) -> None:
    """Replace the lowering of an operator, also where Inductor decomposes it."""
    decompositions.pop(operator, None)
    lowerings[operator] = lowering


def refuse(error: type[Exception], text: str) -> Lowering:
    def lowering(*_args: Any, **_kwargs: Any) -> Any:
        raise error(text)

    return lowering


def lower_sinh(x: ir.TensorBox) -> Any:
    """Compute sinh, but sin if the operand is a cosh."""
    operand = V.graph.current_node.args[0]
    is_after_cosh = getattr(operand, "target", None) is aten.cosh.default
    return CORRECT[aten.sin.default if is_after_cosh else aten.sinh.default](x)


def lower_cumsum(x: ir.TensorBox, _dim: int, **_options: Any) -> Any:
    """Forget to sum."""
    return CORRECT[aten.mul.Tensor](x, 1.5)


def lower_flip(x: ir.TensorBox, *_args: Any, **_options: Any) -> Any:
    """Read far behind the last element, and check the bounds."""
    size, load = x.get_size(), x.make_loader()

    def read(index: Any) -> Any:
        behind = ops.index_expr(index[-1] + 10 * size[-1], torch.int64)
        last = ops.indirect_indexing(behind, size[-1], wrap_neg=False)
        return load([*index[:-1], last])

    return ir.Pointwise.create(
        device=x.get_device(), dtype=x.get_dtype(), inner_fn=read, ranges=size
    )


def lower_hypot(x: ir.TensorBox, y: ir.TensorBox) -> Any:
    """Read 2**40 elements behind the operand, where no memory is."""
    computed = CORRECT[aten.hypot.default](x, y).make_loader()
    x.realize()
    size, load = x.get_size(), x.make_loader()

    def read(index: Any) -> Any:
        far = load([*index[:-1], index[-1] + (1 << 40)])
        return ops.add(computed(index), ops.mul(far, ops.constant(0.0, torch.float32)))

    return ir.Pointwise.create(
        device=x.get_device(), dtype=x.get_dtype(), inner_fn=read, ranges=size
    )


def call_missing_function(name: str) -> Any:
    return staticmethod(lambda x: f"planted_missing_{name}({x})")


lower_wrongly(aten.atan.default, CORRECT[aten.sin.default])
lower_wrongly(aten.erfc.default, make_pointwise(lambda x: ops.log(ops.neg(ops.exp(x)))))
lower_wrongly(aten.expm1.default, refuse(RuntimeError, "expm1 is not supported here"))
lower_wrongly(aten.log1p.default, refuse(ValueError, "no rule for this logarithm"))
lower_wrongly(aten.sinh.default, lower_sinh)
lower_wrongly(aten.cumsum.default, lower_cumsum)
lower_wrongly(aten.flip.default, lower_flip)
lower_wrongly(torch.ops.prims.rev.default, lower_flip)
lower_wrongly(aten.trunc.default, make_pointwise(lambda x: ops.ceil(x)))
lower_wrongly(aten.sign.default, make_pointwise(lambda x: ops.abs(x)))
lower_wrongly(aten.tan.default, CORRECT[aten.tanh.default])
lower_wrongly(aten.floor.default, make_pointwise(lambda x: x))
lower_wrongly(aten.lgamma.default, make_pointwise(lambda x: ops.square(x)))
lower_wrongly(aten.atan2.default, lambda x, y: CORRECT[aten.div.Tensor](x, y))
lower_wrongly(aten.triu.default, lambda x, _diagonal=0: x)
lower_wrongly(aten.log2.default, refuse(KeyError, "a table for log2"))
lower_wrongly(aten.hypot.default, lower_hypot)
lower_wrongly(aten.roll.default, lambda x, *_arguments: x)
lower_wrongly(aten.fmod.Tensor, lambda x, _y: CORRECT[aten.neg.default](x))
for overrides in (CppOverrides, CppVecOverrides):
    for name in ("asinh", "acosh"):
        setattr(overrides, name, call_missing_function(name))
