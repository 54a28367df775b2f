"""Facts that a check writes: evidence for its cause, and what a repro needs."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Self
from unittest import mock

import torch
from torch import fx

from shrinkfx.failure.signature import Stage
from shrinkfx.program.listing.printed_program import PrintedProgram
from shrinkfx.protocol.answers import Printed
from shrinkfx.protocol.choices import InductorOptions
from shrinkfx.protocol.files import Code, Launch, Traces
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.protocol.source import Source
from shrinkfx.worker.checking.reference import Reference
from shrinkfx.worker.cpu_memory import guard_pages
from shrinkfx.worker.explaining.compiled_code import locate_kernels, read_excerpt
from shrinkfx.worker.explaining.origins import find_origins
from shrinkfx.worker.forkserver.supervise import Note
from shrinkfx.worker.graph import describe
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.interpreter.findings import Report
from shrinkfx.worker.interpreter.memory_checks import place_of_launch
from shrinkfx.worker.listing.build import collect_file_values, print_listing
from shrinkfx.worker.loading.devices import gpu_of
from shrinkfx.worker.printing.anonymize import anonymize
from shrinkfx.worker.printing.module import (
    arguments_of,
    long_values,
    print_if_possible,
)
from shrinkfx.worker.private_api import codegen_api

# It is written to a file before each stage, because a process that crashes sends no
# answer.

PROVENANCE: InductorOptions = {"trace.provenance_tracking_level": 1}
"""The option that makes Inductor record the nodes in each kernel. It changes only
comments in the generated code."""


@contextlib.contextmanager
def collect_evidence(path: Path, note: Note) -> Iterator[Note]:
    """Write evidence to ``path`` while a program is compiled and run in the context.

    Yields:
        The function to note stages with.
    """

    def noted(stage: str) -> None:
        traces = _traces(path)
        if stage in (Stage.PASSING, Stage.RUN):
            traces = replace(traces, code=_code(traces))
        _write_traces(path, traces)
        note(stage)

    guard_pages.report_code_address()
    if codegen_api.FEATURE.missing:
        yield noted
        return
    # Inductor resets its records when a compilation ends, also after a failure.
    patched = mock.patch.object(
        codegen_api.debug, "reset_provenance_globals", contextlib.nullcontext
    )
    with patched:
        try:
            yield noted
        except Exception as error:
            node = find_current_node(error)
            traces = replace(
                _traces(path),
                message=str(error),
                at_work=str(node.target) if node is not None else "",
                raised_at=tuple(
                    map(tuple, find_undeclared_size(error) or find_raising_nodes(error))
                ),
                kernel=find_kernel(error),
                launch=find_launch_number(error),
                excerpt=read_excerpt(str(error)),
            )
            _write_traces(path, traces)
            raise


def _write_traces(path: Path, traces: Traces) -> None:
    """Write the file in one step, because the child may die at any point."""
    draft = path.with_name(f"{path.name}.tmp")
    draft.write_text(traces.to_line())
    draft.rename(path)


def _traces(path: Path) -> Traces:
    """Return the traces in the file, with the launches that are known now."""
    known = Traces.from_line(path.read_text()) if path.exists() else Traces()
    # A check that runs a package of an earlier check knows no launches.
    return replace(known, launches=launches() or known.launches)


def _code(traces: Traces) -> tuple[Code, ...]:
    """Return the code addresses of the kernels that are about to run."""
    kernels = {launch.kernel for launch in traces.launches}
    try:
        return locate_kernels(kernels, Path(os.environ["TMPDIR"]))
    except (OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
        print(f"shrinkfx: the addresses of kernels are unknown: {error}", flush=True)
        return ()


def launches() -> tuple[Launch, ...]:
    """Return the kernels in the order of their launches, with the nodes of each."""
    if codegen_api.FEATURE.missing:
        return ()
    kernels = codegen_api.debug.create_kernel_information_json()
    ordered = sorted(kernels, key=lambda name: int(name.rpartition(":")[2]))
    return tuple(
        Launch(name.rpartition(":")[0], tuple(kernels[name]["pre_grad_nodes"]))
        for name in ordered
    )


def find_raising_nodes(error: BaseException) -> list[list[str]]:
    """Return the nodes that Inductor worked on, those of the innermost call first.

    They are found in the local variables of the frames, because a message seldom names
    a node, and never names a node of the program itself.
    """
    groups: list[list[str]] = []
    for frame in _frames(error):
        nodes = _nodes_in(frame)
        names = list(dict.fromkeys(n for node in nodes for n in find_origins(node)))
        if names and names not in groups:
            groups.append(names)
    return groups


def find_undeclared_size(error: BaseException) -> list[list[str]]:
    """Return the nodes of a size that generated code uses but does not declare."""
    symbol = _UNDECLARED.search(str(error))
    if symbol is None:
        return []
    for frame in _frames(error):
        for value in list(frame.f_locals.values()):
            for node in _nodes_of(value):
                bound = node.meta.get("unbacked_bindings") or ()
                if (symbol[1] or symbol[2]) in map(str, bound):
                    return [find_origins(node)]
    return []


def _nodes_of(value: Any) -> list[fx.Node]:
    """Return the nodes of a graph that a local variable holds, or []."""
    # An object that an error left incomplete may raise anything, and so may a proxy.
    with contextlib.suppress(Exception):
        if isinstance(value, fx.GraphModule | fx.Interpreter):
            return list(value.graph.nodes)
    return []


_UNDECLARED = re.compile(
    r"\W(u\d+)\W+was not declared in this scope|use of undeclared identifier '(u\d+)'"
)


def find_current_node(error: BaseException) -> fx.Node | None:
    """Return the node of Inductor's own graph that Inductor worked on.

    Returns:
        None if there is none, or if Inductor was making a kernel of several nodes.
    """
    nodes = next(filter(None, map(_nodes_in, _frames(error))), [])
    return nodes[0] if len(nodes) == 1 else None


def find_kernel(error: BaseException) -> str:
    """Return the name of the Triton kernel that was compiled or run, or ''."""
    for frame in _frames(error):
        worker: Any = frame.f_locals.get("self")
        if type(worker).__name__ == "CachingAutotuner":
            return str(worker.fn.__name__)
    return ""


def find_launch_number(error: BaseException) -> int:
    """Return the number of the launch with a bad access, among those of its kernel.

    Returns:
        0 if there is none.
    """
    return place_of_launch(error.findings[0]) if isinstance(error, Report) else 0


def _frames(error: BaseException) -> Iterator[FrameType]:
    """Yield frames from the innermost outwards, those of the first cause first."""
    cause = error.__cause__ or error.__context__
    if cause is not None:
        yield from _frames(cause)
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    yield from reversed(frames)


def _nodes_in(frame: FrameType) -> list[fx.Node]:
    """Return the nodes that a frame works on."""
    file, values = frame.f_code.co_filename, list(frame.f_locals.values())
    if "/torch/" not in file or file.endswith("compile_fx.py"):
        return []  # it loops over all nodes, and its variables keep the last one
    if is_about_kernels := _KERNELS.search(file):
        values = [o for value in values for o in _origins_of(value)]
    nodes = [v for v in values if isinstance(v, fx.Node) and v.op == "call_function"]
    # The code that lowers one operator has its operands in variables, too.
    return nodes if is_about_kernels else nodes[:1]


_KERNELS = re.compile(r"torch/_inductor/(?:scheduler\.py|codegen/)")


def _origins_of(value: Any) -> list[Any]:
    """Return the nodes that an IR node or a scheduler's node was lowered from.

    The scheduler's node of a fused kernel has several members.
    """
    for holder in (getattr(value, "node", None), value):
        if isinstance(origins := getattr(holder, "origins", None), Set):
            return list(origins)
    fused = getattr(value, "snodes", None)
    members = fused if isinstance(fused, list) else []
    return [origin for member in members for origin in _origins_of(member)]


@dataclass(frozen=True)
class SourceText:
    """The source code of a program.

    Attributes:
        source: the code, or None.
        unprintable: why there is no code, or ''.
        values: the tensors to save with ``torch.save`` in a file for the code.
        operators: how many operators the program has.
        two_sets: whether the program fails on other inputs than its example inputs.
        renamed: new names of inputs and weights by their old names.
    """

    source: Source | None
    unprintable: str
    values: Mapping[str, torch.Tensor]
    operators: int
    two_sets: bool
    renamed: Mapping[str, str] = field(default_factory=dict)

    def without_names(self) -> Self:
        """Replace the names of the user's model, if the program could be printed."""
        if self.source is None:
            return self
        source, new = anonymize(self.source)
        files = new.in_file
        values = {files.get(name, name): value for name, value in self.values.items()}
        names = {**new.inputs, **new.weights}
        return replace(self, source=source, values=values, renamed=names)


