"""Quote lines of generated code, and find the operators they were generated for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shrinkfx.explain.compiled_view import CompiledView
from shrinkfx.explain.operators import find_dependencies
from shrinkfx.failure.readers.generated import Code
from shrinkfx.findings.code import CodeLine, find_quoted_lines
from shrinkfx.findings.operators import Operator
from shrinkfx.findings.record import Explanation
from shrinkfx.protocol.compiled_program_view import KernelText


def quote_lines(code: Code, line: int) -> tuple[CodeLine, ...]:
    """Quote the lines around one, numbered from the kernel's first line."""
    head = code.head()
    return tuple(
        CodeLine(number - head + 1, code.lines[number], number == line)
        for number in code.around(line)
    )


def renumber_quotes(found: Explanation, files: Mapping[str, str]) -> Explanation:
    """Renumber quoted lines as in the published files, and add the files' names.

    Args:
        files: the text of generated code, by path in the run's folder.
    """
    chain, stop, cause = found.chain, found.compile_error, found.cause
    if chain is not None and (
        placed := find_quoted_lines(chain.code, chain.kernel, files)
    ):
        chain = replace(chain, file=placed[0], code=placed[1])
    if stop is not None and (
        placed := find_quoted_lines(stop.code, stop.kernel, files)
    ):
        quoted = replace(stop, file=placed[0], code=placed[1])
        new = dict(zip(stop.cause, quoted.cause, strict=True))
        stop, cause = quoted, tuple(new.get(text, text) for text in cause)
    return replace(found, chain=chain, compile_error=stop, cause=cause)


def find_line_operators(
    view: CompiledView, kernel: KernelText, code: Code, line: int
) -> tuple[Operator, ...]:
    """Return the operators that a line was generated for; empty if it is not tracked.

    Args:
        kernel: the kernel as Inductor generated it.
        code: its text, or the text as it was run.
    """
    check = next((check for check in code.checks() if check.line == line), None)
    if check is not None:
        message = f'bounds: {check.text}"'
        checks = [o for o in kernel.origins if not o.variable]
        found = [o for o in checks if message in o.expression]
    elif (at := code.statement(line)) is not None:
        pair = at.name, at.expression
        found = [o for o in kernel.origins if (o.variable, o.expression) == pair]
    else:
        found = []
    return view.find_operators_for(kernel, found[0].nodes) if found else ()


def with_views(
    view: CompiledView, fused: tuple[Operator, ...], by: tuple[Operator, ...]
) -> tuple[Operator, ...]:
    """Add the views that an operator reads through: they determine its addresses."""
    read = {n for o in by for n in find_dependencies(view.candidate, [o.name])}
    views = [
        alias
        for alias in fused
        if alias.name in read and alias not in by
        if view.skeleton.node(alias.name).storage is not None
        if alias.name not in view.candidate.replace
    ]
    return (*views, *by)
