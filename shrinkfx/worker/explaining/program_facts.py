"""Describe a program's inputs and symbols, as declared and in the run.

Also run the program in eager to collect integer ranges, layouts and fake-kernel
mismatches.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from shrinkfx.program.listing.strides import storage_span
from shrinkfx.program.sizes import names_in
from shrinkfx.protocol.compiled_program_view import (
    Anatomy,
    Carrier,
    EagerLayout,
    EagerRange,
    EagerState,
    GivenInput,
    Symbol,
)
from shrinkfx.protocol.operators import FakeMismatch
from shrinkfx.worker.eager import uninitialised
from shrinkfx.worker.eager.fake_mismatch import MismatchRecorder, Watcher
from shrinkfx.worker.eager.intermediates import SEED, copy_value
from shrinkfx.worker.explaining.recompute import is_identical
from shrinkfx.worker.graph.describe import mutates
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.model import MUTATIONS, flat_inputs
from shrinkfx.worker.sizes.bindings import (
    SizesByName,
    bind_symbols,
    declared_bytes,
)
from shrinkfx.worker.sizes.read_space import conditions

_ROLES = {
    InputKind.USER_INPUT: "input",
    InputKind.PARAMETER: "weight",
    InputKind.BUFFER: "registered buffer",
    InputKind.CONSTANT_TENSOR: "constant",
}


_INTEGER_DTYPES = {
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
}
"""The dtypes whose values are recorded as integers."""


def describe_program_inputs(run: RebuiltCandidate) -> Anatomy:
    """Describe a program's inputs and symbols."""
    exported = run.exported
    flat = flat_inputs(exported, run.failing)
    holds = run.original is not None and hasattr(run.original, "_guards_code")
    return Anatomy(
        inputs=tuple(_inputs(exported, flat)),
        symbols=tuple(_symbols(run, bind_symbols(exported, flat))),
        guards_unknown="" if holds else _REDONE if run.original is None else _NO_GUARDS,
    )


_REDONE = "the program was exported again, and its size symbols have other names"
_NO_GUARDS = "this PyTorch writes none into a program"


def add_code_names(
    inputs: Sequence[GivenInput], names: Sequence[str]
) -> tuple[GivenInput, ...]:
    """Add the names that generated code uses for the inputs.

    Args:
        names: the names of the graph's inputs in order, with or without weights.
    """
    for chosen in ([*inputs], [i for i in inputs if i.role == "input"]):
        if len(chosen) == len(names):
            codes = {i.name: n for i, n in zip(chosen, names, strict=True)}
            return tuple(
                GivenInput(**{**vars(i), "code": codes.get(i.name, i.code)})
                for i in inputs
            )
    return tuple(inputs)


def _inputs(exported: ExportedProgram, flat: Sequence[Any]) -> Iterator[GivenInput]:
    """Yield a description of each input, weight, buffer and constant."""
    placeholders = [n for n in exported.graph.nodes if n.op == "placeholder"]
    specs = exported.graph_signature.input_specs
    for node, spec, real in zip(placeholders, specs, flat, strict=True):
        fake = node.meta.get("val")
        is_tensor = isinstance(real, torch.Tensor)
        declared = fake if isinstance(fake, torch.Tensor) else None
        yield GivenInput(
            name=node.name,
            code=(spec.target or node.name).replace(".", "_"),
            target=spec.target or "",
            role=_ROLES.get(spec.kind, str(spec.kind.name).lower()),
            shape=tuple(map(str, declared.shape)) if declared is not None else (),
            stride=tuple(map(str, declared.stride())) if declared is not None else (),
            dtype=_dtype(declared, fake),
            device=str(declared.device) if declared is not None else "",
            real_shape=tuple(real.shape) if is_tensor else (),
            real_stride=tuple(real.stride()) if is_tensor else (),
        )


def _dtype(declared: torch.Tensor | None, fake: Any) -> str:
    if declared is None:
        return type(fake).__name__
    return str(declared.dtype).removeprefix("torch.")


def _symbols(run: RebuiltCandidate, sizes: SizesByName) -> Iterator[Symbol]:
    """Yield each symbol with its range, value, carriers (input dims) and guards."""
    exported = run.exported
    placeholders = [n for n in exported.graph.nodes if n.op == "placeholder"]
    carriers: dict[str, list[Carrier]] = {}
    for node in placeholders:
        fake = node.meta.get("val")
        for dim, size in enumerate(getattr(fake, "shape", ())):
            if isinstance(size, torch.SymInt):
                for symbol in sorted(map(str, size.node.expr.free_symbols)):
                    carrier = Carrier(node.name, dim, str(size.node.expr))
                    carriers.setdefault(symbol, []).append(carrier)
    values = {str(symbol): value for symbol, value in sizes.items()}
    ranges = {str(s): r for s, r in exported.range_constraints.items()}
    guards = _guards(run)
    for name in dict.fromkeys([*carriers, *ranges]):
        declared = ranges.get(name)
        yield Symbol(
            name=name,
            least=str(declared.lower) if declared is not None else "",
            most=str(declared.upper) if declared is not None else "",
            value=int(values[name]) if name in values else None,
            carriers=tuple(carriers.get(name, ())),
            guards=tuple(text for names, text in guards if name in names),
        )


