"""Record the compiled-program view while a program is compiled and run.

The record is in a folder: ``anatomy.json``, written before each stage, and
``telling``, to which the kernels write while they run (``telling.py``). Both are on
disk early, because the process may die at any point.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import sympy
from torch import fx

from shrinkfx.failure.signature import Stage
from shrinkfx.protocol.choices import Build
from shrinkfx.protocol.compiled_program_view import (
    Anatomy,
    KernelLaunch,
    KernelText,
    LineOrigin,
    MadeBuffer,
    StrayAccess,
    TimedSize,
)
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.worker.eager.intermediates import SEED
from shrinkfx.worker.explaining.kernel_tracing import (
    ADDED_LINE_MARK,
    TRACE_FILE_VARIABLE,
    instrument_kernel,
)
from shrinkfx.worker.explaining.origins import find_origins
from shrinkfx.worker.explaining.program_facts import (
    add_code_names,
    collect_eager_facts,
    describe_program_inputs,
)
from shrinkfx.worker.forkserver.supervise import Note
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.interpreter.findings import KernelFinding, Probe, Report
from shrinkfx.worker.interpreter.memory_checks.bounds import CHECKER, place_of_launch
from shrinkfx.worker.private_api import codegen_api
from shrinkfx.worker.private_api.inductor_api import config


@contextlib.contextmanager
def record_compiled_view(
    folder: Path, run: RebuiltCandidate, note: Note, build: Path, options: CheckOptions
) -> Iterator[Note]:
    """Write the compiled-program view into a folder while the block compiles and runs.

    Args:
        build: the folder where the program is compiled.
        options: the options of the check. In the fast build, which is used for a first
            look, kernels also report the line of a fault, which takes more changes to
            their code.

    Yields:
        The function with which to note stages.
    """
    trace_file = folder / "telling"
    trace_file.unlink(missing_ok=True)  # from an earlier run, which did not fail
    os.environ[TRACE_FILE_VARIABLE] = str(trace_file)
    recorder = _ViewRecorder(
        describe_program_inputs(run), lines_too=options.build is Build.FAST
    )

    def noted(stage: str) -> None:
        if stage == Stage.LOAD and options.reference:
            seed = SEED if options.fallback_random else SEED + 1
            recorder.add_eager(run, seed, options.calls)
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

    def __init__(self, view: Anatomy, *, lines_too: bool) -> None:
        self._view = view
        self._lines_too = lines_too
        self._graph: Any = None
        self._lines = LineOrigins()
        self._timed = TimedSizes()
        self._reset()

    def _reset(self) -> None:
        """Forget the facts about the previous graph."""
        self._kernels: dict[str, KernelText] = {}
        self._launches: list[KernelLaunch] = []
        self._buffers: dict[str, MadeBuffer] = {}
        self._reused: dict[str, str] = {}
        self._inputs: tuple[str, ...] = ()
        self._timed.reset()

    def add_eager(self, run: RebuiltCandidate, second_seed: int, calls: int) -> None:
        """Add facts of the eager run that a run with another seed confirms."""
        facts = collect_eager_facts(run, second_seed, calls)
        results = {b.result for b in self._buffers.values() if b.handed}
        self._view = replace(
            self._view,
            eager=facts.ranges,
            untrue=facts.untrue,
            states=facts.states,
            real=tuple(real for name, real in facts.layouts.items() if name in results),
        )

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
            timed=tuple(self._timed.found),
        )

    @contextlib.contextmanager
    def patch_codegen(self) -> Iterator[None]:
        """Patch the methods that write the wrapper to record what they write."""
        owner = codegen_api.PythonWrapperCodegen
        wraps = {
            "define_kernel": self._define,
            "generate_kernel_call": self._call,
            "codegen_inplace_reuse": self._reuse,
        }
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._lines.record_lines())
            stack.enter_context(self._timed.record_timed_sizes())
            for name, wrap in wraps.items():
                stack.enter_context(mock.patch.object(owner, name, wrap(owner)))
            yield

    def _define(self, owner: Any) -> Callable[..., Any]:
        """Wrap ``define_kernel``: record a kernel's text, and instrument the kernel."""
        original = owner.define_kernel

        @functools.wraps(original)
        def wrapped(wrapper: Any, name: str, body: str, *args: Any, **more: Any) -> Any:
            self._reset_for_new_graph()
            lines = self._lines.take_origins()
            self._kernels[name] = KernelText(
                name, body, lines, inside=bool(_get_subgraph_prefix())
            )
            body = instrument_kernel(body, lines_too=self._lines_too)
            return original(wrapper, name, body, *args, **more)

        return wrapped

    def _call(self, owner: Any) -> Callable[..., Any]:
        """Wrap ``generate_kernel_call``: record a launch with its arguments."""
        original = owner.generate_kernel_call

        @functools.wraps(original)
        def wrapped(
            wrapper: Any, name: str, arguments: Any, *args: Any, **more: Any
        ) -> Any:
            self._reset_for_new_graph()
            names = tuple(self._describe(str(argument)) for argument in arguments)
            self._launches.append(KernelLaunch(name, names))
            return original(wrapper, name, arguments, *args, **more)

        return wrapped

    def _reuse(self, owner: Any) -> Callable[..., Any]:
        """Wrap ``codegen_inplace_reuse``: record which buffers share memory."""
        original = owner.codegen_inplace_reuse

        @functools.wraps(original)
        def wrapped(wrapper: Any, old: Any, new: Any, *rest: Any, **more: Any) -> Any:
            self._reset_for_new_graph()
            prefix = _get_subgraph_prefix()
            self._reused[prefix + new.get_name()] = prefix + old.get_name()
            return original(wrapper, old, new, *rest, **more)

        return wrapped

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
        handed=isinstance(
            buffer, (codegen_api.ir.ExternKernelAlloc, codegen_api.ir.MultiOutput)
        ),
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
    layout = launched.layouts.get(finding.argument) if launched else None
    return StrayAccess(
        fault=str(finding.fault),
        kernel=finding.kernel,
        user=any(name.startswith("user kernel ") for name in finding.operators),
        line=line,
        text=text,
        argument=finding.argument,
        role=finding.role,
        offset=finding.offset,
        elements=finding.elements,
        item_bytes=finding.item_bytes,
        lanes=finding.lanes,
        program=finding.program,
        grid=launched.grid if launched else (),
        launch=place_of_launch(finding),
        message=finding.message,
        values=tuple(f"{name}={value}" for name, value in finding.values),
        shape=layout.shape if layout else (),
        stride=layout.stride if layout else (),
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


# Find sizes with which AOTInductor times a kernel by mistake.
#
# Code generation records launches graph by graph, and computes their benchmark
# arguments later, when another graph may be current. Each graph has its own table of
# precomputed sizes (``ps0``). So this compares the values in both graphs: the one of
# the launch, and the one that is current then.
#
# Private APIs: ``generate_kernel_call``, ``_generate_kernel_call_helper`` and
# ``generate_example_arg_value`` of torch/_inductor/codegen/wrapper.py, and
# ``SizeVarAllocator.remove_precomputed_replacements`` (2.11 to 2.13).


class TimedSizes:
    """Collects benchmark sizes that differ from the sizes in the kernel's own graph."""

    def __init__(self) -> None:
        self.found: list[TimedSize] = []
        self._graphs: dict[str, codegen_api.GraphLowering] = {}
        self._kernel = ""

    def reset(self) -> None:
        """Forget the sizes of another program."""
        self.found, self._graphs = [], {}

    @contextlib.contextmanager
    def record_timed_sizes(self) -> Iterator[None]:
        """Record the sizes of the kernels that are timed in the block."""
        owner = codegen_api.PythonWrapperCodegen
        wraps = {
            "generate_kernel_call": self._wrap_kernel_call,
            "_generate_kernel_call_helper": self._wrap_call_helper,
            "generate_example_arg_value": self._wrap_example_value,
        }
        with contextlib.ExitStack() as stack:
            for name, wrap in wraps.items():
                patch = mock.patch.object(owner, name, wrap(getattr(owner, name)))
                stack.enter_context(patch)
            yield

    def _wrap_kernel_call(self, original: Any) -> Any:
        """Wrap ``generate_kernel_call``: record the graph of the first launch."""

        @functools.wraps(original)
        def wrapped(wrapper: Any, name: str, *args: Any, **more: Any) -> Any:
            self._graphs.setdefault(
                name, codegen_api.V.graph
            )  # a kernel is timed at its first launch
            return original(wrapper, name, *args, **more)

        return wrapped

    def _wrap_call_helper(self, original: Any) -> Any:
        """Wrap ``_generate_kernel_call_helper``: record which kernel is timed."""

        @functools.wraps(original)
        def wrapped(wrapper: Any, name: str, *args: Any, **more: Any) -> Any:
            self._kernel = name
            return original(wrapper, name, *args, **more)

        return wrapped

    def _wrap_example_value(self, original: Any) -> Any:
        """Wrap ``generate_example_arg_value``: compare the size that it returns."""

        @functools.wraps(original)
        def wrapped(wrapper: Any, argument: Any, *args: Any, **more: Any) -> Any:
            text = original(wrapper, argument, *args, **more)
            graph = self._graphs.get(self._kernel)
            size = getattr(argument, "inner_expr", argument)
            if graph is not None and isinstance(size, sympy.Expr) and text.isdigit():
                self._compare(str(argument), size, graph, int(text))
            return text

        return wrapped

    def _compare(
        self, name: str, size: sympy.Expr, graph: codegen_api.GraphLowering, value: int
    ) -> None:
        """Record a size whose benchmark value differs from its graph's value."""
        meant = int(graph.sizevars.optimization_hint(size))
        if meant == value:
            return
        current: Any = codegen_api.V.graph
        there = current.sizevars.remove_precomputed_replacements(size)
        is_known = not any(
            codegen_api.symbol_is_type(symbol, codegen_api.SymT.PRECOMPUTED_SIZE)
            for symbol in there.free_symbols
        )
        fallback = getattr(config, "unbacked_symint_fallback", None)
        self.found.append(
            TimedSize(
                kernel=self._kernel,
                name=name,
                graph=graph.name or "",
                stands_for=str(graph.sizevars.remove_precomputed_replacements(size)),
                meant=meant,
                searched_graph=current.name or "",
                there=str(there) if is_known else "",
                value=value,
                is_fallback=not is_known and value == fallback,
            )
        )


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
        with contextlib.ExitStack() as stack:
            for owner, name, wrap in (
                (codegen_api.ir.Loops, "create", self._create),
                (codegen_api.loop_body.LightTracer, "create_node", self._create_node),
                (codegen_api.common.CSE, "generate", self._generate),
            ):
                wrapped = wrap(getattr(owner, name))
                stack.enter_context(mock.patch.object(owner, name, wrapped))
            yield

    def _create(self, original: Any) -> Any:
        """Wrap ``Loops.create``: wrap the element functions of the current node."""
        create = original.__func__

        @functools.wraps(create)
        def wrapped(cls: type, *args: Any, **kwargs: Any) -> Any:
            node = getattr(codegen_api.V.graph, "current_node", None)
            if isinstance(node, fx.Node):
                for name in _ELEMENT_FUNCTIONS:
                    if callable(function := kwargs.get(name)):
                        kwargs[name] = self._wrap_element_function(node, function)
            return create(cls, *args, **kwargs)

        return classmethod(wrapped)

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

    def _create_node(self, original: Callable[..., Any]) -> Any:
        """Wrap the tracer of loop bodies: store the innermost node in operations."""

        @functools.wraps(original)
        def wrapped(tracer: Any, *args: Any, **kwargs: Any) -> Any:
            created = original(tracer, *args, **kwargs)
            # A body may be traced again from an old one, which has the metadata.
            if node := self._stack[-1] if self._stack else _find_current_node():
                created.meta[_META] = node
            return created

        return wrapped

    def _generate(self, original: Callable[..., Any]) -> Any:
        """Wrap ``CSE.generate``: record the node of each line that it writes."""

        @functools.wraps(original)
        def wrapped(cse: Any, buffer: Any, expr: Any, *args: Any, **kwargs: Any) -> Any:
            variable = original(cse, buffer, expr, *args, **kwargs)
            node = _find_current_node()
            if node is not None and isinstance(expr, str):
                assigns = kwargs.get("assignment", True)
                key = (str(variable) if assigns else "", expr)
                # Another loop of the kernel may have the same line.
                known = self._written.get(key, ())
                self._written[key] = tuple(dict.fromkeys([*known, *find_origins(node)]))
            return variable

        return wrapped


def _find_current_node() -> fx.Node | None:
    """Return the program node of the operation that is written now, or None."""
    current = getattr(codegen_api.V.interpreter, "current_node", None)
    node = current.meta.get(_META) if isinstance(current, fx.Node) else None
    return node if isinstance(node, fx.Node) else None
