"""Explain an out-of-bounds access, or a crash in a C++ kernel.

The result has the line, the argument, the offset or the address, and the culprit.
"""

from __future__ import annotations

import ast
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from shrinkfx.explain.compiled_view import CompiledView, describe_oversized
from shrinkfx.explain.lines import find_line_operators, quote_lines, with_views
from shrinkfx.failure.readers.asan import MemoryReport
from shrinkfx.failure.readers.generated import Code, pointers_in
from shrinkfx.findings.chain import Access, Chain, Layout
from shrinkfx.findings.operators import Operator
from shrinkfx.protocol.compiled_program_view import KernelText, StrayAccess, TimedSize

_TIMED = "When AOTInductor benchmarks kernels with generated arguments, "


def access_chain(
    view: CompiledView, memory: MemoryReport | None, eager_fails: bool
) -> Chain:
    """Follow an out-of-bounds access, or the crash of a kernel, to its cause.

    Args:
        memory: the report of AddressSanitizer, or None.
    """
    if view.recorded.out_of_bounds is not None:
        chain = _of_finding(view, view.recorded.out_of_bounds)
    else:
        chain = death_chain(view, memory)
    chain = replace(chain, eager_fails=eager_fails, dies=chain.culprits)
    return _blame_mismatch(view, chain)


def assertion_chain(view: CompiledView, message: str, eager_fails: bool) -> Chain:
    """Find the kernel whose assertion fails, other than an index check.

    Args:
        message: the text of the assertion.
    """
    chain = replace(find_assertion(view, message), eager_fails=eager_fails)
    chain = _blame_mismatch(view, chain)
    if chain.culprits:
        return chain
    return replace(chain, unknown=("which kernel: no kernel contains the assertion",))


def _of_finding(view: CompiledView, finding: StrayAccess) -> Chain:
    """Build a chain from an access that the interpreter has detected."""
    code = Code(finding.text)
    place, launch = view.launch_of(finding.kernel) or (-1, None)
    kernel = view.recorded.kernel(finding.kernel)
    passed = view.map_arguments(launch, Code(kernel.text)) if launch and kernel else {}
    name = passed.get(finding.argument, "")
    argument = view.layout(view.read(name) if finding.fault != "store" else name)
    if argument is not None and finding.shape:
        argument = replace(
            argument,
            real_shape=finding.shape,
            real_stride=finding.stride,
            made_by=view.find_producers(finding.role) or argument.made_by,
        )
    access = Access(
        does=finding.fault if finding.fault in ("load", "store", "atomic") else "",
        parameter=finding.argument,
        argument=argument,
        offset=finding.offset if finding.item_bytes else None,
        elements=finding.elements if finding.item_bytes else None,
        item_bytes=finding.item_bytes,
        lanes=finding.lanes,
        program=finding.program,
    )
    chain = Chain(
        kernel=finding.kernel,
        launch=place + 1,
        launches=len(view.recorded.launches),
        grid=finding.grid,
        fused=view.operators(launch.nodes if launch else ()),
        code=quote_lines(code, finding.line) if finding.line >= 0 else (),
        access=access,
        inputs=(argument,) if argument and argument.role != "buffer" else (),
    )
    ops = _find_operators(view, finding, kernel, code)
    argument = _made_before(argument, ops) if argument and finding.user else argument
    makers = view.find_producers(finding.role) if finding.fault == "misaligned" else ()
    has_address = not finding.user and finding.fault != "assert"
    culprits = makers or (with_views(view, chain.fused, ops) if has_address else ops)
    culprits = culprits or chain.fused
    sentence = _describe_access(finding, culprits, argument)
    sizes = wrong_sizes(view, finding) if finding.made_up else ""
    if finding.made_up:
        sentence = f"{_TIMED}{sentence[0].lower()}{sentence[1:]}"
    # For a user's kernel, Inductor lists neighboring operators too.
    fused = ops if finding.user else chain.fused
    cause = (sizes, sentence) if sizes else (sentence,)
    return replace(chain, fused=fused, culprits=culprits, cause=cause)


def _made_before(argument: Layout, ops: tuple[Operator, ...]) -> Layout:
    """Remove from an argument's producers the operator that launches the kernel."""
    others = tuple(maker for maker in argument.made_by if maker not in ops)
    return replace(argument, made_by=others or argument.made_by)


def _find_operators(
    view: CompiledView, finding: StrayAccess, kernel: KernelText | None, code: Code
) -> tuple[Operator, ...]:
    """Return the operator of the failing line, or of the user's kernel."""
    if finding.user:
        _, launch = view.launch_of(finding.kernel) or (-1, None)
        left = view.operators(view.left)
        custom = [one for one in left if not one.operator.startswith("aten.")]
        return tuple([o for o in custom if launch and o.name in launch.nodes] or custom)
    if kernel is None or finding.line < 0:
        return ()
    return find_line_operators(view, kernel, code, finding.line)


_VERBS = {"load": "loads", "store": "stores", "atomic": "atomically changes"}