def _guards(run: RebuiltCandidate) -> list[tuple[set[str], str]]:
    """List the input program's guards on its sizes, with the symbols that they name.

    Candidates lose the guards in decomposition and cutting; a candidate that was
    exported again has the guards that export found.
    """
    declared = conditions(run.original or run.exported)
    return [(names_in(text), text) for text in declared]


@dataclass(frozen=True)
class EagerFacts:
    """The facts that an eager run shows, value by value.

    Attributes:
        ranges: the ranges of integer values.
        untrue: the fake-kernel mismatches.
        layouts: the layouts of all strided tensors, by node name.
        states: the ranges of the buffers that the program writes, if there is more than
            one call.
    """

    ranges: tuple[EagerRange, ...]
    untrue: tuple[FakeMismatch, ...]
    layouts: Mapping[str, EagerLayout]
    states: tuple[EagerState, ...] = ()


def collect_eager_facts(
    run: RebuiltCandidate, second_seed: int, calls: int = 1
) -> EagerFacts:
    """Run the program in eager, node by node, and collect facts from the last call.

    Args:
        second_seed: the seed of a second run. A value that differs between the runs has
            no range in the result, because it may differ in the failing run, too.
        calls: the number of calls.
    """
    flat = flat_inputs(run.exported, run.failing)
    sizes = bind_symbols(run.exported, flat)
    module = run.exported.graph_module
    filled = fx.GraphModule(module, copy.deepcopy(module.graph))
    uninitialised.fill_uninitialized(filled, 1)
    first, second = _IntegerWatcher(module, sizes), _IntegerWatcher(filled, sizes)
    copied = mutates(run.exported)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        if calls > 1:
            flat = compute_call_inputs(run.exported, flat, calls)
        states = (
            tuple(list_buffer_states(run.exported, flat, calls)) if calls > 1 else ()
        )
        torch.manual_seed(SEED)
        first.run(*(_copies(flat) if copied else flat))
        torch.manual_seed(second_seed)
        with contextlib.suppress(Exception):  # uninitialized memory may be an index
            second.run(*(_copies(flat) if copied else flat))
    ranges = tuple(
        EagerRange(name, int(value.min()), int(value.max()))
        for name, value in first.values.items()
        if is_identical(value, second.values.get(name))
    )
    return EagerFacts(ranges, tuple(first.mismatches.found), first.layouts, states)


class _IntegerWatcher(Watcher):
    """Records integer values, and the layouts of all values."""

    def __init__(self, module: fx.GraphModule, sizes: SizesByName) -> None:
        super().__init__(module, MismatchRecorder())
        self.mismatches.sizes = sizes
        self.values: dict[str, torch.Tensor] = {}
        self.layouts: dict[str, EagerLayout] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if _is_strided(value):
            shape, stride = tuple(value.shape), tuple(value.stride())
            fake = n.meta.get("val")
            declared = None
            if isinstance(fake, torch.Tensor) and _is_strided(fake):
                declared = declared_bytes(fake, self.mismatches.sizes)
            nbytes = storage_span(shape, stride) * value.itemsize
            layout = EagerLayout(n.name, shape, stride, nbytes, declared or 0)
            self.layouts[n.name] = layout
        if (
            isinstance(value, torch.Tensor)
            and value.numel()
            and value.dtype in _INTEGER_DTYPES
        ):
            self.values[n.name] = value.detach().clone()
        return value


def _is_strided(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _copies(values: Sequence[Any]) -> list[Any]:
    return [
        value.detach().clone() if isinstance(value, torch.Tensor) else value
        for value in values
    ]


def compute_call_inputs(
    exported: ExportedProgram, inputs: Sequence[Any], call: int
) -> list[Any]:
    """Return a program's flat inputs for a call, with the buffers of earlier calls.

    Args:
        call: the number of the call, from 1.
    """
    specs = exported.graph_signature.input_specs
    names = [spec.target for spec in specs]
    values = [copy_value(value) for value in inputs]
    for _ in range(call - 1):
        torch.manual_seed(SEED)
        with torch.no_grad():
            outputs = fx.Interpreter(exported.graph_module).run(*values)
        for index, spec in enumerate(specs):
            if spec.kind is InputKind.USER_INPUT:
                values[index] = copy_value(inputs[index])
        for (target, _), value in zip(_list_mutations(exported), outputs, strict=False):
            if target in names:
                values[names.index(target)] = value
    return values


def list_buffer_states(
    exported: ExportedProgram, values: Sequence[Any], call: int
) -> Iterator[EagerState]:
    """Yield the ranges of the numeric buffers that the program writes."""
    sources = dict(_list_mutations(exported))
    placeholders = exported.graph.find_nodes(op="placeholder")
    specs = exported.graph_signature.input_specs
    for node, spec, value in zip(placeholders, specs, values, strict=True):
        if spec.target not in sources or not isinstance(value, torch.Tensor):
            continue
        if not value.numel() or value.is_complex() or value.dtype is torch.bool:
            continue
        bounds = value.min().item(), value.max().item()
        yield EagerState(node.name, call, sources[spec.target], *map(str, bounds))


def _list_mutations(exported: ExportedProgram) -> list[tuple[str, str]]:
    """Pair each mutated input or buffer with the name of the node that it receives."""
    specs = exported.graph_signature.output_specs
    return [
        (spec.target, spec.arg.name)
        for spec in specs
        if spec.kind in MUTATIONS and spec.target and hasattr(spec.arg, "name")
    ]