def print_graph(built: RebuiltCandidate, device: str, *, two_sets: bool) -> SourceText:
    """Print the graph of a program as source code."""
    source, unprintable = print_if_possible(built, device)
    operators = describe.count_operators(built.exported.graph_module)
    return SourceText(source, unprintable, long_values(built), operators, two_sets)


def text_of_listing(
    built: RebuiltCandidate,
    listing: PrintedProgram,
    saved: Mapping[str, torch.Tensor],
    device: str,
) -> SourceText:
    """Return the source code of a printed program."""
    source = print_listing(listing, saved, device)
    # Without saved values, the file has the arguments, for the saved program only.
    values = collect_file_values(listing, saved) or arguments_of(built)
    operators = sum(1 for _ in listing.operators())
    two_sets = any(inputs.failing is not None for inputs in source.inputs)
    return SourceText(source, "", values, operators, two_sets)


def describe_printed(
    built: RebuiltCandidate, text: SourceText, options: CheckOptions
) -> Printed:
    """Return the answer with the source code and the properties of its program."""
    exported = built.exported
    calls = (n for n in exported.graph.nodes if n.op == "call_function")
    return Printed(
        source=text.source,
        unprintable=text.unprintable,
        two_sets=text.two_sets,
        passes=built.passing is not None,
        limits=tuple(Reference(built, options).needed_tolerances()),
        operators=text.operators,
        nodes=len(exported.graph.nodes),
        inputs=describe.count_inputs(exported),
        dynamic_dims=describe.dynamic_dims(exported),
        random=describe.draws_random_numbers(exported),
        mutates=describe.mutates(exported),
        targets=tuple(sorted({str(n.target) for n in calls})),
        renamed=text.renamed,
        gpu=gpu_of(exported),
        depends_on_data=describe.depends_on_data(exported),
    )
