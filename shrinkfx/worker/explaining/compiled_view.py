"""Record the compiled-program view while a program is compiled and run.

The record is in a folder: ``anatomy.json``, written before each stage, and
``telling``, to which the kernels write while they run. Both are on
disk early, because the process may die at any point.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import linecache
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from shrinkfx.failure.signature import Stage
from shrinkfx.program.sizes import names_in
from shrinkfx.protocol.choices import Build
from shrinkfx.protocol.compiled_program_view import (
    Anatomy,
    EagerRange,
    GivenInput,
    KernelFault,
    KernelLaunch,
    KernelText,
    LineOrigin,
    MadeBuffer,
    SizeSymbol,
    StrayAccess,
)
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.worker.eager import intermediates
from shrinkfx.worker.eager.intermediates import SEED
from shrinkfx.worker.explaining.kernel_tracing import (
    ADDED_LINE_MARK,
    TRACE_FILE_VARIABLE,
    instrument_kernel,
)
from shrinkfx.worker.explaining.origins import find_origins
from shrinkfx.worker.explaining.recording import wrap_method
from shrinkfx.worker.explaining.values import is_identical
from shrinkfx.worker.forkserver.supervise import Note
from shrinkfx.worker.graph.describe import mutates
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.interpreter.findings import KernelFinding, Probe, Report
from shrinkfx.worker.interpreter.memory_checks import CHECKER, place_of_launch
from shrinkfx.worker.model import flat_inputs
from shrinkfx.worker.private_api import codegen_api
from shrinkfx.worker.sizes.bindings import (
    SizesByName,
    bind_symbols,
)
from shrinkfx.worker.sizes.read_space import conditions


@contextlib.contextmanager
def record_compiled_view(
    folder: Path, run: RebuiltCandidate, note: Note, build: Path, options: CheckOptions
) -> Iterator[Note]:
    """Write the compiled-program view into a folder while the block compiles and runs.

    Args:
        build: the folder where the program is compiled.
        options: the options of the check. In the fast build, which is used for a first
            look, kernels also report the line of a fault, which takes more changes to
            their code. If values are compared, kernels are not changed.

    Yields:
        The function with which to note stages.
    """
    trace_file = folder / "telling"
    trace_file.unlink(missing_ok=True)  # from an earlier run, which did not fail
    os.environ[TRACE_FILE_VARIABLE] = str(trace_file)
    instruments = options.values is None  # changed kernels may compute other values
    recorder = _ViewRecorder(
        describe_program_inputs(run),
        instruments=instruments,
        lines_too=options.build is Build.FAST,
    )

    def noted(stage: str) -> None:
        if stage == Stage.LOAD and options.reference and instruments:
            seed = SEED if options.fallback_random else SEED + 1
            recorder.add_eager(run, seed)
        _write_view(folder, recorder.build_view(build))
        note(stage)

    # Inductor would drop its provenance data at the end of a compilation.
    patched = mock.patch.object(
        codegen_api.debug, "reset_provenance_globals", contextlib.nullcontext
    )
    with patched, recorder.patch_codegen():
        try:
            yield noted
        except Exception as error:
            view = replace(
                recorder.build_view(build), out_of_bounds=describe_first_finding(error)
            )
            _write_view(folder, view)
            raise


def _write_view(folder: Path, view: Anatomy) -> None:
    """Write the file atomically, because the child may die here as anywhere."""
    draft = folder / "anatomy.tmp"
    draft.write_text(view.to_line())
    draft.rename(folder / "anatomy.json")


class _ViewRecorder:
    """The compiled-program view of the latest graph that Inductor compiles."""

    def __init__(self, view: Anatomy, *, instruments: bool, lines_too: bool) -> None:
        self._view = view
        self._instruments = instruments
        self._lines_too = lines_too
        self._graph: Any = None
        self._lines = LineOrigins()
        self._reset()

    def _reset(self) -> None:
        """Forget the facts about the previous graph."""
        self._kernels: dict[str, KernelText] = {}
        self._launches: list[KernelLaunch] = []
        self._buffers: dict[str, MadeBuffer] = {}
        self._reused: dict[str, str] = {}
        self._inputs: tuple[str, ...] = ()

    def add_eager(self, run: RebuiltCandidate, second_seed: int) -> None:
        """Add facts of the eager run that a run with another seed confirms."""
        ranges = collect_eager_ranges(run, second_seed)
        self._view = replace(self._view, eager=ranges)

    def build_view(self, build: Path) -> Anatomy:
        """Return the compiled-program view as known so far."""
        places = _first_lines(build, self._kernels)
        return replace(
            self._view,
            inputs=add_code_names(self._view.inputs, self._inputs),
            kernels=tuple(
                replace(kernel, first_line=places.get(name, 0))
                for name, kernel in self._kernels.items()
            ),
            launches=_add_launch_nodes(self._launches),
            buffers=tuple(self._buffers.values()),
        )

    @contextlib.contextmanager
    def patch_codegen(self) -> Iterator[None]:
        """Patch the methods that write the wrapper to record what they write."""
        hooks = {
            "define_kernel": self._define,
            "generate_kernel_call": self._call,
            "codegen_inplace_reuse": self._reuse,
        }
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._lines.record_lines())
            for name, hook in hooks.items():
                owner = codegen_api.PythonWrapperCodegen
                stack.enter_context(wrap_method(owner, name, hook))
            yield

    def _define(
        self, define: Any, wrapper: Any, name: str, body: str, *args: Any, **more: Any
    ) -> Any:
        """Record a kernel's text, and instrument the kernel."""
        self._reset_for_new_graph()
        lines, is_inside = self._lines.take_origins(), bool(_get_subgraph_prefix())
        self._kernels[name] = KernelText(name, body, lines, inside=is_inside)
        if self._instruments:
            body = instrument_kernel(body, lines_too=self._lines_too)
        return define(wrapper, name, body, *args, **more)

    def _call(
        self,
        call: Any,
        wrapper: Any,
        name: str,
        arguments: Any,
        *args: Any,
        **more: Any,
    ) -> Any:
        """Record a launch with its arguments."""
        self._reset_for_new_graph()
        names = tuple(self._describe(str(argument)) for argument in arguments)
        self._launches.append(KernelLaunch(name, names))
        return call(wrapper, name, arguments, *args, **more)

    def _reuse(
        self, reuse: Any, wrapper: Any, old: Any, new: Any, *rest: Any, **more: Any
    ) -> Any:
        """Record which buffers share memory."""
        self._reset_for_new_graph()
        prefix = _get_subgraph_prefix()
        self._reused[prefix + new.get_name()] = prefix + old.get_name()
        return reuse(wrapper, old, new, *rest, **more)

    def _describe(self, name: str) -> str:
        """Record the buffer behind an argument; return the argument's unique name."""
        prefix = _get_subgraph_prefix()
        if (buffer := _describe_buffer(name)) is None:
            return name
        reused = self._reused.get(prefix + name, "")
        if prefix:  # a subgraph's node names may clash with the program's
            buffer = replace(buffer, name=prefix + name, nodes=(), result="")
        self._buffers[prefix + name] = replace(buffer, instead_of=reused)
        if reused and reused not in self._buffers:
            self._describe(reused.removeprefix(prefix))
        return prefix + name

    def _reset_for_new_graph(self) -> None:
        """Forget another graph's kernels, because a program may be compiled again."""
        graph: Any = codegen_api.V.graph
        while (outer := getattr(graph, "parent", None)) is not None:
            graph = outer
        if graph is not self._graph:
            self._graph = graph
            self._reset()
            self._inputs = tuple(graph.graph_input_names)


