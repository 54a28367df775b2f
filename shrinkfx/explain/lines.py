"""Lines of generated code: those around one, and which operators it was written for."""

from __future__ import annotations

import networkx as nx

from shrinkfx.explain.anatomy import Known
from shrinkfx.failure.readers.generated import Code
from shrinkfx.protocol.anatomy import KernelText
from shrinkfx.report.explanation.chain import CodeLine
from shrinkfx.report.explanation.operators import Operator


def marked(code: Code, line: int) -> tuple[CodeLine, ...]:
    """Quote the lines around one."""
    return tuple(
        CodeLine(number + 1, code.lines[number], number == line)
        for number in code.around(line)
    )


def written_for(known: Known, kernel: KernelText, line: str) -> tuple[Operator, ...]:
    """Say which operators a line was written for; none where that is not tracked."""
    for origin in kernel.origins:
        text = f"{origin.variable} = {origin.expression}" if origin.variable else ""
        if text and text in line:
            return known.written_for(kernel, origin.nodes)
    return ()


def with_views(
    known: Known, fused: tuple[Operator, ...], by: tuple[Operator, ...]
) -> tuple[Operator, ...]:
    """Add the views that an operator reads by: the address is as much their work."""
    skeleton = known.skeleton
    views = [
        view
        for view in fused
        if skeleton.node(view.name).storage is not None and view not in by
        if any(nx.has_path(skeleton.graph, view.name, reader.name) for reader in by)
    ]
    return (*views, *by)
