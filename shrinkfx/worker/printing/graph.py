"""Source code for a graph and its tensors."""

from __future__ import annotations

import base64
import math
import operator
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from shrinkfx.errors import ShrinkfxError
from shrinkfx.program.listing.tensor_specs import (
    Seeded,
    TensorSpec,
    write_number,
    write_tensor_spec,
)
from shrinkfx.protocol.source import Expression
from shrinkfx.worker.eager.intermediates import span
from shrinkfx.worker.origin import origin_of
from shrinkfx.worker.private_api import graph_api


class Unprintable(ShrinkfxError):
    """The program contains something that has no source form."""


class GraphPrinter:
    """Prints a graph as statements, and its subgraphs as classes.

    Args:
        names: expressions that replace nodes, by node name.
        device: the device that replaces all devices in the graph; '' keeps them.
        prefix: the prefix of class names.
    """

    def __init__(
        self,
        module: fx.GraphModule,
        names: dict[str, str],
        device: str = "",
        prefix: str = "",
    ) -> None:
        self._module = module
        self._names = names
        self._device = device
        self._prefix = prefix
        self.branches: list[str] = []
        self.members: dict[str, str] = {}

    def body(self, written_back: Sequence[str] = ()) -> list[str]:
        """Print the statements.

        Args:
            written_back: expressions that the first outputs are copied into.
        """
        lines = []
        for node in self._module.graph.nodes:
            if node.op == "get_attr":
                self._names[node.name] = self._member(str(node.target))
            elif node.target is operator.getitem and not node.users:
                continue  # export adds unused ones, too
            elif node.op == "call_function":
                origin = origin_of(node)
                where = f"  # {origin}" if origin else ""
                lines.append(f"{node.name} = {self._call(node)}{where}")
            elif node.op == "output":
                lines += self._output(node.args[0], written_back)
            elif node.op != "placeholder":
                raise Unprintable(f"a node of kind {node.op}")
        return lines

    def _output(self, values: Any, written_back: Sequence[str]) -> list[str]:
        if not written_back:  # a subgraph may return a single value
            return [f"return {self._literal(values)}"]
        copies = [
            f"{into}.copy_({self._literal(value)})"
            for into, value in zip(written_back, values, strict=False)
        ]
        return [*copies, f"return {self._literal(values[len(written_back) :])}"]

    def _member(self, target: str) -> str:
        inner = getattr(self._module, target)
        if not isinstance(inner, fx.GraphModule):
            raise Unprintable(f"the attribute {target}")
        parts = re.split(r"\W|_", target)
        name = self._prefix + "".join(part.capitalize() for part in parts)
        if self.members.get(target) != name:
            printer = GraphPrinter(inner, {}, self._device, prefix=name)
            self.members[target] = name
            self.branches += [*_class(name, inner, printer)]
        # The tracing of a body cannot follow the call of a module.
        return f"self.{target}.forward" if self._prefix else f"self.{target}"

    def _call(self, node: fx.Node) -> str:
        target = node.target
        args = [self._literal(a) for a in node.args]
        if target is operator.getitem:
            return f"{args[0]}[{args[1]}]"
        if target is torch.ops.aten.sym_size.int:
            return f"{args[0]}.shape[{args[1]}]"
        if target in _INFIX:
            return f" {_INFIX[target]} ".join(args)
        if target is torch.ops.higher_order.call_torchbind:
            named = [f"{k}={self._literal(v)}" for k, v in node.kwargs.items()]
            return f"{args[0]}.{node.args[1]}({', '.join([*args[2:], *named])})"
        if target is torch.ops.higher_order.flex_attention and args[-2:] == ["()"] * 2:
            del args[-2:]  # torch.compile rejects them
        # Keep default values, because pattern matchers look at them.
        args += [f"{k}={self._literal(v)}" for k, v in node.kwargs.items()]
        return f"{callee(target)}({', '.join(args)})"

    def _literal(self, value: Any) -> str:
        match value:
            case fx.Node():
                return self._names.get(value.name, value.name)
            case torch.device():
                return f'torch.device("{self._device or value}")'
            case float() if not math.isfinite(value):
                return f'float("{value}")'
            case graph_api.OpOverload():
                return f"torch.ops.{value}"
            case torch.dtype() | torch.layout() | torch.memory_format():
                return str(value)
            case None | bool() | int() | float() | complex() | str():
                return repr(value)
            case tuple():
                items = [self._literal(v) for v in value]
                return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
            case list():
                return f"[{', '.join(self._literal(v) for v in value)}]"
            case dict():
                items = [f"{k!r}: {self._literal(v)}" for k, v in value.items()]
                return "{" + ", ".join(items) + "}"
            case slice():
                parts = (value.start, value.stop, value.step)
                return f"slice({', '.join(self._literal(p) for p in parts)})"
        raise Unprintable(f"an argument of type {type(value).__name__}")


def _class(name: str, module: fx.GraphModule, printer: GraphPrinter) -> list[str]:
    arguments = [n.name for n in module.graph.nodes if n.op == "placeholder"]
    body = printer.body()
    code = write_class(name, arguments, printer.members, body)
    return [*printer.branches, code]


def write_class(
    name: str, arguments: Sequence[str], members: Mapping[str, str], body: Sequence[str]
) -> str:
    """Print the class of a subgraph."""
    lines = "\n        ".join(body)
    setup = "".join(
        f"        self.{attribute} = {kind}()\n" for attribute, kind in members.items()
    )
    init = f"    def __init__(self):\n        super().__init__()\n{setup}\n"
    forward = f"    def forward({', '.join(['self', *arguments])}):\n        {lines}"
    head = f"class {name}(torch.nn.Module):\n"
    return head + (init if setup else "") + forward


