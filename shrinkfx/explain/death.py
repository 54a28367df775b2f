"""Explain a crash in a C++ kernel: the line, the address and the argument."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from shrinkfx.explain.compiled_view import CompiledView
from shrinkfx.explain.lines import find_line_operators, quote_lines, with_views
from shrinkfx.failure.readers.asan import MemoryReport
from shrinkfx.failure.readers.generated import Code, pointers_in
from shrinkfx.findings.chain import Access, Chain, Layout
from shrinkfx.protocol.compiled_program_view import KernelText

_NEAR_BYTES = 1 << 24
"""Maximum distance in bytes of an address from the argument it belongs to."""

_PAGE_BYTES = 1 << 12

_BYTES = {"bool": 1, "int16": 2, "int32": 4, "int64": 8, "bfloat16": 2}


def death_chain(view: CompiledView, memory: MemoryReport | None) -> Chain:
    """Describe the kernel that was running when the process died, and its arguments."""
    if view.kernel_log.cut:
        return Chain(
            unknown=("which kernel: the program has too many launches to trace",)
        )
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
    return replace(
        chain, cause=(_describe_crash(chain, view.kernel_log.fault, is_exact),)
    )


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