def _get_subgraph_prefix() -> str:
    """Return the name of the current subgraph with a trailing dot, or ''."""
    return (
        f"{codegen_api.V.graph.name}."
        if getattr(codegen_api.V.graph, "parent", None) is not None
        else ""
    )


def _describe_buffer(name: str) -> MadeBuffer | None:
    """Describe a buffer by Inductor's data; None if the name is no buffer."""
    find = getattr(
        codegen_api.V.graph, "try_get_buffer", codegen_api.V.graph.get_buffer
    )
    buffer = find(name)
    layout: Any = getattr(buffer, "layout", None)
    if not hasattr(layout, "size"):
        return None
    nodes = _nodes(buffer)
    return MadeBuffer(
        name,
        tuple(dict.fromkeys(o for n in nodes for o in find_origins(n))),
        _find_result_node(buffer),
        tuple(map(str, layout.size)),
        tuple(map(str, layout.stride)),
        str(layout.dtype).removeprefix("torch."),
    )


def _nodes(buffer: Any) -> list[fx.Node]:
    """List the nodes that compute a buffer; for an operator's result only its node."""
    nodes = [n for n in getattr(buffer, "origins", ()) if isinstance(n, fx.Node)]
    inputs = getattr(buffer, "inputs", None)
    makers = [buffer, *(inputs[:1] if isinstance(inputs, list) else ())]
    for maker in makers:
        called = getattr(maker, "op_overload", None)
        if matching := [n for n in nodes if called is not None and n.target == called]:
            return matching
    return nodes


