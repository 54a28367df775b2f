"""From a candidate to an ``ExportedProgram``.

A new graph is written node by node: feeds become placeholders, kept operators
are copied with their metadata, sizes are read again off whatever carries them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from shrinkfx.errors import ShrinkfxError
from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.skeleton import Role
from shrinkfx.worker.load import Inputs, Program
from shrinkfx.worker.values import Scalar, Sizes, Values, bind, evaluate, restride

_WEIGHTS = {
    Role.PARAMETER: InputKind.PARAMETER,
    Role.BUFFER: InputKind.BUFFER,
    Role.CONSTANT: InputKind.CONSTANT_TENSOR,
}
_MUTATIONS = {OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION}


class CannotRebuild(ShrinkfxError):
    """The candidate is no program that can be fed; its message says why."""


@dataclass(frozen=True)
class Rebuilt:
    """A candidate made real, with what it is called with.

    Attributes:
        stale: sizes that depended on data come from inputs now, so the metadata
            is of another program: it must be exported again, as source.
    """

    exported: ExportedProgram
    example: Inputs
    failing: Inputs
    stale: bool = False


def rebuild(program: Program, candidate: Candidate, values: Values) -> Rebuilt:
    """Make a candidate a valid program.

    Raises:
        CannotRebuild: before anything is compiled.
    """
    return _Builder(program, candidate, values).build()


class _Builder:
    def __init__(self, program: Program, candidate: Candidate, values: Values) -> None:
        self._program = program
        self._exported = exported = program.graph
        self._candidate = candidate
        self._values = values
        self._nodes = {n.name: n for n in exported.graph.nodes}
        self._specs = {
            spec.arg.name: spec
            for spec in exported.graph_signature.input_specs
            if hasattr(spec.arg, "name")
        }
        self._graph = fx.Graph()
        self._new: dict[str, fx.Node] = {}
        self._inputs: list[InputSpec] = []
        self._fed: list[str] = []
        self._binders: dict[sympy.Symbol, tuple[fx.Node, int]] = {}
        self._literals: dict[str, Scalar] = {}
        self._stale = False

    def build(self) -> Rebuilt:
        feeds = self._feeds_in_order()
        for name in feeds:
            self._feed(name)
        for name in self._candidate.operators:
            self._copy(name)
        outputs = self._returned()
        self._graph.output(tuple(self._new[name] for _, name in outputs))
        return self._finish(outputs)

    def _feeds_in_order(self) -> list[str]:
        """Weights first, as every exported program has them, then inputs."""
        feeds = [n for n in self._candidate.feeds if not self._is_literal(n)]
        skeleton = self._candidate.skeleton
        inputs = [n for n in feeds if skeleton.node(n).role not in _WEIGHTS]
        for name in inputs:
            if reason := self._values.why_not(name):
                raise CannotRebuild(reason)
        weights = [
            n for role in _WEIGHTS for n in feeds if skeleton.node(n).role is role
        ]
        return weights + inputs + self._carriers(inputs)

    def _is_literal(self, name: str) -> bool:
        """Take a number read off data as the number that it was."""
        if self._candidate.skeleton.node(name).value is not None:
            return False
        number = self._values.scalar(name)
        if number is not None:
            self._literals[name] = number
            self._stale = True
        return number is not None

    def _carriers(self, inputs: Iterable[str]) -> list[str]:
        """Choose program inputs that bring in the symbols nothing else binds.

        A symbol that no input has as a size of its own gets a fresh one when the
        program is exported again; a size computed from it becomes a literal.
        """
        bound: set[Any] = set()
        needed: set[Any] = set()
        for name in inputs:
            value = self._nodes[name].meta.get("val")
            if not isinstance(value, torch.Tensor):
                raise CannotRebuild(f"{name} is a {type(value).__name__}, not a tensor")
            bound |= set(_plain_dims(value)) - free_unbacked_symbols(value)
            needed |= _symbols([*value.shape, *value.stride()])
        for name in self._candidate.operators:
            for size in self._sizes_of(name):
                symbols = _symbols([self._nodes[size].meta["val"]])
                if self._is_within_reach(size):
                    continue
                if all(s in bound or self._find_carrier(s) for s in symbols):
                    needed |= symbols
                elif not self._is_literal(size):
                    raise CannotRebuild(f"nothing tells the size {size}")
        carriers: list[str] = []
        for symbol in sorted(needed - bound, key=str):
            carrier = self._find_carrier(symbol)
            self._stale |= carrier is None
            if carrier and carrier not in carriers:
                carriers.append(carrier)
        return carriers

    def _find_carrier(self, symbol: sympy.Symbol) -> str | None:
        for name in self._candidate.skeleton.inputs:
            value = self._nodes[name].meta.get("val")
            if isinstance(value, torch.Tensor) and symbol in _plain_dims(value):
                return name
        return None

    def _sizes_of(self, name: str) -> list[str]:
        skeleton = self._candidate.skeleton
        return [
            v
            for v in self._candidate.operands(name)
            if skeleton.node(v).role is Role.SIZE
        ]

    def _is_within_reach(self, size: str) -> bool:
        """Tell whether a size can be read off kept values and feeds."""
        skeleton = self._candidate.skeleton
        operands = skeleton.node(size).operands
        for name in operands:
            if skeleton.node(name).role is Role.SIZE:
                if not self._is_within_reach(name):
                    return False
            elif (
                skeleton.producer(name) not in self._candidate.keep
                and name not in self._candidate.feeds
                and name not in self._literals
            ):
                return False
        return bool(operands)

    def _feed(self, name: str) -> None:
        old = self._nodes[name]
        if not isinstance(old.meta.get("val"), torch.Tensor):
            raise CannotRebuild(f"{name} is no tensor and cannot be fed from outside")
        node = self._graph.placeholder(name)
        node.meta = dict(old.meta)
        self._new[name] = node
        role = self._candidate.skeleton.node(name).role
        spec = self._specs.get(name)
        if role in _WEIGHTS and spec is not None:
            kind, target, persistent = spec.kind, spec.target, spec.persistent
        else:
            kind, target, persistent = InputKind.USER_INPUT, None, None
            self._fed.append(name)
            for dim, symbol in enumerate(_dims(node.meta["val"])):
                if isinstance(symbol, sympy.Symbol):
                    self._binders.setdefault(symbol, (node, dim))
        argument = TensorArgument(name=node.name)
        self._inputs.append(InputSpec(kind, argument, target, persistent))

    def _copy(self, name: str) -> None:
        """Copy an operator, its getitems, and what it carries along."""
        old = self._nodes[name]
        node = self._graph.node_copy(old, self._operand)
        self._new[name] = node
        for projection in self._candidate.skeleton.projections(name):
            self._copy(projection)

    def _operand(self, old: fx.Node) -> Any:
        name = self._candidate.resolve(old.name)
        if name in self._literals:
            return self._literals[name]
        if name not in self._new:
            node = self._nodes[name]
            if node.op == "get_attr":
                self._new[name] = self._graph.node_copy(node)
            elif self._candidate.skeleton.node(name).role is Role.SIZE:
                self._new[name] = self._size(name)
            else:
                raise CannotRebuild(f"{name} is neither kept nor fed")
        return self._new[name]

    def _size(self, name: str) -> fx.Node:
        if self._is_within_reach(name):
            return self._graph.node_copy(self._nodes[name], self._operand)
        value = self._nodes[name].meta["val"]
        if not isinstance(value, torch.SymInt):
            raise CannotRebuild(f"{name} is a {type(value).__name__}")
        found = self._compute(value.node.expr)
        if not isinstance(found, fx.Node):
            raise CannotRebuild(f"{name} is a constant")
        return found

    def _compute(self, expression: sympy.Expr) -> fx.Node | int:
        """Write the operators that compute a size from the inputs' dims."""
        if expression.is_Integer:
            return int(expression)
        if isinstance(expression, sympy.Symbol):
            if expression not in self._binders:
                raise CannotRebuild(f"no input has the size {expression}")
            node, dim = self._binders[expression]
            size = torch.ops.aten.sym_size.int
            return self._call(size, node, dim, value=node.meta["val"].shape[dim])
        function = _ARITHMETIC.get(type(expression).__name__)
        if function is None:
            raise CannotRebuild(f"a size of the form {expression} cannot be computed")
        result, *rest = [self._compute(part) for part in expression.args]
        for part in rest:
            value = function(_val(result), _val(part))
            result = self._call(function, result, part, value=value)
        return result

    def _call(self, function: Any, *args: Any, value: Any) -> fx.Node:
        node = self._graph.call_function(function, args)
        node.meta["val"] = value
        return node

    def _returned(self) -> list[tuple[OutputSpec, str]]:
        """List what the program returns; mutations come first, as in exports."""
        skeleton, candidate = self._candidate.skeleton, self._candidate
        chosen: dict[str, OutputSpec] = {}
        if candidate.outputs is Outputs.ORIGINAL:
            chosen = self._original_outputs()
        for sink in candidate.sinks:
            for name in skeleton.values(sink):
                chosen.setdefault(name, _user_output(self._new[name]))
        if not chosen:
            raise CannotRebuild("it would return nothing")
        pairs = [(spec, name) for name, spec in chosen.items()]
        return sorted(pairs, key=lambda pair: pair[0].kind not in _MUTATIONS)

    def _original_outputs(self) -> dict[str, OutputSpec]:
        chosen: dict[str, OutputSpec] = {}
        kept_targets = {spec.target for spec in self._inputs if spec.target}
        for spec in self._exported.graph_signature.output_specs:
            name = getattr(spec.arg, "name", None)
            if name is None or name not in self._new or not _is_tensor(self._new[name]):
                continue
            if self._candidate.skeleton.producer(name) not in self._candidate.keep:
                continue
            new = self._new[name]
            if spec.kind in _MUTATIONS and spec.target in kept_targets:
                argument = TensorArgument(name=new.name)
                chosen[name] = OutputSpec(spec.kind, argument, spec.target)
            else:
                chosen.setdefault(name, _user_output(new))
        return chosen

    def _finish(self, outputs: list[tuple[OutputSpec, str]]) -> Rebuilt:
        example = self._arguments(self._values.example, self._program.example)
        failing = self._arguments(self._values.failing, self._program.failing)
        signature = ExportGraphSignature(self._inputs, [spec for spec, _ in outputs])
        root = fx.GraphModule(self._exported.graph_module, self._graph)
        root.meta.update(self._exported.graph_module.meta)
        user_outputs = [s for s, _ in outputs if s.kind is OutputKind.USER_OUTPUT]
        call = ModuleCallSignature(
            inputs=[s.arg for s in self._inputs if s.kind is InputKind.USER_INPUT],
            outputs=[s.arg for s in user_outputs],
            in_spec=pytree.tree_structure((example, {})),
            out_spec=pytree.tree_structure(tuple(0 for _ in user_outputs)),
        )
        targets = {spec.target for spec in self._inputs}
        old = self._exported
        rebuilt = ExportedProgram(
            root=root,
            graph=root.graph,
            graph_signature=signature,
            state_dict={k: v for k, v in old.state_dict.items() if k in targets},
            range_constraints=self._ranges(),
            module_call_graph=[ModuleCallEntry("", call)],
            example_inputs=(example, {}),
            constants={k: v for k, v in old.constants.items() if k in targets},
            verifiers=old.verifiers,
        )
        if not self._stale:
            rebuilt.validate()
        inputs = Inputs(example, {}), Inputs(failing, {})
        return Rebuilt(rebuilt, *inputs, stale=self._stale)

    def _arguments(
        self, value: Callable[[str], torch.Tensor], inputs: Inputs
    ) -> tuple[torch.Tensor, ...]:
        """Fetch what the inputs held in one of the original's runs."""
        flat = self._exported._graph_module_flat_inputs(inputs.args, inputs.kwargs)
        sizes = bind(self._exported, flat)
        return tuple(self._fit(name, value(name), sizes) for name in self._fed)

    def _fit(self, name: str, value: torch.Tensor, sizes: Sizes) -> torch.Tensor:
        """Lay a cut value out as the compiler was told.

        Real strides may differ from the metadata (some operators' fake kernels
        guess); with the value's own strides the candidate would have a bad
        input, and fail for another reason than the original.
        """
        if self._nodes[name].op == "placeholder":
            return value
        fake = self._nodes[name].meta["val"]
        stride = []
        for step, own in zip(fake.stride(), value.stride(), strict=True):
            said = evaluate(step, sizes)
            stride.append(own if said is None else said)
        differs = any(
            a != b and size > 1
            for a, b, size in zip(stride, value.stride(), value.shape, strict=True)
        )
        return restride(value, stride) if differs else value

    def _ranges(self) -> dict[Any, Any]:
        """Keep the ranges of the symbols that are still there."""
        used: set[Any] = set()
        for node in self._graph.nodes:
            for value in pytree.tree_leaves(node.meta.get("val")):
                if isinstance(value, torch.Tensor):
                    used |= _symbols([*value.shape, *value.stride()])
                else:
                    used |= _symbols([value])
        ranges = self._exported.range_constraints
        return {s: r for s, r in ranges.items() if s in used}


_ARITHMETIC = {
    "Add": operator.add,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "Pow": operator.pow,
    "PowByNatural": operator.pow,
}


def _val(part: fx.Node | int) -> Any:
    return part.meta["val"] if isinstance(part, fx.Node) else part


def _dims(value: torch.Tensor) -> list[Any]:
    return [s.node.expr if isinstance(s, torch.SymInt) else s for s in value.shape]


def _plain_dims(value: torch.Tensor) -> list[sympy.Symbol]:
    return [s for s in _dims(value) if isinstance(s, sympy.Symbol)]


def _symbols(sizes: Iterable[Any]) -> set[Any]:
    found: set[Any] = set()
    for size in sizes:
        if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            found |= size.node.expr.free_symbols
    return found


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _user_output(node: fx.Node) -> OutputSpec:
    argument = TensorArgument(name=node.name)
    return OutputSpec(OutputKind.USER_OUTPUT, argument, None)
