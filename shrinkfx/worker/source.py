"""From an ``ExportedProgram`` to Python that a PyTorch engineer can read."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sympy
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from shrinkfx.errors import ShrinkfxError
from shrinkfx.worker.literals import Written, write_tensor
from shrinkfx.worker.load import MUTATIONS
from shrinkfx.worker.rebuild import Rebuilt


class Unprintable(ShrinkfxError):
    """The program holds something that has no form as plain source."""


@dataclass(frozen=True)
class Weight:
    """A parameter, buffer or constant of the printed module."""

    attribute: str
    kind: str
    text: Written


@dataclass(frozen=True)
class Input:
    """One argument of ``forward``; ``failing`` is what the run is called with."""

    name: str
    example: Written
    failing: Written | None


@dataclass(frozen=True)
class Printed:
    """A program in pieces; the report room puts them together.

    Attributes:
        branches: source of the classes that higher-order operators call.
        members: attribute -> class, for each of those.
        body: statements of ``forward``, the return included.
        dims: statements that declare the dynamic dims.
        dynamic_shapes: an expression over ``dims``, or 'None'.
    """

    weights: tuple[Weight, ...]
    inputs: tuple[Input, ...]
    branches: tuple[str, ...]
    members: dict[str, str]
    body: tuple[str, ...]
    dims: tuple[str, ...]
    dynamic_shapes: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def print_program(built: Rebuilt) -> Printed:
    """Print a rebuilt candidate.

    Raises:
        Unprintable: it holds an argument or an operator without a source form.
    """
    exported = built.exported
    names, weights = _weights(exported)
    graph = _GraphPrinter(exported.graph_module, names)
    body = graph.body(_written_back(exported))
    dims, shapes = _dynamic_shapes(exported)
    return Printed(
        weights=weights,
        inputs=_inputs(built),
        branches=tuple(graph.branches),
        members=graph.members,
        body=tuple(body),
        dims=tuple(dims),
        dynamic_shapes=shapes,
    )


def run_source(printed: Printed, built: Rebuilt) -> ExportedProgram:
    """Export the printed source again, with the same weights and inputs."""
    scope: dict[str, Any] = {"torch": torch, "operator": operator, "math": math}
    names = ", ".join(["self", *(i.name for i in printed.inputs)])
    body = "\n        ".join(printed.body)
    source = "\n\n".join(
        [
            *printed.branches,
            f"class Repro(torch.nn.Module):\n    def forward({names}):\n        {body}",
            "\n".join(printed.dims),
            f"dynamic_shapes = {printed.dynamic_shapes}",
        ]
    )
    exec(source, scope)
    module = scope["Repro"]()
    for attribute, kind in printed.members.items():
        setattr(module, attribute, scope[kind]())
    _set_weights(module, built.exported)
    return torch.export.export(
        module.eval(), built.example.args, dynamic_shapes=scope["dynamic_shapes"]
    )


def long_values(built: Rebuilt) -> dict[str, Any]:
    """Collect what may be too long for a script, by the names that it uses."""
    names = [str(name) for name in built.exported.graph_signature.user_inputs]
    values: dict[str, Any] = {"failing": built.failing.args}
    for prefix, args in (("example", built.example), ("failing", built.failing)):
        values |= {f"{prefix}_{n}": v for n, v in zip(names, args.args, strict=True)}
    for spec in built.exported.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT and spec.target is not None:
            value = _weight_value(built.exported, spec.target)
            values[f"weight_{_attribute(spec.target)}"] = value
    return values


def _set_weights(module: torch.nn.Module, exported: ExportedProgram) -> None:
    for spec in exported.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT or spec.target is None:
            continue
        value = _weight_value(exported, spec.target)
        attribute = _attribute(spec.target)
        if spec.kind is InputKind.PARAMETER:
            module.register_parameter(attribute, torch.nn.Parameter(value, False))
        elif spec.kind is InputKind.BUFFER:
            module.register_buffer(attribute, value, bool(spec.persistent))
        else:
            setattr(module, attribute, value)


def _weight_value(exported: ExportedProgram, target: str) -> torch.Tensor:
    store = exported.state_dict if target in exported.state_dict else exported.constants
    value = store[target]
    if not isinstance(value, torch.Tensor):
        raise Unprintable(f"{target} is a {type(value).__name__}")
    return value.detach()


def _attribute(target: str) -> str:
    return re.sub(r"\W", "_", target)


def _weights(exported: ExportedProgram) -> tuple[dict[str, str], tuple[Weight, ...]]:
    """Name each weight's placeholder ``self.attribute`` and write its values."""
    names: dict[str, str] = {}
    weights: list[Weight] = []
    for spec in exported.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            continue
        if spec.target is None or not hasattr(spec.arg, "name"):
            raise Unprintable(f"an input of kind {spec.kind.name}")
        attribute = _attribute(spec.target)
        names[spec.arg.name] = f"self.{attribute}"
        text = write_tensor(_weight_value(exported, spec.target), len(weights))
        kind = spec.kind.name.lower().removesuffix("_tensor")
        if spec.kind is InputKind.BUFFER and not spec.persistent:
            kind = "non_persistent_buffer"
        weights.append(Weight(attribute, kind, text))
    return names, tuple(weights)


def _written_back(exported: ExportedProgram) -> list[str]:
    """Name what the first outputs are written back into: buffers and inputs."""
    return [
        f"self.{_attribute(spec.target)}"
        if spec.kind is OutputKind.BUFFER_MUTATION
        else spec.target
        for spec in exported.graph_signature.output_specs
        if spec.kind in MUTATIONS and spec.target is not None
    ]


