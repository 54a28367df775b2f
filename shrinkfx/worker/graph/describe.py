"""Skeletons: the graphs of programs as data, for the parent process."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from shrinkfx.program.pytorch_names import ARITHMETIC, SIZE_FUNCTIONS
from shrinkfx.program.skeleton import (
    FreeSize,
    Node,
    Role,
    Skeleton,
    TensorType,
)
from shrinkfx.worker.model import MUTATIONS, Program, flat_inputs, mutates_arguments
from shrinkfx.worker.origin import graphs_of, scope_of, source_of
from shrinkfx.worker.private_api import graph_api
from shrinkfx.worker.sizes.bindings import bind_symbols, nbytes, sizes_of

_ROLES = {
    InputKind.PARAMETER: Role.PARAMETER,
    InputKind.BUFFER: Role.BUFFER,
    InputKind.CONSTANT_TENSOR: Role.CONSTANT,
    InputKind.CUSTOM_OBJ: Role.CONSTANT,
    InputKind.TOKEN: Role.CONSTANT,
}


def describe(program: Program, content: str) -> Skeleton:
    """Build the skeleton of the graph that candidates are cut from.

    Args:
        content: digest of files and settings, which distinguishes programs with equal
            graphs.
    """
    exported = program.graph
    roles = {
        spec.arg.name: _ROLES.get(spec.kind, Role.INPUT)
        for spec in exported.graph_signature.input_specs
        if hasattr(spec.arg, "name")
    }
    storages: dict[str, int] = {}
    for node in exported.graph.nodes:
        _note_storage(node, storages)
    nodes: list[Node] = []
    for node in exported.graph.nodes:
        if node.op != "output":
            described = _describe(node, roles, storages, exported)
            nodes += _with_subgraph_nodes(described, node, exported.graph_module)
    return Skeleton(
        nodes,
        outputs=_outputs(exported),
        writes=_writes(exported),
        symbols={str(s): str(r) for s, r in exported.range_constraints.items()},
        original_nodes=len(program.original.graph_module.graph.nodes),
        content=content,
        sizes=_sizes(program) if program.passing else {},
    )


def _sizes(program: Program) -> dict[str, FreeSize]:
    """List the free sizes of values, with their numbers in both runs."""
    assert program.passing is not None
    exported = program.graph
    runs = [
        bind_symbols(exported, flat_inputs(exported, inputs))
        for inputs in (program.passing, program.failing)
    ]
    values = (node.meta.get("val") for node in exported.graph.nodes)
    tensors = (value for value in values if isinstance(value, torch.Tensor))
    found = {size.node.expr for tensor in tensors for size in sizes_of(tensor)}
    sizes: dict[str, FreeSize] = {}
    for size in sorted(found.union(*(size.free_symbols for size in found)), key=str):
        passing, failing = (size.xreplace(run) for run in runs)
        if passing.is_number and failing.is_number:  # else it depends on data
            symbols = tuple(sorted(map(str, size.free_symbols)))
            sizes[str(size)] = FreeSize(symbols, int(passing), int(failing))
    return sizes


_PART_BYTES = 1 << 20
"""Number of bytes to read at once."""


def content_digest(*files: str | None) -> str:
    """Hash the content of files; None and missing files count as empty."""
    digest = hashlib.sha256(torch.__version__.encode())
    for name in files:
        if name and Path(name).is_file():
            with Path(name).open("rb") as file:  # it may be gigabytes
                while part := file.read(_PART_BYTES):
                    digest.update(part)
    return digest.hexdigest()


def count_operators(module: fx.GraphModule) -> int:
    """Count the operators of a graph, including those in its subgraphs."""
    total = 0
    for node in module.graph.nodes:
        if _is_operator(node):
            total += 1
        elif node.op == "get_attr":
            inner = getattr(module, str(node.target), None)
            if isinstance(inner, fx.GraphModule):
                total += count_operators(inner)
    return total


def _is_operator(node: fx.Node) -> bool:
    """Return whether a node is an operator: no getitem, no arithmetic on sizes."""
    is_called = node.op == "call_function" and node.target is not operator.getitem
    return is_called and not _is_size(node)


def _is_size(node: fx.Node) -> bool:
    name = getattr(node.target, "__name__", "")
    return name in SIZE_FUNCTIONS or _is_size_arithmetic(node)


def _outputs(exported: ExportedProgram) -> list[str]:
    (output,) = [n for n in exported.graph.nodes if n.op == "output"]
    return list(dict.fromkeys(n.name for n in output.all_input_nodes))


def _writes(exported: ExportedProgram) -> list[tuple[str, str]]:
    signature = exported.graph_signature
    buffers = {target: name for name, target in signature.inputs_to_buffers.items()}
    written = signature.buffers_to_mutate.items()
    return [(value, buffers[target]) for value, target in written]


def _describe(
    node: fx.Node,
    roles: dict[str, Role],
    storages: dict[str, int],
    exported: ExportedProgram,
) -> Node:
    value = node.meta.get("val")
    role = _role(node, roles, exported)
    return replace(
        _describe_node(node, role, "", _weight(node, exported)),
        nbytes=nbytes(value) if isinstance(value, torch.Tensor) else 0,
        storage=storages.get(node.name),
        impure=role is Role.OPERATOR and node.is_impure(),
        pointwise=torch.Tag.pointwise in getattr(node.target, "tags", ()),
    )


def _describe_node(node: fx.Node, role: Role, path: str, operators: int) -> Node:
    """Describe a node of a graph or of a subgraph.

    Args:
        path: what the names begin with.
        operators: the number of operators, including those in subgraphs of the node.
    """
    value = node.meta.get("val")
    return Node(
        name=path + node.name,
        role=role,
        target=str(node.target) if node.op == "call_function" else "",
        operands=tuple(path + n.name for n in dict.fromkeys(node.all_input_nodes)),
        value=tensor_type(value) if isinstance(value, torch.Tensor) else None,
        operators=operators,
        scope=scope_of(node),
        source=source_of(node),
    )


def _with_subgraph_nodes(
    described: Node, node: fx.Node, module: fx.GraphModule
) -> Iterator[Node]:
    """Yield the nodes of a subgraph, and then the node that holds it.

    The operands of that node are the values that the subgraph returns.
    """
    inner = getattr(module, str(node.target), None) if node.op == "get_attr" else None
    if isinstance(inner, fx.GraphModule):
        yield from _subgraph_nodes(inner, f"{described.name}.")
        (output,) = inner.graph.find_nodes(op="output")
        returned = [f"{described.name}.{n.name}" for n in output.all_input_nodes]
        described = replace(described, operands=tuple(dict.fromkeys(returned)))
    yield described


def _subgraph_nodes(module: fx.GraphModule, path: str) -> Iterator[Node]:
    for node in module.graph.nodes:
        if node.op == "output":
            continue
        role = Role.SUBGRAPH if node.op == "get_attr" else Role.SUBGRAPH_NODE
        described = _describe_node(node, role, path, int(_is_operator(node)))
        yield from _with_subgraph_nodes(described, node, module)


def _role(node: fx.Node, roles: dict[str, Role], exported: ExportedProgram) -> Role:
    if node.op == "placeholder":
        role = roles.get(node.name, Role.INPUT)
        is_tensor = isinstance(node.meta.get("val"), torch.Tensor)
        return role if is_tensor or role is not Role.INPUT else Role.SIZE
    if node.op == "get_attr":
        inner = getattr(exported.graph_module, str(node.target), None)
        return Role.SUBGRAPH if isinstance(inner, fx.GraphModule) else Role.CONSTANT
    if node.target is operator.getitem:
        return Role.PROJECTION
    if _is_size(node):
        return Role.SIZE
    return Role.OPERATOR


def _is_size_arithmetic(node: fx.Node) -> bool:
    return getattr(node.target, "__module__", "") in ARITHMETIC and not (
        isinstance(node.meta.get("val"), torch.Tensor)
    )


def _weight(node: fx.Node, exported: ExportedProgram) -> int:
    """Count the operators of a node, including those in its subgraphs."""
    if not _is_operator(node):
        return 0
    inner = [
        getattr(exported.graph_module, str(n.target), None)
        for n in node.all_input_nodes
        if n.op == "get_attr"
    ]
    return 1 + sum(count_operators(m) for m in inner if isinstance(m, fx.GraphModule))


def draws_random_numbers(exported: ExportedProgram) -> bool:
    """Return whether an operator may draw random numbers.

    Some operators with the tag, such as attention, need not.
    """
    return any(
        torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        for node in exported.graph.nodes
    )


def depends_on_data(exported: ExportedProgram) -> bool:
    """Return whether a size or a number is read from the elements of a tensor."""
    graphs = graphs_of(exported.graph_module).values()
    nodes = (node for graph in graphs for node in graph.nodes)
    return any(node.meta.get("unbacked_bindings") for node in nodes)


def mutates(exported: ExportedProgram) -> bool:
    """Return whether a call may change a buffer, an input or a script object."""
    if any(s.kind in MUTATIONS for s in exported.graph_signature.output_specs):
        return True
    if exported.graph_signature.lifted_custom_objs:
        return True
    return mutates_arguments(exported)


def is_functional(original: ExportedProgram) -> bool:
    """Return whether the program mutates nothing and takes no branch or loop."""
    nodes = original.graph.nodes
    higher = any(isinstance(n.target, graph_api.HigherOrderOperator) for n in nodes)
    return not (higher or mutates(original))


def keeps_state(program: Program) -> bool:
    """Return whether a second call may return other values than the first."""
    signature = program.graph.graph_signature
    if signature.lifted_custom_objs:
        return True
    if program.graph is not program.original:
        return bool(signature.buffers_to_mutate)
    return bool(signature.inputs_to_buffers) and mutates(program.graph)


def count_inputs(exported: ExportedProgram) -> int:
    return len(exported.graph_signature.user_inputs)


def dynamic_dims(exported: ExportedProgram) -> int:
    """Count the dynamic dims of the inputs."""
    names = set(exported.graph_signature.user_inputs)
    return sum(
        isinstance(size, torch.SymInt)
        for node in exported.graph.nodes
        if node.op == "placeholder" and node.name in names
        for size in getattr(node.meta.get("val"), "shape", ())
    )


def tensor_type(tensor: torch.Tensor) -> TensorType:
    return TensorType(
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(str(size) for size in tensor.shape),
        device=str(tensor.device),
    )


def _note_storage(node: fx.Node, storages: dict[str, int]) -> None:
    """Give a view, or one of several results, the storage number of its base."""
    if node.target is operator.getitem and isinstance(base := node.args[0], fx.Node):
        if base.name in storages:
            storages[node.name] = storages[base.name]
        return
    schema = getattr(node.target, "_schema", None)
    if schema is None or not node.args:
        return
    aliased = [
        node.args[i]
        for i, argument in enumerate(schema.arguments[: len(node.args)])
        if argument.alias_info is not None
    ]
    for source in aliased:
        if isinstance(source, fx.Node):
            number = storages.setdefault(source.name, len(storages))
            storages[node.name] = number
