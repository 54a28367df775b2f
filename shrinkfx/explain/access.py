"""An access out of its memory: which argument, how far, and who declared it so."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import networkx as nx

from shrinkfx.explain.anatomy import Known
from shrinkfx.explain.index import marked
from shrinkfx.failure.readers.asan import MemoryReport
from shrinkfx.failure.readers.generated import Code
from shrinkfx.protocol.anatomy import KernelText, StrayAccess
from shrinkfx.report.explanation.chain import Access, Chain, Layout
from shrinkfx.report.explanation.operators import Operator

_NEAR_BYTES = 1 << 24
"""How far from an argument an address may be that was meant to be in it."""

_BYTES = {"bool": 1, "int16": 2, "int32": 4, "int64": 8, "bfloat16": 2}


def access_chain(known: Known, memory: MemoryReport | None, eager_fails: bool) -> Chain:
    """Follow an access out of its memory, or a kernel's death.

    Args:
        memory: what AddressSanitizer has said, if it was asked.
    """
    if known.anatomy.stray is not None:
        chain = _of_finding(known, known.anatomy.stray)
    else:
        chain = _of_death(known, memory)
    chain = replace(chain, eager_fails=eager_fails)
    return _with_liar(known, chain)


def _of_finding(known: Known, stray: StrayAccess) -> Chain:
    """Say what the interpreter has seen."""
    code = Code(stray.text)
    place, launch = known.launch_of(stray.kernel) or (-1, None)
    written = known.anatomy.kernel(stray.kernel)
    passed = known.passed(launch, Code(written.text)) if launch and written else {}
    name = passed.get(stray.argument, "")
    argument = known.layout(known.read(name) if stray.fault != "store" else name)
    if argument is not None and stray.shape:
        argument = replace(argument, real_shape=stray.shape, real_stride=stray.stride)
    access = Access(
        does=stray.fault if stray.fault in ("load", "store", "atomic") else "",
        parameter=stray.argument,
        argument=argument,
        offset=stray.offset if stray.item_bytes else None,
        elements=stray.elements if stray.item_bytes else None,
        item_bytes=stray.item_bytes,
        lanes=stray.lanes,
        program=stray.program,
    )
    chain = Chain(
        kernel=stray.kernel,
        launch=place + 1,
        launches=len(known.anatomy.launches),
        grid=stray.grid,
        fused=known.operators(launch.nodes if launch else ()),
        code=marked(code, stray.line) if stray.line >= 0 else (),
        access=access,
        inputs=(argument,) if argument and argument.role != "buffer" else (),
    )
    by = _by(known, stray, written, code)
    made = known.made(stray.role) if stray.fault == "misaligned" else ()
    by_address = not stray.user and stray.fault != "assert"
    guilty = made or (_with_views(known, chain.fused, by) if by_address else by)
    guilty = guilty or chain.fused
    said = _said_of(stray, guilty, argument)
    # Inductor names the neighbours of a user's kernel with its operator.
    fused = by if stray.user else chain.fused
    return replace(chain, fused=fused, guilty=guilty, cause=(said,))


def _by(
    known: Known, stray: StrayAccess, written: KernelText | None, code: Code
) -> tuple[Operator, ...]:
    """Name the operator whose line strays: a user's kernel is its own operator's."""
    if stray.user:
        _, launch = known.launch_of(stray.kernel) or (-1, None)
        own = [o for o in known.operators(known.left) if not _is_pytorchs(o)]
        return tuple([o for o in own if launch and o.name in launch.nodes] or own)
    if written is None or stray.line < 0:
        return ()
    return _written_for(known, written, code.lines[stray.line])


def _is_pytorchs(operator: Operator) -> bool:
    return operator.operator.startswith("aten.")


def _with_views(
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


def _written_for(known: Known, kernel: KernelText, line: str) -> tuple[Operator, ...]:
    """Say which operators a line was written for; none where that is not tracked."""
    for origin in kernel.origins:
        text = f"{origin.variable} = {origin.expression}" if origin.variable else ""
        if text and text in line:
            return known.written_for(kernel, origin.nodes)
    return ()


def _said_of(
    stray: StrayAccess, by: tuple[Operator, ...], argument: Layout | None
) -> str:
    names = ", ".join(map(str, by[:3])) or "an operator"
    whose = "the kernel of" if stray.user else "the kernel for"
    if stray.fault == "misaligned":
        given = f"{stray.argument} of kernel {stray.kernel}"
        made = argument or stray.role
        return f"What {given} points at is {stray.message}: {made}."
    if stray.fault == "assert":
        return (
            f"In {whose} {names}, {stray.kernel}, an assertion fails: {stray.message}."
        )
    where = f"{stray.argument} ({argument or stray.role})"
    return (
        f"In {whose} {names}, {stray.kernel}, a {stray.fault} through {where} goes "
        f"to element {stray.offset} of {stray.elements}, in {stray.lanes} lanes of "
        f"program {stray.program} of grid {stray.grid}."
    )


def _of_death(known: Known, memory: MemoryReport | None) -> Chain:
    """Say what the kernel was given that was running when the process died."""
    running = known.told.running
    if running is None:
        return _outside(known, memory)
    name, given = known.told.given[running]
    kernel = known.anatomy.kernel(name)
    place, launch = known.launch_of(name) or (-1, None)
    if kernel is None or launch is None:
        return Chain(kernel=name, unknown=("the kernel's text: it was not kept",))
    code = Code(kernel.text)
    passed = known.passed(launch, code)
    access = _nearest(known, given, passed)
    chain = Chain(
        kernel=name,
        launch=place + 1,
        launches=len(known.anatomy.launches),
        fused=known.written_for(kernel, launch.nodes),
        access=access,
    )
    at = known.told.at
    is_told = at is not None and at[0] == name and at[1] < len(code.lines)
    line = at[1] if at and is_told else _line(kernel, code, access, memory)
    is_exact = False
    if line is None:
        why = "which line it was: AddressSanitizer tells, where it is asked"
        chain = replace(chain, guilty=chain.fused, unknown=(why,))
    else:
        by = _written_for(known, kernel, code.lines[line])
        guilty = _with_views(known, chain.fused, by) or chain.fused
        chain = replace(chain, code=marked(code, line), guilty=guilty)
        is_exact = bool(by)
    return replace(chain, cause=(_said(chain, known.told.fault, is_exact),))


def _outside(known: Known, memory: MemoryReport | None) -> Chain:
    """Say how far the run came that died in no kernel of Inductor's."""
    done = len(known.told.given)
    last = known.told.given[-1][0] if done else ""
    how_far = f"after {last}" if last else "before the first kernel"
    where = f"; AddressSanitizer: {memory}" if memory else ""
    why = f"the line: it died in no generated kernel, {how_far}{where}"
    return Chain(launches=len(known.anatomy.launches), unknown=(why,))