def _describe_access(
    finding: StrayAccess, ops: tuple[Operator, ...], argument: Layout | None
) -> str:
    names = ", ".join(map(str, ops[:3])) or "an operator"
    kernel_of = f"kernel {finding.kernel} {'of' if finding.user else 'for'} {names}"
    if finding.fault == "misaligned":
        parameter = f"{finding.argument} of kernel {finding.kernel}"
        origin = argument or finding.role
        return f"The memory of {parameter} is {finding.message}: {origin}."
    if finding.fault == "assert":
        return f"An assertion fails in {kernel_of}: {finding.message}."
    kernel = f"Kernel {finding.kernel}, which computes {names},"
    action = f"{_VERBS[finding.fault]} {finding.argument} at index {finding.offset}"
    size = f"{finding.elements} element{'' if finding.elements == 1 else 's'}"
    is_within = 0 <= finding.offset < finding.elements
    has = f", which has {size}" if is_within else f", but it has only {size}"
    lanes = f"{finding.lanes} lane{'' if finding.lanes == 1 else 's'}"
    where = f"{lanes} of program {finding.program}, grid {finding.grid}"
    relation = "was generated for" if finding.made_up and argument else "is"
    what = f"{finding.argument} {relation} {argument or finding.role}"
    return f"{kernel} {action}{has} ({where}). {what}."


def _blame_mismatch(view: CompiledView, chain: Chain) -> Chain:
    """Blame an operator with a fake-kernel mismatch, if there is one."""
    if view.recorded.out_of_bounds and view.recorded.out_of_bounds.made_up:
        return chain  # no operator made a generated argument
    argument = chain.access.argument if chain.access else None
    makers = _makers(view, chain, argument) if chain.kernel else None
    if mismatch := view.find_mismatch(makers):
        cause = (mismatch[1], *chain.cause)[:3]
        return replace(chain, culprits=(mismatch[0],), cause=cause)
    if argument is None or not argument.made_by or _bears_another_shape(view, chain):
        return chain
    if oversized := describe_oversized(view.recorded, argument):
        names = ", ".join(map(str, argument.made_by))
        cause = (f"{oversized} {names} declares this result.", *chain.cause)[:3]
        return replace(chain, culprits=argument.made_by, cause=cause)
    return chain


def _makers(view: CompiledView, chain: Chain, argument: Layout | None) -> set[str]:
    """Return the producers of the failing argument, or of all arguments."""
    if argument is not None:
        return {operator.name for operator in argument.made_by}
    _, launch = view.launch_of(chain.kernel) or (-1, None)
    names = launch.arguments if launch else ()
    return {operator.name for name in names for operator in view.computed(name)}


def _bears_another_shape(view: CompiledView, chain: Chain) -> bool:
    """Return whether the access is through a buffer that the kernel writes in place.

    Its shape is that of the kernel's result, not of the memory.
    """
    in_place = chain.access is not None and "in_out" in chain.access.parameter
    return in_place and view.recorded.out_of_bounds is not None


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


_NEAR_BYTES = 1 << 24
"""Maximum distance in bytes of an address from the argument it belongs to."""

_PAGE_BYTES = 1 << 12

_BYTES = {"bool": 1, "int16": 2, "int32": 4, "int64": 8, "bfloat16": 2}


def death_chain(view: CompiledView, memory: MemoryReport | None) -> Chain:
    """Describe the kernel that was running when the process died, and its arguments."""
    if view.kernel_log.cut:
        why = "which kernel: the program has too many launches to trace"
        return Chain(unknown=(why,))
    running = view.kernel_log.running
    if running is None:
        return _outside(view, memory)
    name, arguments = view.kernel_log.launches[running]
    kernel = view.recorded.kernel(name)
    place, launch = view.launch_of(name) or (-1, None)
    if kernel is None or launch is None:
        return Chain(kernel=name, unknown=("the kernel's source: it was not kept",))
    code = Code(kernel.text)
    passed = view.map_arguments(launch, code)
    at = view.kernel_log.at
    is_known = at is not None and at[0] == name and at[1] < len(code.lines)
    among = pointers_in(code.lines[at[1]]) if at and is_known else ()
    access = _nearest(view, arguments, passed, among)
    chain = Chain(
        kernel=name,
        launch=place + 1,
        launches=len(view.recorded.launches),
        fused=view.fused(kernel, launch),
        access=access,
    )
    line = at[1] if at and is_known else _line(kernel, code, access, memory)
    is_exact = False
    if line is None:
        why = "which line: AddressSanitizer can report it"
        chain = replace(chain, culprits=chain.fused, unknown=(why,))
    else:
        operators = find_line_operators(view, kernel, code, line)
        culprits = with_views(view, chain.fused, operators) or chain.fused
        chain = replace(chain, code=quote_lines(code, line), culprits=culprits)
        is_exact = bool(operators)
    cause = _describe_crash(chain, view.kernel_log.fault, is_exact)
    return replace(chain, cause=(cause,))


