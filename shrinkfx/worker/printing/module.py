"""Source code of rebuilt candidates, its export, and source archives."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import Any

import sympy
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from shrinkfx.protocol.source import Expression, Input, Source, Weight
from shrinkfx.worker.graph.describe import dynamic_dims
from shrinkfx.worker.graph.rebuild import CannotRebuild, RebuiltCandidate
from shrinkfx.worker.graph.symbols import SpecializedSizes
from shrinkfx.worker.loading.archive import (
    SourceProgram,
    calls_triton_kernels,
    execute_source,
    origins_of,
    set_weight,
    write_source_archive,
)
from shrinkfx.worker.loading.devices import save_for_cuda, tag_storages_as_cuda
from shrinkfx.worker.loading.load import functionalise
from shrinkfx.worker.loading.script_objects import expression_for, save_script_object
from shrinkfx.worker.model import MUTATIONS, Inputs
from shrinkfx.worker.printing.graph import (
    GraphPrinter,
    Unprintable,
    memory_of,
    write_tensor,
)
from shrinkfx.worker.private_api.graph_api import (
    UncapturedHigherOrderOpError,
    UserError,
    ValueRanges,
    bound_sympy,
    pytree,
)
from shrinkfx.worker.sizes.bindings import determines_symbol

Write = Callable[[Any, str], Expression]
"""Prints a tensor, or another argument of a program, for a device."""


def print_program(
    built: RebuiltCandidate,
    device: str = "",
    loose: Set[str] = frozenset(),
    write: Write = write_tensor,
) -> Source:
    """Print a rebuilt candidate.

    Args:
        device: the target device, if it differs from the current one.
        loose: sizes that are not declared by name.
        write: prints weights and inputs.

    Raises:
        Unprintable: the candidate has an argument or an operator without a source form.
    """
    exported = built.exported
    names, weights = _weights(exported, device, write)
    graph = GraphPrinter(exported.graph_module, names, device)
    body = graph.body(_buffer_mutations(exported))
    dims, shapes = dynamic_shapes(exported, built.settled, loose)
    return Source(
        weights=weights,
        inputs=_inputs(built, device, write),
        branches=tuple(graph.branches),
        members=graph.members,
        body=tuple(body),
        dims=tuple(dims),
        dynamic_shapes=shapes,
    )


def print_if_possible(
    built: RebuiltCandidate, device: str
) -> tuple[Source | None, str]:
    """Print a candidate, or return the reason why its source does not export."""
    try:
        # Only dims can be loose, and exporting a large program takes long.
        dynamic = dynamic_dims(built.exported)
        loose = export_source(built)[1] if dynamic else frozenset()
        return print_program(built, device, loose), ""
    except Exception as error:  # noqa: BLE001 - a script would raise it, too
        return None, str(error)


def export_source(built: RebuiltCandidate) -> tuple[ExportedProgram, frozenset[str]]:
    """Print a candidate and export its source, with dims declared by name if possible.

    Export refuses a range that a guard of the program cuts into: ``s0`` from 2 up
    where ``(s0 - 1)//4 + 1`` must not be 1. Such dims are left to export.

    Returns:
        The exported program, and the sizes that were not declared by name.

    Raises:
        Unprintable, CannotRebuild: the candidate is not valid, or has no source form.
    """
    loose: frozenset[str] = frozenset()
    settled = built.settled.ranges.keys() if built.settled else set()
    while True:
        printed = print_program(built, loose=loose, write=print_nothing)
        try:
            return run_source(printed, built), loose
        except UserError as error:
            refused = _refused(error, printed) - settled - loose
            if not refused:
                raise
            loose |= choose_names_to_drop(refused)


def print_nothing(value: object, device: str) -> Expression:
    """Print nothing, because the new export gets the real weights and inputs."""
    return Expression("", "")


def _refused(error: UserError, printed: Source) -> frozenset[str]:
    """Return the declared dims that export refuses, or all if it names none.

    If export refuses something other than a declaration, no dim is returned.
    """
    named = re.search(r"Constraints violated \((.*)\)!", str(error))
    declared = frozenset(line.partition(" ")[0] for line in printed.dims)
    if named is None:
        return frozenset()
    return declared & set(named[1].split(", ")) or declared


def run_source(printed: Source, built: RebuiltCandidate) -> ExportedProgram:
    """Export printed source, with the weights and inputs of the candidate.

    Raises:
        CannotRebuild: torch.export does not accept a branch or a loop body.
    """
    module, shapes = execute_source(printed)
    _set_weights(module, built.exported)
    return export(module, built.example.args, shapes)


def export(
    module: torch.nn.Module, example: tuple[Any, ...], shapes: Any
) -> ExportedProgram:
    """Export the module of a printed program.

    Raises:
        CannotRebuild: torch.export does not accept a branch or a loop body.
    """
    try:
        with torch.no_grad():  # as in the repro
            return torch.export.export(module.eval(), example, dynamic_shapes=shapes)
    except UncapturedHigherOrderOpError as error:
        raise CannotRebuild(f"torch.export takes no such branch: {error}") from error


def long_values(built: RebuiltCandidate) -> dict[str, Any]:
    """Return values that may be too long for a script, by their names in it."""
    names = user_input_names(built.exported)
    values = arguments_of(built)
    for prefix, args in arguments_of(built).items():
        values |= {f"{prefix}_{n}": v for n, v in zip(names, args, strict=True)}
    for spec in built.exported.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT and spec.target is not None:
            value = _weight_value(built.exported, spec.target)
            name = f"weight_{attribute_of(spec.target)}"
            is_object = isinstance(value, torch.ScriptObject)
            values[name] = save_script_object(value) if is_object else value
    return values


def arguments_of(built: RebuiltCandidate) -> dict[str, Any]:
    """Return the arguments of the program, by run."""
    runs = {"example": built.example, "failing": built.failing}
    if built.passing:
        runs["passing"] = built.passing
    return {name: run.args for name, run in runs.items()}


def _set_weights(module: torch.nn.Module, exported: ExportedProgram) -> None:
    values = weights_of(exported)
    for spec in exported.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT and spec.target is not None:
            name = attribute_of(spec.target)
            set_weight(module, name, _kind(spec, exported), values[name])


def weights_of(exported: ExportedProgram) -> dict[str, Any]:
    """Return weights by attribute name in the printed program.

    Raises:
        Unprintable: a weight is neither a tensor nor a script object.
    """
    return {
        attribute_of(spec.target): _weight_value(exported, spec.target)
        for spec in exported.graph_signature.input_specs
        if spec.kind is not InputKind.USER_INPUT and spec.target is not None
    }


def _kind(spec: InputSpec, exported: ExportedProgram) -> str:
    """Name the kind of a weight.

    AOTInductor compiles some operators differently if a parameter needs a gradient:
    ``aten.linear`` of the same values may fail with one kind and pass with the other.
    """
    if spec.kind is InputKind.BUFFER and not spec.persistent:
        return "non_persistent_buffer"
    if spec.kind is InputKind.PARAMETER:
        weight = exported.state_dict[str(spec.target)]
        return "trainable_parameter" if weight.requires_grad else "parameter"
    return spec.kind.name.lower().removesuffix("_tensor")


def _weight_value(exported: ExportedProgram, target: str) -> Any:
    """Return the tensor or script object of a weight.

    Raises:
        Unprintable: the weight is neither.
    """
    store = exported.state_dict if target in exported.state_dict else exported.constants
    value = store[target]
    if isinstance(value, torch.ScriptObject):
        return value
    if not isinstance(value, torch.Tensor):
        raise Unprintable(f"{target} is a {type(value).__name__}")
    return value.detach()


def attribute_of(target: str) -> str:
    """Return the attribute name of a weight in the printed program."""
    name = re.sub(r"\W", "_", target)
    return name if name.isidentifier() else f"_{name}"  # nn.Sequential has 0.weight


def _weights(
    exported: ExportedProgram, device: str, write: Write
) -> tuple[dict[str, str], tuple[Weight, ...]]:
    """Map each weight's placeholder to ``self.attribute``, and print its values."""
    names: dict[str, str] = {}
    weights: list[Weight] = []
    for spec in exported.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            continue
        if spec.target is None or not hasattr(spec.arg, "name"):
            raise Unprintable(f"an input of kind {spec.kind.name}")
        attribute = attribute_of(spec.target)
        names[spec.arg.name] = f"self.{attribute}"
        value = _weight_value(exported, spec.target)
        if isinstance(value, torch.ScriptObject):
            weights.append(_object(attribute, value))
            continue
        weights.append(Weight(attribute, _kind(spec, exported), write(value, device)))
    return names, tuple(weights)