def _find_result_node(buffer: Any) -> str:
    """Return the name of the program's node whose result a buffer is, or ''."""
    find = getattr(buffer, "get_origin_node", None)
    node = find() if find else None
    if node is None and len(nodes := _nodes(buffer)) == 1:
        (node,) = nodes
    if not isinstance(node, fx.Node) or len(origins := find_origins(node)) != 1:
        return ""
    candidates = [
        n for n in node.graph.nodes if n.op == node.op and find_origins(n) == origins
    ]
    return origins[0] if candidates[-1] is node else ""


def _add_launch_nodes(launches: Sequence[KernelLaunch]) -> tuple[KernelLaunch, ...]:
    """Add the nodes that each launch computes, from Inductor's provenance data."""
    kernels = codegen_api.debug.create_kernel_information_json()
    ordered = sorted(kernels, key=lambda name: int(name.rpartition(":")[2]))
    nodes: dict[str, list[tuple[str, ...]]] = {}
    for name in ordered:
        computed = tuple(kernels[name]["pre_grad_nodes"])
        nodes.setdefault(name.rpartition(":")[0], []).append(computed)
    return tuple(
        replace(launch, nodes=pending.pop(0))
        if (pending := nodes.get(launch.kernel))
        else launch
        for launch in launches
    )


def _first_lines(build: Path, kernels: dict[str, KernelText]) -> dict[str, int]:
    """Return each kernel's first line in the compiled files, without added lines."""
    first_lines: dict[str, int] = {}
    for file in build.rglob("*.cpp") if kernels else ():
        added = 0
        for number, line in enumerate(file.read_text(errors="replace").split("\n"), 1):
            added += line.endswith(ADDED_LINE_MARK)
            for name, kernel in kernels.items():
                head = next((t for t in kernel.text.split("\n") if f"{name}(" in t), "")
                if head and line.startswith(head.rstrip()) and name not in first_lines:
                    above = kernel.text[: kernel.text.index(head)].count("\n")
                    first_lines[name] = number - added - above
    return first_lines


def describe_first_finding(error: BaseException) -> StrayAccess | None:
    """Describe the first finding; return None if another error ended the run."""
    if not isinstance(error, Report):
        return None
    finding = error.findings[0]
    text, line = _kernel_text(finding)
    launched = CHECKER.launched[-1] if CHECKER.launched else None
    argument = launched.arguments.get(finding.argument) if launched else None
    return StrayAccess(
        **{each.name: getattr(finding, each.name) for each in fields(KernelFault)},
        fault=str(finding.fault),
        user=any(name.startswith("user kernel ") for name in finding.operators),
        line=line,
        text=text,
        grid=launched.grid if launched else (),
        launch=place_of_launch(finding),
        values=tuple(f"{name}={value}" for name, value in finding.values),
        shape=argument.shape if argument else (),
        stride=argument.stride if argument else (),
        made_up=finding.probe is Probe.HINTS,
    )


