"""What a check leaves behind that tells which nodes its failure comes from.

A crash answers nothing, so it is written to a file, before each stage.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from collections.abc import Iterator, Set
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

from torch import fx

from shrinkfx.failure.signature import Stage
from shrinkfx.protocol.choices import InductorOptions
from shrinkfx.protocol.files import Code, Launch, Traces
from shrinkfx.worker.cpu_memory import guard_pages
from shrinkfx.worker.explaining import generated
from shrinkfx.worker.explaining.machine_code import code_of
from shrinkfx.worker.explaining.origins import origins
from shrinkfx.worker.explaining.own_nodes import own_nodes
from shrinkfx.worker.forkserver.supervise import Note
from shrinkfx.worker.interpreter.findings import Report
from shrinkfx.worker.interpreter.memory_checks.bounds import place_of_launch
from shrinkfx.worker.private_api import codegen_api

PROVENANCE: InductorOptions = {"trace.provenance_tracking_level": 1}
"""The option by which Inductor keeps track of what is in a kernel. It changes
comments of the generated code, and nothing else."""


@contextlib.contextmanager
def gathered(path: Path, note: Note) -> Iterator[Note]:
    """Write evidence to ``path`` while a program is compiled and run inside.

    Yields:
        What to note stages with.
    """

    def noted(stage: str) -> None:
        told = _traces(path)
        if stage in (Stage.PASSING, Stage.RUN):
            told = replace(told, code=_code(told))
        _leave(path, told)
        note(stage)

    guard_pages.tell_code()
    if codegen_api.FEATURE.missing:
        yield noted
        return
    # What Inductor has tracked is there until a compilation ends, however it does.
    kept = mock.patch.object(
        codegen_api.debug, "reset_provenance_globals", contextlib.nullcontext
    )
    with kept, own_nodes() as own:
        try:
            yield noted
        except Exception as error:
            node = at_work(error)
            told = replace(
                _traces(path),
                message=str(error),
                at_work=str(node.target) if node is not None else "",
                is_own=node is not None and node in own,
                raised_at=tuple(
                    map(tuple, find_undeclared_size(error) or raised_at(error))
                ),
                kernel=kernel_of(error),
                launch=launch_of(error),
                excerpt=generated.excerpt(str(error)),
            )
            _leave(path, told)
            raise


def _leave(path: Path, traces: Traces) -> None:
    """Write all of it or nothing: the child may die here as anywhere."""
    draft = path.with_name(f"{path.name}.tmp")
    draft.write_text(traces.to_line())
    draft.rename(path)


def _traces(path: Path) -> Traces:
    """Take what is written there, with the launches that are known now."""
    known = Traces.from_line(path.read_text()) if path.exists() else Traces()
    # One that runs a package which another child has compiled knows of no kernel.
    return replace(known, launches=launches() or known.launches)


def _code(told: Traces) -> tuple[Code, ...]:
    """Say where the code of the kernels lies that are about to run."""
    kernels = {launch.kernel for launch in told.launches}
    try:
        return code_of(kernels, Path(os.environ["TMPDIR"]))
    except (OSError, KeyError, ValueError, struct.error) as error:
        print(f"shrinkfx: the addresses of kernels are unknown: {error}", flush=True)
        return ()


def launches() -> tuple[Launch, ...]:
    """List kernels in the order of their launches, each with what it computes."""
    if codegen_api.FEATURE.missing:
        return ()
    found = codegen_api.debug.create_kernel_information_json()
    in_order = sorted(found, key=lambda name: int(name.rpartition(":")[2]))
    return tuple(
        Launch(name.rpartition(":")[0], tuple(found[name]["pre_grad_nodes"]))
        for name in in_order
    )


def raised_at(error: BaseException) -> list[list[str]]:
    """Name the nodes that Inductor was at work on, the innermost call's first.

    Read off the local variables of the frames: a message seldom names a node, and
    never one of the program's own.
    """
    found: list[list[str]] = []
    for frame in _frames(error):
        nodes = _nodes_in(frame)
        names = list(dict.fromkeys(n for node in nodes for n in origins(node)))
        if names and names not in found:
            found.append(names)
    return found


def find_undeclared_size(error: BaseException) -> list[list[str]]:
    """Find the nodes of a size that generated code uses but does not declare."""
    symbol = _UNDECLARED.search(str(error))
    if symbol is None:
        return []
    for frame in _frames(error):
        for held in list(frame.f_locals.values()):
            for node in _nodes_of(held):
                bound = node.meta.get("unbacked_bindings") or ()
                if (symbol[1] or symbol[2]) in map(str, bound):
                    return [origins(node)]
    return []


def _nodes_of(held: Any) -> list[fx.Node]:
    """List the nodes of a graph, where a local variable holds one."""
    # What an error has left half-made, or a proxy of what is gone, may raise anything.
    with contextlib.suppress(Exception):
        if isinstance(held, fx.GraphModule | fx.Interpreter):
            return list(held.graph.nodes)
    return []


_UNDECLARED = re.compile(
    r"\W(u\d+)\W+was not declared in this scope|use of undeclared identifier '(u\d+)'"
)


def at_work(error: BaseException) -> fx.Node | None:
    """Find the node that Inductor was at work on, as its own graph has it.

    Returns:
        None where there is none, or where a kernel of several was being made.
    """
    found = next(filter(None, map(_nodes_in, _frames(error))), [])
    return found[0] if len(found) == 1 else None


def kernel_of(error: BaseException) -> str:
    """Name the Triton kernel that was being compiled or run, or ''."""
    for frame in _frames(error):
        worker: Any = frame.f_locals.get("self")
        if type(worker).__name__ == "CachingAutotuner":
            return str(worker.fn.__name__)
    return ""


def launch_of(error: BaseException) -> int:
    """Number the launch that strayed among those of its kernel; 0 if none has."""
    return place_of_launch(error.findings[0]) if isinstance(error, Report) else 0


def _frames(error: BaseException) -> Iterator[FrameType]:
    """Walk frames from the inside out, those of the first cause before all others."""
    cause = error.__cause__ or error.__context__
    if cause is not None:
        yield from _frames(cause)
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    yield from reversed(frames)


def _nodes_in(frame: FrameType) -> list[fx.Node]:
    """Find the nodes that a frame is about."""
    file, values = frame.f_code.co_filename, list(frame.f_locals.values())
    if "/torch/" not in file or file.endswith("compile_fx.py"):
        return []  # it goes through all of them, and the last one is left over
    if is_about_kernels := _KERNELS.search(file):
        values = [o for value in values for o in _origins_of(value)]
    nodes = [v for v in values if isinstance(v, fx.Node) and v.op == "call_function"]
    # What lowers one operator holds operands, too.
    return nodes if is_about_kernels else nodes[:1]


_KERNELS = re.compile(r"torch/_inductor/(?:scheduler\.py|codegen/)")


def _origins_of(value: Any) -> list[Any]:
    """List what an IR node, or the scheduler's node around it, was lowered from.

    The scheduler's node of a fused kernel holds several.
    """
    for holder in (getattr(value, "node", None), value):
        if isinstance(found := getattr(holder, "origins", None), Set):
            return list(found)
    fused = getattr(value, "snodes", None)
    members = fused if isinstance(fused, list) else []
    return [origin for member in members for origin in _origins_of(member)]
