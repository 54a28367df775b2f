"""Lines of generated code: those around one, and which operators it was written for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shrinkfx.explain.anatomy import Known
from shrinkfx.explain.operators import computed_from
from shrinkfx.failure.readers.generated import Code
from shrinkfx.protocol.anatomy import KernelText
from shrinkfx.report.explanation.code import CodeLine, in_a_file
from shrinkfx.report.explanation.operators import Operator
from shrinkfx.report.explanation.record import Explanation


def marked(code: Code, line: int) -> tuple[CodeLine, ...]:
    """Quote the lines around one, counted from the kernel's head."""
    head = code.head()
    return tuple(
        CodeLine(number - head + 1, code.lines[number], number == line)
        for number in code.around(line)
    )


def in_files(found: Explanation, files: Mapping[str, str]) -> Explanation:
    """Count quoted lines as the files do that were kept of them, and name these.

    Args:
        files: text of generated code, by its place in the run's folder.
    """
    chain, halted, cause = found.chain, found.halted, found.cause
    if chain is not None and (placed := in_a_file(chain.code, chain.kernel, files)):
        chain = replace(chain, file=placed[0], code=placed[1])
    if halted is not None and (placed := in_a_file(halted.code, halted.kernel, files)):
        again = replace(halted, file=placed[0], code=placed[1])
        new = dict(zip(halted.cause, again.cause, strict=True))
        halted, cause = again, tuple(new.get(text, text) for text in cause)
    return replace(found, chain=chain, halted=halted, cause=cause)


def written_for(
    known: Known, kernel: KernelText, code: Code, line: int
) -> tuple[Operator, ...]:
    """Say which operators a line was written for; none where that is not tracked.

    Args:
        kernel: as Inductor has written it.
        code: that, or what became of it.
    """
    check = next((check for check in code.checks() if check.line == line), None)
    if check is not None:
        said = f'bounds: {check.said}"'
        found = [o for o in kernel.origins if not o.variable and said in o.expression]
    elif (at := code.statement(line)) is not None:
        written = at.name, at.expression
        found = [o for o in kernel.origins if (o.variable, o.expression) == written]
    else:
        found = []
    return known.written_for(kernel, found[0].nodes) if found else ()


def with_views(
    known: Known, fused: tuple[Operator, ...], by: tuple[Operator, ...]
) -> tuple[Operator, ...]:
    """Add the views that an operator reads by: the address is as much their work."""
    read = [name for one in by for name in computed_from(known.candidate, [one.name])]
    views = [
        view
        for view in fused
        if view.name in read and view not in by
        if known.skeleton.node(view.name).storage is not None
        if view.name not in known.candidate.replace
    ]
    return (*views, *by)