def callee(target: Callable[..., Any] | str) -> str:
    """Print the function that a node calls.

    Raises:
        Unprintable: the function has no name that a script can use.
    """
    if isinstance(target, graph_api.OpOverload):
        return f"torch.ops.{target}"
    if isinstance(target, graph_api.HigherOrderOperator):
        name = target.name()
        # torch.cond accepts a repeated operand, the bare operator does not.
        return "torch.cond" if name == "cond" else f"torch.ops.higher_order.{name}"
    module = getattr(target, "__module__", "")
    name = getattr(target, "__name__", "")
    if module == "_operator":
        return f"operator.{name}"
    if module in ("math", "torch"):
        return f"{module}.{name}"
    raise Unprintable(f"the function {target}")


_INFIX = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.truediv: "/",
    operator.pow: "**",
    operator.eq: "==",
    operator.ne: "!=",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
}


_SMALL = 64
"""Maximal number of elements to write out one by one."""

_TINY = 8
"""Up to this many elements, a list is as short as a seeded expression."""

_TEXT_BYTES = 16 * 1024
"""Maximal compressed text of a tensor in a script that fits into an issue."""

_WORTH_PACKING_BYTES = 512 * 1024
"""Tensors above this size are not packed: even zeros would not fit."""


def write_tensor(value: Any, device: str = "") -> Expression:
    """Print a tensor, or another value.

    Args:
        device: the target device, if it differs from the tensor's.
    """
    if not isinstance(value, torch.Tensor):
        return Expression(repr(value), repr(value))
    device = device or str(value.device)
    view = f'.to("{device}")' if device != "cpu" else ""
    flat = value.detach()
    if not flat.is_contiguous():
        # Print the memory, then a view of it, so that strides are exact.
        shape, stride = tuple(flat.shape), tuple(flat.stride())
        view += f".as_strided({shape}, {stride})"
        flat = flat.as_strided((span(flat),), (1,))
    flat = flat.cpu().contiguous()
    # A contiguous tensor may have any stride in a dim of size 1.
    flat = flat.as_strided(flat.shape, torch.empty(flat.shape, device="meta").stride())
    exact = _short(flat) or _listed(flat) or _packed(flat)
    seeded = _short(flat) or (exact if flat.numel() <= _TINY else _seeded(flat))
    return Expression(seeded + view, exact + view if exact else "")


def _short(tensor: torch.Tensor) -> str:
    """Print an empty or constant tensor or a range; return '' for others."""
    shape, dtype = tuple(tensor.shape), tensor.dtype
    if tensor.numel() == 0:
        return f"torch.empty({shape}, dtype={dtype})"
    flat = tensor.flatten()
    # float16 and float8 have few operators; equal bytes are equal values.
    raw = flat.view(torch.uint8).reshape(flat.numel(), -1)
    if not dtype.is_complex and bool((raw == raw[0]).all()):
        return f"torch.full({shape}, {write_number(flat[0].item())}, dtype={dtype})"
    if dtype == torch.int64 and torch.equal(flat, torch.arange(flat.numel())):
        view = "" if len(shape) == 1 else f".reshape{shape}"
        return f"torch.arange({flat.numel()}){view}"
    return ""


def _listed(tensor: torch.Tensor) -> str:
    if tensor.numel() > _SMALL:
        return ""
    return f"torch.tensor({_nested(tensor.tolist())}, dtype={tensor.dtype})"


def _nested(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_nested(v) for v in value)}]"
    return write_number(value)


def _packed(tensor: torch.Tensor) -> str:
    flat = tensor.reshape(-1).view(torch.uint8)
    if flat.numel() > _WORTH_PACKING_BYTES:
        return ""
    raw = bytes(flat.tolist())
    text = base64.b85encode(zlib.compress(raw, 9)).decode()
    if len(text) > _TEXT_BYTES:
        return ""
    return f'unpack("{text}", {tensor.dtype}, {tuple(tensor.shape)})'


def unpack(text: str, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """Unpack a packed tensor, as a repro does."""
    raw = bytearray(zlib.decompress(base64.b85decode(text)))
    return torch.frombuffer(raw, dtype=dtype).reshape(shape)


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements as bytes, because not every dtype has arithmetic."""
    # Copy, because bytes cannot view one element with any stride.
    copied = tensor.resolve_conj().clone(memory_format=torch.contiguous_format)
    return copied.flatten().view(torch.uint8)


_FEW_OPERATORS = (torch.uint16, torch.uint32, torch.uint64)
"""Dtypes without ``aminmax``."""


def ends(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the smallest and the largest element of an integer tensor."""
    if tensor.dtype in _FEW_OPERATORS:
        values = tensor.flatten().tolist()
        return min(values), max(values)
    low, high = torch.aminmax(tensor)
    return int(low), int(high)


def draw_alike(value: torch.Tensor) -> Seeded:
    """Return a seeded initializer of the same range."""
    if value.dtype == torch.bool:
        return Seeded("randint", 0, 2)
    if value.is_floating_point():
        positive = bool((value.to(torch.float32) >= 0).all())
        return Seeded("rand" if positive else "randn")
    if value.is_complex():
        return Seeded("randn")
    low, high = ends(value)
    return Seeded("randint", low, high + 1)


def _seeded(tensor: torch.Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    spec = TensorSpec(tuple(tensor.shape), dtype, draw_alike(tensor))
    return write_tensor_spec(spec)