def _object(attribute: str, value: torch.ScriptObject) -> Weight:
    """Print a script object as its state, or else as bytes, which no seed can draw."""
    if text := expression_for(value):
        return Weight(attribute, "script_object", Expression(text, text))
    exact = write_tensor(save_script_object(value)).exact
    return Weight(attribute, "saved_object", Expression(exact, exact))


def _buffer_mutations(exported: ExportedProgram) -> list[str]:
    """List the buffers and inputs that the first outputs are copied into."""
    return [
        f"self.{attribute_of(spec.target)}"
        if spec.kind is OutputKind.BUFFER_MUTATION
        else spec.target
        for spec in exported.graph_signature.output_specs
        if spec.kind in MUTATIONS and spec.target is not None
    ]


def _inputs(built: RebuiltCandidate, device: str, write: Write) -> tuple[Input, ...]:
    names = user_input_names(built.exported)
    example = built.example.args
    other = [
        run.args if run and _differ(example, run.args) else None
        for run in (built.failing, built.passing)
    ]
    inputs = []
    for position, name in enumerate(names):
        failing, passing = (
            write(args[position], device) if args else None for args in other
        )
        known = write(example[position], device)
        inputs.append(Input(name, known, failing, passing))
    return tuple(inputs)


def _differ(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    pairs = zip(some, others, strict=True)
    return any(a is not b and not is_identical(a, b) for a, b in pairs)


def is_identical(a: Any, b: Any) -> bool:
    """Return whether two values are equal bit for bit, and have equal strides."""
    if not isinstance(a, torch.Tensor):
        return bool(a == b)
    same_type = a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride()
    return same_type and torch.equal(memory_of(a), memory_of(b))


_AUTO, _DYNAMIC = "torch.export.Dim.AUTO", "torch.export.Dim.DYNAMIC"
_COMPUTED = "size"
"""Prefix of the names of computed sizes."""


def dynamic_shapes(
    exported: ExportedProgram,
    settled: SpecializedSizes | None,
    loose: Set[str] = frozenset(),
) -> tuple[list[str], str]:
    """Print the declarations of dynamic dims.

    A dim that is a symbol is declared by name. A dim that is linear in a symbol is
    declared as an expression of the symbol, even if no other dim has it. Any other dim,
    such as ``(s0 - 1)//2``, has a name of its own, because a reduced program need not
    compute it from ``s0``.

    Args:
        loose: sizes that are not declared by name; only their ranges are declared.

    Returns:
        Statements that declare dims, and an expression for ``dynamic_shapes``.
    """
    dims = _Dims(exported, settled, loose)
    specs = [dims.print_input(node) for node in _user_inputs(exported)]
    if all(spec == "None" for spec in specs):
        return [], "None"
    comma = "," if len(specs) == 1 else ""
    return list(dims.statements.values()), f"({', '.join(specs)}{comma})"


def choose_names_to_drop(refused: Set[str]) -> Set[str]:
    """Choose the names to give up among those that export refuses.

    Names of computed sizes go first, because another dim contradicts them, and they say
    least.
    """
    computed = {n for n in refused if re.fullmatch(rf"{_COMPUTED}\d+", n)}
    return computed or refused


def user_input_names(exported: ExportedProgram) -> list[str]:
    """List the names of a program's inputs, including constant inputs."""
    specs = exported.graph_signature.input_specs
    return [spec.arg.name for spec in specs if spec.kind is InputKind.USER_INPUT]


def _user_inputs(exported: ExportedProgram) -> Iterator[fx.Node]:
    names = set(user_input_names(exported))
    for node in exported.graph.nodes:
        if node.op == "placeholder" and node.name in names:
            yield node


class _Dims:
    """The dims that are declared so far.

    Attributes:
        statements: the declarations, by the size that they declare.
    """

    def __init__(
        self,
        exported: ExportedProgram,
        settled: SpecializedSizes | None,
        loose: Set[str],
    ) -> None:
        self._ranges = exported.range_constraints
        self._loose = loose
        self._settled = settled or SpecializedSizes.make_empty()
        self._names: dict[str, str] = {}
        self.statements: dict[str, str] = {}

    def print_input(self, node: fx.Node) -> str:
        """Print the dynamic dims of an input, or the declaration of a number."""
        if isinstance(node.meta.get("val"), torch.SymInt):
            return _DYNAMIC
        sizes = enumerate(getattr(node.meta.get("val"), "shape", ()))
        dims = [f"{d}: {self._dim(s)}" for d, s in sizes if not self._is_static(s)]
        return "{" + ", ".join(dims) + "}" if dims else "None"

    def _is_static(self, size: int | torch.SymInt) -> bool:
        return not isinstance(size, torch.SymInt) or self._settled.is_static(size)

    def _dim(self, size: torch.SymInt) -> str:
        if str(size) in self._settled.ranges:
            return self._named(str(size), *self._settled.ranges[str(size)])
        expression = size.node.expr
        if free_unbacked_symbols(size):
            return _AUTO
        if isinstance(expression, sympy.Symbol):
            return self._symbol(expression)
        for symbol in expression.free_symbols:
            if str(symbol) in self._loose:
                continue  # nothing can be computed from a dim without a name
            if determines_symbol(expression, symbol) and expression.diff(symbol) > 0:
                return str(expression).replace(str(symbol), self._symbol(symbol))
        return self._print_computed(expression)

    def _print_computed(self, expression: sympy.Expr) -> str:
        """Print a computed size under a name of its own."""
        if self._name(str(expression)) in self._loose:
            return _AUTO
        span = bound_sympy(expression, self._ranges)
        return self._within(str(expression), span)

    def _symbol(self, symbol: sympy.Symbol) -> str:
        if str(symbol) in self._settled.ranges:
            return self._named(str(symbol), *self._settled.ranges[str(symbol)])
        allowed = self._ranges.get(symbol)
        if allowed is None:
            return self._named(str(symbol), 0, None)
        return self._within(str(symbol), allowed)

    def _within(self, size: str, allowed: ValueRanges[sympy.Expr]) -> str:
        finite = getattr(allowed.upper, "is_Integer", False)
        low = int(allowed.lower) if allowed.lower > 0 else 0
        return self._named(size, low, int(allowed.upper) if finite else None)

    def _name(self, size: str) -> str:
        """Choose the name of a size; the choice ignores which sizes are loose."""
        if size.isidentifier():
            return size
        return self._names.setdefault(size, f"{_COMPUTED}{len(self._names)}")

    def _named(self, size: str, low: int, high: int | None) -> str:
        """Print a dim, and record its declaration; a loose dim has none."""
        span = [f"min={low}"] if low > 0 else []
        span += [] if high is None else [f"max={high}"]
        if size in self._loose:
            return f"{_AUTO}({', '.join(span)})" if span else _AUTO
        name = self._name(size)
        if size not in self.statements:
            arguments = ", ".join([f'"{name}"', *span])
            self.statements[size] = f"{name} = torch.export.Dim({arguments})"
        return self.statements[size].partition(" ")[0]


def save_as_source(exported: ExportedProgram, path: Path, device: str = "") -> None:
    """Write a program that ``torch.export.save`` refuses to a source archive.

    Args:
        device: the target device, if it differs from the current one.

    Raises:
        Unprintable: a part of the program has no source form, or cannot be saved.
        Exception: torch.export refuses the source code, or torch.save an input.
    """
    if exported.example_inputs is None:
        raise Unprintable("the program has no example inputs")
    if calls_triton_kernels(exported):
        raise Unprintable("the program calls a Triton kernel directly")
    example = Inputs(*exported.example_inputs)
    with torch.no_grad():
        built, loose = _printable(exported, example)
    weights = weights_of(built.exported)
    for name, value in weights.items():
        if type(value) is not torch.Tensor:
            raise Unprintable(f"the weight {name} is a {type(value).__name__}")
    call = exported.module_call_graph[0].signature
    assert call is not None
    values = pytree.tree_leaves([n.meta.get("val") for n in built.exported.graph.nodes])
    found = {each.device for each in values if isinstance(each, torch.Tensor)}
    write_source_archive(
        SourceProgram(
            source=print_program(built, device, loose, print_nothing),
            arguments=call.forward_arg_names or [],
            origins=origins_of(built.exported.graph_module),
            devices={torch.device(device)} if device else found,
            weights=weights,
            example=example,
        ),
        path,
    )


def save_program_or_source(
    exported: ExportedProgram, path: Path, *, for_cuda: bool
) -> bool:
    """Save a program, as a source archive if ``torch.export.save`` raises.

    Args:
        for_cuda: save a program in CPU memory for ``cuda:0``.

    Returns:
        Whether the file is a source archive.
    """
    save = save_for_cuda if for_cuda else torch.export.save
    try:
        save(exported, path)
    except (OSError, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - it raises anything where it has no form
        with tag_storages_as_cuda() if for_cuda else contextlib.nullcontext():
            save_as_source(exported, path, "cuda:0" if for_cuda else "")
        return True
    return False


def _printable(
    exported: ExportedProgram, example: Inputs
) -> tuple[RebuiltCandidate, frozenset[str]]:
    """Return a form of the program whose source can be exported, with flat inputs.

    The program is functionalized if it cannot be printed with in-place operators.

    Returns:
        The program, and the sizes that are not declared by name.
    """
    flat = Inputs(tuple(example.flat()), {})
    built = RebuiltCandidate(exported, flat, flat)
    try:
        return built, export_source(built)[1]
    except Unprintable:
        functional = functionalise(exported)
        if functional is None:
            raise
    built = RebuiltCandidate(functional, flat, flat)
    return built, export_source(built)[1]