def _inputs(built: Rebuilt) -> tuple[Input, ...]:
    names = built.exported.graph_signature.user_inputs
    two_sets = any(
        e is not f and not _same(e, f)
        for e, f in zip(built.example.args, built.failing.args, strict=True)
    )
    inputs = []
    for position, name in enumerate(names):
        example = write_tensor(built.example.args[position], 100 + position)
        failing = write_tensor(built.failing.args[position], 200 + position)
        inputs.append(Input(str(name), example, failing if two_sets else None))
    return tuple(inputs)


def _same(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor):
        return bool(a == b)
    same_type = a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride()
    return same_type and bool(
        torch.equal(a, b) or torch.equal(a.nan_to_num(), b.nan_to_num())
    )


class _GraphPrinter:
    """Print one graph, and the graphs inside it as classes of their own."""

    def __init__(
        self, module: fx.GraphModule, names: dict[str, str], prefix: str = ""
    ) -> None:
        self._module = module
        self._names = names
        self._prefix = prefix
        self.branches: list[str] = []
        self.members: dict[str, str] = {}

    def body(self, written_back: Sequence[str] = ()) -> list[str]:
        """Print the statements.

        Args:
            written_back: what the first outputs are copied into.
        """
        lines = []
        for node in self._module.graph.nodes:
            if node.op == "get_attr":
                self._names[node.name] = self._member(str(node.target))
            elif node.op == "call_function":
                lines.append(f"{node.name} = {self._call(node)}")
            elif node.op == "output":
                values = node.args[0]
                for into, value in zip(written_back, values, strict=False):
                    lines.append(f"{into}.copy_({self._literal(value)})")
                returned = values[len(written_back) :] if written_back else values
                lines.append(f"return {self._literal(returned)}")
            elif node.op != "placeholder":
                raise Unprintable(f"a node of kind {node.op}")
        return lines

    def _member(self, target: str) -> str:
        inner = getattr(self._module, target)
        if not isinstance(inner, fx.GraphModule):
            raise Unprintable(f"the attribute {target}")
        parts = re.split(r"\W|_", target)
        name = self._prefix + "".join(part.capitalize() for part in parts)
        if self.members.get(target) != name:
            printer = _GraphPrinter(inner, {}, prefix=name)
            self.members[target] = name
            self.branches += [*_class(name, inner, printer)]
        return f"self.{target}"

    def _call(self, node: fx.Node) -> str:
        target = node.target
        args = [self._literal(a) for a in node.args]
        if target is operator.getitem:
            return f"{args[0]}[{args[1]}]"
        if target is torch.ops.aten.sym_size.int:
            return f"{args[0]}.shape[{args[1]}]"
        if target in _INFIX:
            return f" {_INFIX[target]} ".join(args)
        # All of them, though most are defaults: pattern matchers look at them.
        args += [f"{k}={self._literal(v)}" for k, v in node.kwargs.items()]
        return f"{_callee(target)}({', '.join(args)})"

    def _literal(self, value: Any) -> str:
        match value:
            case fx.Node():
                return self._names.get(value.name, value.name)
            case torch.device():
                return f'torch.device("{value}")'
            case float() if not math.isfinite(value):
                return f'float("{value}")'
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


def _class(name: str, module: fx.GraphModule, printer: _GraphPrinter) -> list[str]:
    arguments = [n.name for n in module.graph.nodes if n.op == "placeholder"]
    body = "\n        ".join(printer.body())
    setup = "".join(
        f"        self.{attribute} = {kind}()\n"
        for attribute, kind in printer.members.items()
    )
    init = f"    def __init__(self):\n        super().__init__()\n{setup}\n"
    forward = f"    def forward({', '.join(['self', *arguments])}):\n        {body}"
    head = f"class {name}(torch.nn.Module):\n"
    return [*printer.branches, head + (init if setup else "") + forward]


def _callee(target: Callable[..., Any] | str) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return f"torch.ops.{target}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        known = {"cond": "torch.cond", "while_loop": "torch.while_loop"}
        name = target.name()
        if name not in known:
            raise Unprintable(f"the higher-order operator {name}")
        return known[name]
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


def _dynamic_shapes(exported: ExportedProgram) -> tuple[list[str], str]:
    """State the dynamic dims: named where they are plain, left to export where
    they are computed from others."""
    names = set(exported.graph_signature.user_inputs)
    symbols: dict[str, str] = {}
    specs = []
    for node in exported.graph.nodes:
        if node.op != "placeholder" or node.name not in names:
            continue
        value = node.meta.get("val")
        dims = []
        for dim, size in enumerate(getattr(value, "shape", ())):
            if isinstance(size, torch.SymInt):
                dims.append(f"{dim}: {_dim(size, exported, symbols)}")
        specs.append("{" + ", ".join(dims) + "}" if dims else "None")
    if all(spec == "None" for spec in specs):
        return [], "None"
    comma = "," if len(specs) == 1 else ""
    return list(symbols.values()), f"({', '.join(specs)}{comma})"


def _dim(size: torch.SymInt, exported: ExportedProgram, symbols: dict[str, str]) -> str:
    expression = size.node.expr
    if not isinstance(expression, sympy.Symbol) or free_unbacked_symbols(size):
        return "torch.export.Dim.AUTO"
    name = str(expression)
    if name not in symbols:
        bounds = [f'"{name}"']
        allowed = exported.range_constraints.get(expression)
        if allowed is not None:
            bounds += [f"min={int(allowed.lower)}"] if allowed.lower > 0 else []
            finite = getattr(allowed.upper, "is_Integer", False)
            bounds += [f"max={int(allowed.upper)}"] if finite else []
        symbols[name] = f"{name} = torch.export.Dim({', '.join(bounds)})"
    return name
