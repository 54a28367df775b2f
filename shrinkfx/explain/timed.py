"""Explain an out-of-bounds access by wrong sizes in AOTInductor's benchmarking."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence

from shrinkfx.explain.compiled_view import CompiledView
from shrinkfx.failure.readers.generated import Code
from shrinkfx.protocol.compiled_program_view import StrayAccess, TimedSize

_NAMED = 2
"""Maximum number of sizes in the sentence."""


def wrong_sizes(view: CompiledView, finding: StrayAccess) -> str:
    """Describe the wrong sizes from which an address or its mask is computed.

    Returns '' if the kernel is benchmarked with the sizes of its own graph, or if the
    failing line does not depend on the wrong ones.
    """
    kernel = view.recorded.kernel(finding.kernel)
    _, launch = view.launch_of(finding.kernel) or (-1, None)
    if kernel is None or launch is None:
        return ""
    passed = view.map_arguments(launch, Code(kernel.text))
    used = _read_by(finding.text, finding.line)
    timed = {t.name: t for t in view.recorded.timed if t.kernel == finding.kernel}
    wrong = [
        (parameter, timed[name])
        for parameter, name in passed.items()
        if parameter in used and name in timed
    ]
    return _describe_sizes(finding.kernel, wrong) if wrong else ""


def _describe_sizes(kernel: str, wrong: Sequence[tuple[str, TimedSize]]) -> str:
    """Describe the sizes, the correct ones, and where the wrong ones were looked up."""
    named = wrong[:_NAMED]
    sizes = [f"{name} = {t.value} instead of {_meant(t)}" for name, t in named]
    sizes += [f"and {len(wrong) - _NAMED} more are wrong"] * (len(wrong) > _NAMED)
    first = named[0][1]
    looked_up = ", ".join(dict.fromkeys(_describe_lookup(timed) for _, timed in named))
    return (
        f"AOTInductor benchmarks kernel {kernel} with {', '.join(sizes)}: "
        "generate_example_arg_value looks up the precomputed sizes of "
        f"{_graph(first.graph)} in the table of {_graph(first.searched_graph)}, where "
        f"{looked_up}."
    )


def _meant(timed: TimedSize) -> str:
    is_name = timed.name.isidentifier() and timed.name != timed.stands_for
    name = f"{timed.name} = " if is_name else ""
    return f"{name}{timed.stands_for} = {timed.meant}"


def _describe_lookup(timed: TimedSize) -> str:
    if timed.there:
        return f"{timed.name} is {timed.there}"
    if timed.is_fallback:
        return f"{timed.name} is unknown and replaced by unbacked_symint_fallback"
    return f"not all of {timed.name} is known"


def _graph(name: str) -> str:
    return name or "the graph around it"


def _read_by(text: str, line: int) -> set[str]:
    """Return all names that the address and the mask of an access depend on.

    Args:
        text: a Triton kernel with one statement per line.
        line: the line of the access, from 0.
    """
    try:
        tree = ast.parse(textwrap.dedent(text))
    except SyntaxError:
        return set()
    found: set[str] = set()
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    simple = [s for s in statements if isinstance(s, (ast.Assign, ast.Expr))]
    for statement in sorted(simple, key=lambda s: s.lineno, reverse=True):
        if statement.lineno == line + 1:
            found |= _of_access(statement.value)
        elif isinstance(statement, ast.Assign) and statement.lineno <= line:
            names = {n.id for target in statement.targets for n in _names(target)}
            if names & found:
                found |= {name.id for name in _names(statement.value)}
    return found


def _of_access(value: ast.expr) -> set[str]:
    """Return the names in an access, without the written value."""
    parts: list[ast.expr] = [value]
    if isinstance(value, ast.Call):
        called = ast.unparse(value.func)
        writes = called.startswith(("tl.store", "tl.atomic"))
        arguments = [a for n, a in enumerate(value.args) if n != 1 or not writes]
        parts = [*arguments, *(keyword.value for keyword in value.keywords)]
    return {name.id for part in parts for name in _names(part)}


def _names(node: ast.AST) -> Iterator[ast.Name]:
    return (found for found in ast.walk(node) if isinstance(found, ast.Name))