def find_assertion(view: CompiledView, message: str) -> Chain:
    """Find the kernel that was running when an assertion failed, if there was one.

    Args:
        message: the text of the assertion, to find its line.
    """
    running = None if view.kernel_log.cut else view.kernel_log.running
    name = "" if running is None else view.kernel_log.launches[running][0]
    kernel = view.recorded.kernel(name)
    place, launch = view.launch_of(name) or (-1, None)
    if kernel is None or launch is None:
        return Chain()
    code = Code(kernel.text)
    lines = [n for n, text in enumerate(code.lines) if message and message in text]
    # A loop and its tail may both contain it.
    groups = {find_line_operators(view, kernel, code, n) for n in lines}
    operators = next(iter(groups)) if len(groups) == 1 else ()
    fused = view.fused(kernel, launch)
    chain = Chain(
        kernel=name,
        launch=place + 1,
        launches=len(view.recorded.launches),
        fused=fused,
        code=quote_lines(code, lines[0]) if len(lines) == 1 else (),
        culprits=operators or fused,
    )
    where = _where(chain, is_exact=bool(operators))
    return replace(chain, cause=(f"{where} fails an assertion: {message}.",))


def _outside(view: CompiledView, memory: MemoryReport | None) -> Chain:
    """Describe how far a run came that died outside the generated kernels."""
    launched = len(view.kernel_log.launches)
    last = view.kernel_log.launches[-1][0] if launched else ""
    progress = f"after {last}" if last else "before the first kernel"
    where = f"; AddressSanitizer: {memory}" if memory else ""
    why = f"the line: the crash is outside the generated kernels, {progress}{where}"
    return Chain(launches=len(view.recorded.launches), unknown=(why,))


def _nearest(
    view: CompiledView,
    arguments: dict[str, str],
    passed: dict[str, str],
    among: tuple[str, ...],
) -> Access | None:
    """Return the argument that an address belongs to, the nearest one.

    Args:
        among: the pointer parameters in the failing line. If it is empty because the
            line is unknown, the address must be within a page of an argument.
    """
    address = view.kernel_log.fault
    if not address.startswith("0x"):
        return None
    at, sizes = int(address, 16), {s.name: s.value for s in view.recorded.symbols}
    found: list[tuple[int, Access]] = []
    for parameter, value in arguments.items():
        # A buffer written in place has the memory of the buffer it replaces.
        layout = view.layout(view.read(passed.get(parameter, "")))
        if not value.startswith("0x") or layout is None:
            continue
        if among and parameter not in among:
            continue
        item = _item_bytes(layout.dtype)
        elements = elements_of(layout, sizes)
        offset = at - int(value, 16)
        distance = max(-offset, offset - (elements or 0) * item, 0)
        access = Access(
            does="",
            parameter=parameter,
            argument=layout,
            offset=offset // item,
            elements=elements,
            item_bytes=item,
            address=address,
        )
        found.append((distance, access))
    nearest = min(found, key=lambda entry: entry[0], default=None)
    if nearest is None or nearest[0] > (_NEAR_BYTES if among else _PAGE_BYTES):
        return Access("", "", None, None, None, address=address)
    return nearest[1]


def _item_bytes(dtype: str) -> int:
    bits = re.search(r"(\d+)$", dtype)
    return _BYTES.get(dtype) or max(1, int(bits[1]) // 8 if bits else 1)


def elements_of(layout: Layout, sizes: dict[str, int | None]) -> int | None:
    """Count the elements of a dense tensor of this shape; None if a size is unknown."""
    if layout.real_shape:
        return math.prod(layout.real_shape)
    found = [int(s) if s.isdigit() else sizes.get(s) for s in layout.shape]
    known = [size for size in found if size is not None]
    return math.prod(known) if len(known) == len(found) else None


def _line(
    kernel: KernelText, code: Code, access: Access | None, memory: MemoryReport | None
) -> int | None:
    """Return the failing line from AddressSanitizer, or the only candidate."""
    if memory and memory.kernel == kernel.name and memory.line and kernel.first_line:
        line = memory.line - kernel.first_line
        return line if 0 <= line < len(code.lines) else None
    if access is None or not access.parameter:
        return None
    word = re.compile(rf"\b{access.parameter}\b(?! *[,)])")
    first = next((n for n, text in enumerate(code.lines) if text.startswith("{")), 0)
    lines = [n for n in range(first, len(code.lines)) if word.search(code.lines[n])]
    return lines[0] if len(lines) == 1 else None


def _where(chain: Chain, *, is_exact: bool) -> str:
    names = ", ".join(map(str, chain.culprits[:3])) or "unknown operators"
    if is_exact:
        return f"Code for {names} in kernel {chain.kernel}"
    return f"Kernel {chain.kernel}, which computes {names},"


def _describe_crash(chain: Chain, address: str, is_exact: bool) -> str:
    where, access = _where(chain, is_exact=is_exact), chain.access
    if access is None or not address:
        return f"{where} crashes the process."
    if access.argument is None:
        return f"{where} accesses address {address}, which is not near any argument."
    has = ""
    if access.elements is not None:
        declared = "" if access.argument.real_shape else "is declared to have "
        number = "1 element" if access.elements == 1 else f"{access.elements} elements"
        has = f", which {declared or 'has '}{number}"
    return (
        f"{where} crashes at element {access.offset} of {access.parameter}{has}: "
        f"{access.argument}."
    )