def _nearest(
    known: Known, given: dict[str, str], passed: dict[str, str]
) -> Access | None:
    """Find the argument that the address was meant to be in."""
    address = known.told.fault
    if not address.startswith("0x"):
        return None
    at, sizes = int(address, 16), {s.name: s.value for s in known.anatomy.symbols}
    found: list[tuple[int, Access]] = []
    for parameter, value in given.items():
        layout = known.layout(passed.get(parameter, ""))
        if not value.startswith("0x") or layout is None:
            continue
        item = _item_bytes(layout.dtype)
        elements = _elements(layout, sizes)
        offset = at - int(value, 16)
        far = max(-offset, offset - (elements or 0) * item, 0)
        access = Access(
            does="",
            parameter=parameter,
            argument=layout,
            offset=offset // item,
            elements=elements,
            item_bytes=item,
            address=address,
        )
        found.append((far, access))
    near = min(found, key=lambda entry: entry[0], default=None)
    if near is None or near[0] > _NEAR_BYTES:
        return Access("", "", None, None, None, address=address)
    return near[1]


def _item_bytes(dtype: str) -> int:
    bits = re.search(r"(\d+)$", dtype)
    return _BYTES.get(dtype) or max(1, int(bits[1]) // 8 if bits else 1)


def _elements(layout: Layout, sizes: dict[str, int | None]) -> int | None:
    """Count what a dense tensor of its shape holds, where its sizes are plain."""
    if layout.real_shape:
        return math.prod(layout.real_shape)
    found = [int(s) if s.isdigit() else sizes.get(s) for s in layout.shape]
    known = [size for size in found if size is not None]
    return math.prod(known) if len(known) == len(found) else None


def _line(
    kernel: KernelText, code: Code, access: Access | None, memory: MemoryReport | None
) -> int | None:
    """Find the line: AddressSanitizer has said it, or only one can be meant."""
    if memory and memory.kernel == kernel.name and memory.line and kernel.first_line:
        line = memory.line - kernel.first_line
        return line if 0 <= line < len(code.lines) else None
    if access is None or not access.parameter:
        return None
    word = re.compile(rf"\b{access.parameter}\b(?! *[,)])")
    first = next((n for n, text in enumerate(code.lines) if text.startswith("{")), 0)
    lines = [n for n in range(first, len(code.lines)) if word.search(code.lines[n])]
    return lines[0] if len(lines) == 1 else None


def _said(chain: Chain, address: str, is_exact: bool) -> str:
    names = ", ".join(map(str, chain.guilty[:3])) or "no operator that is known"
    where = f"In kernel {chain.kernel}, which computes {names}"
    if is_exact:
        where = f"In kernel {chain.kernel}, at a line for {names}"
    access = chain.access
    if access is None or not address:
        return f"{where}, the process dies."
    if access.argument is None:
        return f"{where}, address {address} is touched, which is near no argument."
    return (
        f"{where}, the process dies at element {access.offset} of {access.parameter}, "
        f"{access.argument}, {access.elements} elements as declared."
    )


def _with_liar(known: Known, chain: Chain) -> Chain:
    """Blame an operator that has made something else than it declares."""
    argument = chain.access.argument if chain.access else None
    makers = {operator.name for operator in argument.made_by} if argument else set()
    for lie in known.anatomy.untrue:
        liar = known.operators([lie.node])
        if not liar or (makers and lie.node not in makers and chain.kernel):
            continue
        said = f"{liar[0]} does not make what it declares: {lie.text}."
        return replace(chain, guilty=liar, cause=(said, *chain.cause)[:3])
    if argument is not None and argument.made_by and _is_other(known, argument):
        said = (
            f"{argument.role} {argument.name} is declared "
            f"[{', '.join(argument.shape)}] and is {list(argument.real_shape)}."
        )
        return replace(chain, guilty=argument.made_by, cause=(said, *chain.cause))
    return chain


def _is_other(known: Known, argument: Layout) -> bool:
    """Tell whether a tensor has not the shape that is declared."""
    sizes = {symbol.name: symbol.value for symbol in known.anatomy.symbols}
    said = [int(s) if s.isdigit() else sizes.get(s) for s in argument.shape]
    pairs = zip(said, argument.real_shape, strict=False)
    return any(a is not None and a != b for a, b in pairs)