def _kernel_text(finding: KernelFinding) -> tuple[str, int]:
    """Return the text of the function around a finding's line, and the line's index.

    Returns:
        '' and -1 if the file is not readable.
    """
    lines = [line.rstrip("\n") for line in linecache.getlines(finding.file)]
    if not 0 < finding.line <= len(lines):
        return "", -1
    begin = finding.line - 1
    while begin > 0 and not re.match(r"\s*def \w+\(", lines[begin]):
        begin -= 1
    indent = len(lines[begin]) - len(lines[begin].lstrip())
    end = finding.line
    while end < len(lines) and (
        not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > indent
    ):
        end += 1
    return "\n".join(lines[begin:end]).rstrip(), finding.line - 1 - begin


# Record for which program node each line of generated code was written.
#
# Inductor keeps this for a kernel, not for its lines. A lowering creates a function
# that computes one element; it runs again and again, nested in the functions of the
# nodes that read it, until code is written. So each such function is wrapped to push
# its node onto a stack: an operation that is traced belongs to the innermost node,
# and keeps it in its metadata.

_META = "shrinkfx_node"
_ELEMENT_FUNCTIONS = ("inner_fn", "output_indexer")


class LineOrigins:
    """Collects the origins of lines in the order in which they are written."""

    def __init__(self) -> None:
        self._stack: list[fx.Node] = []
        self._written: dict[tuple[str, str], tuple[str, ...]] = {}

    def take_origins(self) -> tuple[LineOrigin, ...]:
        """Return the line origins of the kernel just written, and forget them."""
        written, self._written = self._written, {}
        return tuple(LineOrigin(*key, nodes) for key, nodes in written.items())

    @contextlib.contextmanager
    def record_lines(self) -> Iterator[None]:
        """Record the lines that are written in the block."""
        with (
            wrap_method(codegen_api.ir.Loops, "create", self._create),
            wrap_method(
                codegen_api.loop_body.LightTracer, "create_node", self._create_node
            ),
            wrap_method(codegen_api.common.CSE, "generate", self._generate),
        ):
            yield

    def _create(self, create: Any, cls: type, *args: Any, **kwargs: Any) -> Any:
        """Wrap the element functions of the current node."""
        node = getattr(codegen_api.V.graph, "current_node", None)
        if isinstance(node, fx.Node):
            for name in _ELEMENT_FUNCTIONS:
                if callable(function := kwargs.get(name)):
                    kwargs[name] = self._wrap_element_function(node, function)
        return create(cls, *args, **kwargs)

    def _wrap_element_function(
        self, node: fx.Node, function: Callable[..., Any]
    ) -> Any:
        """Wrap a node's element function to push the node while it runs."""

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self._stack.append(node)
            try:
                return function(*args, **kwargs)
            finally:
                self._stack.pop()

        return wrapped

    def _create_node(self, create: Any, tracer: Any, *args: Any, **kwargs: Any) -> Any:
        """Store the innermost node in an operation of a loop body."""
        created = create(tracer, *args, **kwargs)
        # A body may be traced again from an old one, which has the metadata.
        if node := self._stack[-1] if self._stack else _find_current_node():
            created.meta[_META] = node
        return created

    def _generate(
        self, generate: Any, cse: Any, buffer: Any, expr: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Record the node of a line that is written."""
        variable = generate(cse, buffer, expr, *args, **kwargs)
        node = _find_current_node()
        if node is not None and isinstance(expr, str):
            assigns = kwargs.get("assignment", True)
            key = (str(variable) if assigns else "", expr)
            # Another loop of the kernel may have the same line.
            known = self._written.get(key, ())
            self._written[key] = tuple(dict.fromkeys([*known, *find_origins(node)]))
        return variable


def _find_current_node() -> fx.Node | None:
    """Return the program node of the operation that is written now, or None."""
    current = getattr(codegen_api.V.interpreter, "current_node", None)
    node = current.meta.get(_META) if isinstance(current, fx.Node) else None
    return node if isinstance(node, fx.Node) else None


# Describe a program's inputs and symbols, as declared and in the run.
#
# Also run the program in eager to collect integer ranges, layouts and fake-kernel
# mismatches.

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


_REDONE = "shrinkfx exported the program again, which renamed its size symbols"
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
            return tuple(replace(i, code=codes.get(i.name, i.code)) for i in inputs)
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


def _symbols(run: RebuiltCandidate, sizes: SizesByName) -> Iterator[SizeSymbol]:
    """Yield each symbol with its range, its value, an input dim and its guards.

    The dim is one that is the symbol itself, or else one that is computed from it.
    """
    exported = run.exported
    placeholders = [n for n in exported.graph.nodes if n.op == "placeholder"]
    carriers: dict[str, tuple[str, int | None, str]] = {}
    for node in placeholders:
        for dim, size in enumerate(getattr(node.meta.get("val"), "shape", ())):
            if isinstance(size, torch.SymInt):
                text = str(size.node.expr)
                for symbol in sorted(map(str, size.node.expr.free_symbols)):
                    if symbol not in carriers or text == symbol != carriers[symbol][2]:
                        carriers[symbol] = node.name, dim, text
    values = {str(symbol): value for symbol, value in sizes.items()}
    ranges = {str(s): r for s, r in exported.range_constraints.items()}
    guards = _guards(run)
    for name in dict.fromkeys([*carriers, *ranges]):
        declared = ranges.get(name)
        yield SizeSymbol(
            name,
            int(values[name]) if name in values else None,
            str(declared.lower) if declared is not None else "",
            str(declared.upper) if declared is not None else "",
            *carriers.get(name, ("", None, "")),
            tuple(text for names, text in guards if name in names),
        )


def _guards(run: RebuiltCandidate) -> list[tuple[set[str], str]]:
    """List the input program's guards on its sizes, with the symbols that they name.

    Candidates lose the guards in decomposition and cutting; a candidate that was
    exported again has the guards that export found.
    """
    declared = conditions(run.original or run.exported)
    return [(names_in(text), text) for text in declared]


def collect_eager_ranges(
    run: RebuiltCandidate, second_seed: int
) -> tuple[EagerRange, ...]:
    """Run one call in eager, node by node, and collect the ranges of integer values.

    Args:
        second_seed: the seed of a second run. A value that differs between the runs has
            no range in the result, because it may differ in the failing run, too.
    """
    flat = flat_inputs(run.exported, run.failing)
    module = run.exported.graph_module
    filled = fx.GraphModule(module, copy.deepcopy(module.graph))
    intermediates.fill_uninitialized(filled, 1)
    first, second = _IntegerRecorder(module), _IntegerRecorder(filled)
    copied = mutates(run.exported)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(SEED)
        first.run(*(map(intermediates.copy_value, flat) if copied else flat))
        torch.manual_seed(second_seed)
        with contextlib.suppress(Exception):  # uninitialized memory may be an index
            second.run(*(map(intermediates.copy_value, flat) if copied else flat))
    return tuple(
        EagerRange(name, int(value.min()), int(value.max()))
        for name, value in first.values.items()
        if is_identical(value, second.values.get(name))
    )


class _IntegerRecorder(fx.Interpreter):
    """Records integer values."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.values: dict[str, torch.Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        is_filled = isinstance(value, torch.Tensor) and value.numel() > 0
        if is_filled and value.dtype in _INTEGER_DTYPES:
            self.values[n.name] = value.detach().clone()
        return value
