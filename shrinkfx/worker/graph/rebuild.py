"""Conversion of a candidate to an ``ExportedProgram``.

A new graph is written node by node: cut values become placeholders, the remaining
operators are copied with their metadata, and sizes are read from values that have them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    CustomObjArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.skeleton import Role
from shrinkfx.worker.eager.intermediates import EagerValues, restride
from shrinkfx.worker.graph.describe import tensor_type
from shrinkfx.worker.graph.symbols import (
    CannotRebuild,
    SpecializedSizes,
    Symbols,
    symbols_in,
)
from shrinkfx.worker.model import (
    MUTATIONS,
    Inputs,
    Program,
    flat_inputs,
    replace_graph,
)
from shrinkfx.worker.origin import copy_origins, operator_nodes
from shrinkfx.worker.private_api.graph_api import pytree
from shrinkfx.worker.sizes.bindings import SizesByName, bind_symbols, evaluate_size

_WEIGHTS = {
    Role.PARAMETER: InputKind.PARAMETER,
    Role.BUFFER: InputKind.BUFFER,
    Role.CONSTANT: InputKind.CONSTANT_TENSOR,
}


@dataclass(frozen=True)
class RebuiltCandidate:
    """A candidate as a program, with its inputs.

    Attributes:
        stale: the metadata does not describe the program, so it must be exported again:
            a size that depended on data is an input now, strides have changed, or an
            operator reads a value of another shape.
        outputs: the names of the outputs in the input program.
        passing: similar inputs on which it must pass before it may fail, or None.
        settled: how to declare the sizes of inputs, if not as before.
        names: the names of its values before it was exported again, if it was.
        original: the program whose guards hold for the symbols of this one; None if it
            was exported again, because its symbols are different then.
    """

    exported: ExportedProgram
    example: Inputs
    failing: Inputs
    stale: bool = False
    outputs: tuple[str, ...] = ()
    passing: Inputs | None = None
    settled: SpecializedSizes | None = None
    names: RecoveredNames | None = None
    original: ExportedProgram | None = None

    @property
    def at_passing(self) -> RebuiltCandidate | None:
        """The same program, with the passing inputs only, or None."""
        if self.passing is None:
            return None
        return replace(self, failing=self.passing, passing=None)

    def with_new_export(self, exported: ExportedProgram) -> RebuiltCandidate:
        """Return the candidate with a new export, which has other names inside."""
        copy_origins(self.exported.graph_module, exported.graph_module)
        names = recover_names(self.exported, exported)
        return RebuiltCandidate(
            exported,
            self.example,
            self.failing,
            outputs=self.outputs,
            passing=self.passing,
            names=self.names.compose(names) if self.names else names,
        )

    def with_original_names(self) -> RebuiltCandidate:
        """Restore the names of values from before it was exported again."""
        if self.names is None:
            return self
        named = rename_values(self.exported, self.names.before)
        return replace(self, exported=named, names=None)


def rebuild(
    program: Program,
    candidate: Candidate,
    values: EagerValues,
    taps: Sequence[str] = (),
) -> RebuiltCandidate:
    """Build a valid program from a candidate.

    Args:
        taps: values of the candidate to return in addition to its outputs.

    Raises:
        CannotRebuild: the candidate is not valid; nothing has been compiled.
    """
    return _Builder(program, candidate, values).build(taps)


class _Builder:
    def __init__(
        self, program: Program, candidate: Candidate, values: EagerValues
    ) -> None:
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
        self._new: dict[str, Any] = {}
        self._inputs: list[InputSpec] = []
        self._fed: dict[str, torch.Tensor] = {}
        example = bind_symbols(exported, flat_inputs(exported, program.example))
        self._settled = SpecializedSizes.from_candidate(candidate, example)
        self._symbols = Symbols(candidate, self._nodes, values, self._settled)

    def build(self, taps: Sequence[str]) -> RebuiltCandidate:
        feeds = self._feeds_in_order()
        for name in feeds:
            self._feed(name)
        for name in self._candidate.operators:
            self._copy(name)
        outputs = graph_outputs(self._exported, self._candidate, self._new, taps)
        self._graph.output(tuple(self._new[name] for _, name in outputs))
        return self._finish(outputs)

    def _feeds_in_order(self) -> list[str]:
        """List weights first, as every exported program has them, then inputs.

        An input that carries a size comes before cut values, as in the input program,
        because compiled code reads a symbol from the first input that has it.
        """
        skeleton = self._candidate.skeleton
        feeds = [n for n in self._candidate.feeds if not self._symbols.take_literal(n)]
        inputs = [n for n in feeds if skeleton.node(n).role not in _WEIGHTS]
        for name in inputs:
            if reason := self._values.explain_no_cut(name):
                raise CannotRebuild(reason)
        weights = [
            n for role in _WEIGHTS for n in feeds if skeleton.node(n).role is role
        ]
        inputs = skeleton.in_order([*inputs, *self._symbols.carriers(inputs)])
        return weights + sorted(inputs, key=self._symbols.is_computed)

    def _feed(self, name: str) -> None:
        value = self._nodes[name].meta.get("val")
        if isinstance(value, torch.SymInt):
            value = self._symbols.make_carrier(value)
        if isinstance(value, CustomObjArgument) and name in self._specs:
            self._new[name] = self._graph.node_copy(self._nodes[name])
            self._inputs.append(self._specs[name])
            return
        if not isinstance(value, torch.Tensor):
            raise CannotRebuild(f"{name} is no tensor and cannot be fed from outside")
        node = self._graph.placeholder(name)
        node.meta = {**self._nodes[name].meta, "val": value}
        role = self._candidate.skeleton.node(name).role
        if role is not Role.SIZE:  # sizes are read from their carrier
            self._new[name] = node
        spec = self._specs.get(name)
        if role in _WEIGHTS and spec is not None:
            kind, target, persistent = spec.kind, spec.target, spec.persistent
        else:
            kind, target, persistent = InputKind.USER_INPUT, None, None
            self._fed[name] = value
            self._symbols.bind(node)
        argument = TensorArgument(name=node.name)
        self._inputs.append(InputSpec(kind, argument, target, persistent))

    def _copy(self, name: str) -> None:
        """Copy an operator and its getitems."""
        if name in self._candidate.replace:
            self._new[name] = self._write_replacement(name)
            return
        old = self._nodes[name]
        node = self._graph.node_copy(old, self._operand)
        self._new[name] = node
        for projection in self._candidate.skeleton.projections(name):
            self._copy(projection)

    def _write_replacement(self, name: str) -> fx.Node:
        """Write the simple operator that replaces another operator."""
        (source,) = self._candidate.operands(name)
        operand, old = self._new[source], self._nodes[name].meta["val"]
        function = _function(self._candidate.target(name))
        node = self._graph.call_function(function, (operand,))
        with torch.no_grad():
            value = node.meta["val"] = function(operand.meta["val"])
        if tensor_type(value) != tensor_type(old):
            raise CannotRebuild(
                f"{function} of {source} is of another type than {name}"
            )
        # All later values may get other strides, too.
        self._symbols.stale |= str(value.stride()) != str(old.stride())
        return node

    def _operand(self, old: fx.Node) -> Any:
        name = self._candidate.resolve(old.name)
        if name in self._symbols.literals:
            return self._symbols.literals[name]
        if name not in self._new:
            node = self._nodes[name]
            if node.op == "get_attr":
                self._new[name] = self._graph.node_copy(node)
            elif self._candidate.skeleton.node(name).role is Role.SIZE:
                self._new[name] = self._size(name)
            else:
                raise CannotRebuild(f"{name} is neither kept nor fed")
        return self._new[name]

    def _size(self, name: str) -> fx.Node | int:
        if self._symbols.can_be_read(name) or self._symbols.is_arithmetic(name):
            return self._graph.node_copy(self._nodes[name], self._operand)
        value = self._nodes[name].meta["val"]
        if not isinstance(value, torch.SymInt):
            raise CannotRebuild(f"{name} is a {type(value).__name__}")
        found = self._symbols.compute(self._graph, value.node.expr)
        if not (isinstance(found, fx.Node) or self._settled.numbers):
            raise CannotRebuild(f"{name} is a constant")
        return found

    def _finish(self, outputs: list[GraphOutputs]) -> RebuiltCandidate:
        example = self._arguments(self._values.example, self._program.example)
        failing = self._arguments(self._values.failing, self._program.failing)
        passing = self._passing()
        if self._candidate.sizes:
            runs = [*([passing.args] if passing else []), failing, example]
            values = zip(self._fed.values(), zip(*runs, strict=True), strict=True)
            example = tuple(self._settled.example(fake, each) for fake, each in values)
        signature = ExportGraphSignature(self._inputs, [spec for spec, _ in outputs])
        root = fx.GraphModule(self._exported.graph_module, self._graph)
        # Strides may change then, and export must check what a body returns.
        self._symbols.stale |= shorten_subgraphs(root, self._candidate, self._new)
        user = [(s, n) for s, n in outputs if s.kind is OutputKind.USER_OUTPUT]
        call = ModuleCallSignature(
            inputs=[s.arg for s in self._inputs if s.kind is InputKind.USER_INPUT],
            outputs=[s.arg for s, _ in user],
            in_spec=pytree.tree_structure((example, {})),
            out_spec=pytree.tree_structure(tuple(0 for _ in user)),
        )
        targets = {spec.target for spec in self._inputs}
        old = self._exported
        rebuilt = replace_graph(
            old,
            root,
            signature,
            state_dict={k: v for k, v in old.state_dict.items() if k in targets},
            range_constraints=self._ranges(),
            module_call_graph=[ModuleCallEntry("", call)],
            example_inputs=(example, {}),
            constants={k: v for k, v in old.constants.items() if k in targets},
        )
        if not self._symbols.stale:
            rebuilt.validate()
        return RebuiltCandidate(
            rebuilt,
            Inputs(example, {}),
            Inputs(failing, {}),
            stale=self._symbols.stale,
            outputs=tuple(name for _, name in user),
            passing=passing,
            settled=self._settled if self._candidate.sizes else None,
            original=self._program.original,
        )

    def _passing(self) -> Inputs | None:
        if self._program.passing is None:
            return None
        found = self._arguments(self._values.passing, self._program.passing)
        return Inputs(found, {})

    def _arguments(
        self, value: Callable[[str], torch.Tensor], inputs: Inputs
    ) -> tuple[torch.Tensor, ...]:
        """Return the values of the inputs in one run of the input program."""
        flat = flat_inputs(self._exported, inputs)
        sizes = bind_symbols(self._exported, flat)
        return tuple(self._fit(name, value(name), sizes) for name in self._fed)

    def _fit(self, name: str, value: torch.Tensor, sizes: SizesByName) -> torch.Tensor:
        """Lay a cut value out with the strides that the compiler expects.

        Real strides may differ from the metadata, because some fake kernels guess. With
        the real strides, the candidate would have an invalid input, and would fail for
        another reason than the input program.
        """
        if self._nodes[name].op == "placeholder":
            return value
        fake = self._nodes[name].meta["val"]
        stride = []
        for step, actual in zip(fake.stride(), value.stride(), strict=True):
            expected = evaluate_size(step, sizes)
            stride.append(actual if expected is None else expected)
        differs = any(
            a != b and size > 1
            for a, b, size in zip(stride, value.stride(), value.shape, strict=True)
        )
        return restride(value, stride) if differs else value

    def _ranges(self) -> dict[Any, Any]:
        """Return the ranges of the symbols that the graph still uses."""
        used: set[Any] = set()
        for node in self._graph.nodes:
            for value in pytree.tree_leaves(node.meta.get("val")):
                if isinstance(value, torch.Tensor):
                    used |= symbols_in([*value.shape, *value.stride()])
                else:
                    used |= symbols_in([value])
        ranges = self._exported.range_constraints
        return {s: r for s, r in ranges.items() if s in used}


def _function(target: str) -> Any:
    namespace, name, overload = target.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


def shorten_subgraphs(
    root: fx.GraphModule, candidate: Candidate, nodes: Mapping[str, fx.Node]
) -> bool:
    """Replace each subgraph that has bypassed nodes by a shorter one.

    Args:
        nodes: the nodes of ``root``, by their names in the candidate.

    Returns:
        Whether a subgraph was replaced.
    """
    found = False
    for name, node in nodes.items():
        paths = (value.startswith(f"{name}.") for value in candidate.bypass)
        if _holds_a_graph(node) and any(paths):
            inner = root.get_submodule(str(node.target))
            assert isinstance(inner, fx.GraphModule)
            # Another operator may use the same subgraph unchanged.
            if any(_names_alike(other, node) for other in root.graph.nodes):
                node.target = f"{node.target}_shortened"
            root.add_submodule(str(node.target), _shortened(inner, name, candidate))
            found = True
    if found:
        root.recompile()
    return found


def _shortened(
    module: fx.GraphModule, path: str, candidate: Candidate
) -> fx.GraphModule:
    graph, new = fx.Graph(), dict[str, fx.Node]()
    for node in module.graph.nodes:
        copied = graph.node_copy(
            node, lambda n: new[candidate.resolve(f"{path}.{n.name}")]
        )
        new[f"{path}.{node.name}"] = copied
    graph.eliminate_dead_code()
    shorter = fx.GraphModule(module, graph)
    shorten_subgraphs(shorter, candidate, new)
    return shorter


def _holds_a_graph(node: Any) -> bool:
    return isinstance(node, fx.Node) and node.op == "get_attr" and bool(node.users)


def _names_alike(other: fx.Node, node: fx.Node) -> bool:
    is_another = other is not node and other.op == "get_attr"
    return is_another and other.target == node.target


GraphOutputs = tuple[OutputSpec, str]
"""The output spec of a value, and its name in the input program."""


def graph_outputs(
    exported: ExportedProgram,
    candidate: Candidate,
    new: Mapping[str, fx.Node],
    taps: Sequence[str] = (),
) -> list[GraphOutputs]:
    """List the outputs, with buffer mutations first, as in exported programs.

    Args:
        exported: the input program.
        new: the candidate's nodes, by the names of the input program.
        taps: values to return in addition.

    Raises:
        CannotRebuild: the candidate would return nothing.
    """
    original = [
        name for name in _original(exported, candidate) if _is_tensor(new[name])
    ]
    sinks = _sinks(exported, candidate)
    names = original + [name for name in sinks if name not in candidate.writes]
    # Only returned values can be compared, so return the sinks if nothing else is.
    names = (names or sinks) + list(taps)
    if not names:
        raise CannotRebuild("it would return nothing")
    targets = exported.graph_signature.inputs_to_buffers
    return [
        *(
            (_buffer_mutations(new[v], targets[b]), v)
            for v, b in candidate.writes.items()
        ),
        *((_user_output(new[name]), name) for name in dict.fromkeys(names)),
    ]


def _original(exported: ExportedProgram, candidate: Candidate) -> list[str]:
    """List the outputs of the input program that the candidate still computes.

    These include values for buffers that the candidate cannot write any more.
    """
    if candidate.outputs is not Outputs.ORIGINAL:
        return []
    found = []
    for spec in exported.graph_signature.output_specs:
        name = getattr(spec.arg, "name", None)
        stored = spec.kind is OutputKind.BUFFER_MUTATION and name in candidate.writes
        if name is None or name not in candidate.skeleton or stored:
            continue
        if candidate.skeleton.producer(name) in candidate.keep:
            found.append(name)
    return found


def _sinks(exported: ExportedProgram, candidate: Candidate) -> list[str]:
    """List unused values; for operators without results, the values they write."""
    nodes = {n.name: n for n in exported.graph.nodes}
    return [
        name
        for sink in candidate.sinks
        for name in candidate.skeleton.values(sink)
        or [candidate.resolve(value) for value in _written_into(nodes[sink])]
    ]


def _written_into(node: fx.Node) -> list[str]:
    """List the values that an operator writes into."""
    schema = getattr(node.target, "_schema", None)
    arguments = zip(schema.arguments if schema else (), node.args, strict=False)
    return [
        value.name
        for argument, value in arguments
        if isinstance(value, fx.Node)
        and argument.alias_info is not None
        and argument.alias_info.is_write
    ]


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _buffer_mutations(node: fx.Node, target: str) -> OutputSpec:
    argument = TensorArgument(name=node.name)
    return OutputSpec(OutputKind.BUFFER_MUTATION, argument, target)


def _user_output(node: fx.Node) -> OutputSpec:
    argument = TensorArgument(name=node.name)
    return OutputSpec(OutputKind.USER_OUTPUT, argument, None)


# Original names of the values of a program that was exported again.
#
#     softmax_3 = softmax(relu_7)  ->  printed, exported  ->  softmax = softmax(relu)
#
# A value gets its original name if both programs call the same operators in the same
# order on the same values. Otherwise the original names are unknown.

_NEW_VALUE = "anew_"
"""Prefix of new values, such as a size that is read again."""


@dataclass(frozen=True)
class RecoveredNames:
    """The original names of values after a program was exported again.

    Attributes:
        before: original names, by current name.
        why_not: the reason why the original names are unknown, or ''.
    """

    before: Mapping[str, str] = field(default_factory=dict)
    why_not: str = ""

    def compose(self, later: RecoveredNames) -> RecoveredNames:
        """Return the original names after one more export."""
        if self.why_not or later.why_not:
            return RecoveredNames(why_not=self.why_not or later.why_not)
        pairs = later.before.items()
        names = {now: self.before[name] for now, name in pairs if name in self.before}
        return RecoveredNames(names)


class _NamesUnknown(Exception):
    """The original names are unknown; the message is the reason."""


def recover_names(before: ExportedProgram, after: ExportedProgram) -> RecoveredNames:
    """Find the names in ``before`` of the values in ``after``, its new export."""
    try:
        known = _inputs(before, after)
        _follow(before, after, known)
    except _NamesUnknown as why:
        return RecoveredNames(why_not=str(why))
    return RecoveredNames({now.name: node.name for now, node in known.items()})


def _inputs(before: ExportedProgram, after: ExportedProgram) -> dict[fx.Node, fx.Node]:
    """Pair inputs and weights by name, because printing keeps their names."""
    named = {node.name: node for node in before.graph.find_nodes(op="placeholder")}
    known = {}
    for node in after.graph.find_nodes(op="placeholder"):
        if node.name not in named:
            raise _NamesUnknown(f"an input or a weight is then called {node.name}")
        known[node] = named[node.name]
    return known


def _follow(
    before: ExportedProgram, after: ExportedProgram, known: dict[fx.Node, fx.Node]
) -> None:
    """Pair the results of operators that are the same and read the same values."""
    if any(node.op == "get_attr" for node in before.graph.nodes):
        raise _NamesUnknown("the values in its branches or loops then have other names")
    old, new = (
        operator_nodes(before.graph),
        _drop_write_copies(before, operator_nodes(after.graph)),
    )
    if [node.target for node in old] != [node.target for node in new]:
        raise _NamesUnknown("it then calls other operators")
    for old_node, new_node in zip(old, new, strict=True):
        if list(map(known.get, _tensors(new_node))) != _tensors(old_node):
            raise _NamesUnknown(f"{old_node.name} is computed from other values then")
        known[new_node] = old_node
        parts = _parts(old_node)
        for place, part in _parts(new_node).items():
            if place in parts:
                known[part] = parts[place]


def _drop_write_copies(before: ExportedProgram, new: list[fx.Node]) -> list[fx.Node]:
    """Leave out the final copies that write results into buffers and inputs.

    In ``before``, the graph signature states these writes.
    """
    specs = before.graph_signature.output_specs
    written = sum(spec.kind in MUTATIONS for spec in specs)
    first = len(new) - written
    is_copy = [node.target is torch.ops.aten.copy_.default for node in new[first:]]
    return new[:first] if written and all(is_copy) else new


def _tensors(node: fx.Node) -> list[fx.Node]:
    """List the tensor operands of an operator, without sizes, which are read again."""
    taken: list[fx.Node] = []
    fx.node.map_arg((node.args, node.kwargs), taken.append)
    return [n for n in taken if isinstance(n.meta.get("val"), torch.Tensor)]


def _parts(node: fx.Node) -> dict[Any, fx.Node]:
    """Return the getitem nodes of an operator with several results, by index."""
    users = [user for user in node.users if user.target is operator.getitem]
    return {user.args[1]: user for user in users}


def rename_values(
    exported: ExportedProgram, names: Mapping[str, str]
) -> ExportedProgram:
    """Return the same program with other names; a value without one gets a prefix."""
    graph = fx.Graph()
    new: dict[fx.Node, fx.Node] = {}
    for node in exported.graph.nodes:
        new_name = node.name
        if node.op == "call_function":
            new_name = names.get(node.name, _NEW_VALUE + node.name)
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), new.__getitem__)
        copied = graph.create_node(
            node.op, node.target, args, kwargs, new_name, node.type
        )
        copied.name = new_name  # fx renames inputs named like built-ins
        copied.meta = dict(node.meta)
        new[node] = copied
    new_names = {node.name: copied.name for node, copied in new.items()}

    def rename_argument(argument: Any) -> Any:
        name = getattr(argument, "name", None)
        return (
            replace(argument, name=new_names[name]) if name in new_names else argument
        )

    signature, (entry, *_) = exported.graph_signature, exported.module_call_graph
    results = [
        replace(one, arg=rename_argument(one.arg)) for one in signature.output_specs
    ]
    call = entry.signature
    assert call is not None
    call = replace(call, outputs=[rename_argument(result) for result in call.outputs])
    root = fx.GraphModule(exported.graph_module, graph)
    signature = replace(signature, output_specs=results)
    calls = [ModuleCallEntry("", call)]
    return replace_graph(exported, root, signature, module_call_graph=calls)
