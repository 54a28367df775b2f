"""Explain an out-of-bounds access: the argument, the offset and the culprit."""

from __future__ import annotations

from dataclasses import replace

from shrinkfx.explain.compiled_view import CompiledView
from shrinkfx.explain.death import death_chain, find_assertion
from shrinkfx.explain.layouts import describe_oversized
from shrinkfx.explain.lines import find_line_operators, quote_lines, with_views
from shrinkfx.explain.timed import wrong_sizes
from shrinkfx.failure.readers.asan import MemoryReport
from shrinkfx.failure.readers.generated import Code
from shrinkfx.protocol.compiled_program_view import KernelText, StrayAccess
from shrinkfx.report.explanation.chain import Access, Chain, Layout
from shrinkfx.report.explanation.operators import Operator

_TIMED = "When AOTInductor benchmarks kernels with generated arguments, "


def access_chain(
    known: CompiledView, memory: MemoryReport | None, eager_fails: bool
) -> Chain:
    """Follow an out-of-bounds access, or the crash of a kernel, to its cause.

    Args:
        memory: the report of AddressSanitizer, or None.
    """
    if known.recorded.out_of_bounds is not None:
        chain = _of_finding(known, known.recorded.out_of_bounds)
    else:
        chain = death_chain(known, memory)
    chain = replace(chain, eager_fails=eager_fails, dies=chain.culprits)
    return _blame_mismatch(known, chain)


def assertion_chain(known: CompiledView, said: str, eager_fails: bool) -> Chain:
    """Find the kernel whose assertion fails, other than an index check.

    Args:
        said: the text of the assertion.
    """
    chain = replace(find_assertion(known, said), eager_fails=eager_fails)
    chain = _blame_mismatch(known, chain)
    if chain.culprits:
        return chain
    return replace(chain, unknown=("which kernel: no kernel contains the assertion",))


def _of_finding(known: CompiledView, stray: StrayAccess) -> Chain:
    """Build a chain from an access that the interpreter has detected."""
    code = Code(stray.text)
    place, launch = known.launch_of(stray.kernel) or (-1, None)
    written = known.recorded.kernel(stray.kernel)
    passed = (
        known.map_arguments(launch, Code(written.text)) if launch and written else {}
    )
    name = passed.get(stray.argument, "")
    argument = known.layout(known.read(name) if stray.fault != "store" else name)
    if argument is not None and stray.shape:
        argument = replace(
            argument,
            real_shape=stray.shape,
            real_stride=stray.stride,
            made_by=known.find_producers(stray.role) or argument.made_by,
        )
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
        launches=len(known.recorded.launches),
        grid=stray.grid,
        fused=known.operators(launch.nodes if launch else ()),
        code=quote_lines(code, stray.line) if stray.line >= 0 else (),
        access=access,
        inputs=(argument,) if argument and argument.role != "buffer" else (),
    )
    by = _find_operators(known, stray, written, code)
    argument = _made_before(argument, by) if argument and stray.user else argument
    made = known.find_producers(stray.role) if stray.fault == "misaligned" else ()
    by_address = not stray.user and stray.fault != "assert"
    guilty = made or (with_views(known, chain.fused, by) if by_address else by)
    guilty = guilty or chain.fused
    said = _describe_access(stray, guilty, argument)
    sizes = wrong_sizes(known, stray) if stray.made_up else ""
    if stray.made_up:
        said = f"{_TIMED}{said[0].lower()}{said[1:]}"
    # For a user's kernel, Inductor lists neighboring operators too.
    fused = by if stray.user else chain.fused
    cause = (sizes, said) if sizes else (said,)
    return replace(chain, fused=fused, culprits=guilty, cause=cause)


def _made_before(argument: Layout, by: tuple[Operator, ...]) -> Layout:
    """Remove from an argument's producers the operator that launches the kernel."""
    others = tuple(maker for maker in argument.made_by if maker not in by)
    return replace(argument, made_by=others or argument.made_by)


def _find_operators(
    known: CompiledView, stray: StrayAccess, written: KernelText | None, code: Code
) -> tuple[Operator, ...]:
    """Return the operator of the failing line, or of the user's kernel."""
    if stray.user:
        _, launch = known.launch_of(stray.kernel) or (-1, None)
        own = [o for o in known.operators(known.left) if not _is_pytorchs(o)]
        return tuple([o for o in own if launch and o.name in launch.nodes] or own)
    if written is None or stray.line < 0:
        return ()
    return find_line_operators(known, written, code, stray.line)


def _is_pytorchs(operator: Operator) -> bool:
    return operator.operator.startswith("aten.")


_VERBS = {"load": "loads", "store": "stores", "atomic": "atomically changes"}


def _describe_access(
    stray: StrayAccess, by: tuple[Operator, ...], argument: Layout | None
) -> str:
    names = ", ".join(map(str, by[:3])) or "an operator"
    whose = f"kernel {stray.kernel} {'of' if stray.user else 'for'} {names}"
    if stray.fault == "misaligned":
        given = f"{stray.argument} of kernel {stray.kernel}"
        made = argument or stray.role
        return f"The memory of {given} is {stray.message}: {made}."
    if stray.fault == "assert":
        return f"An assertion fails in {whose}: {stray.message}."
    kernel = f"Kernel {stray.kernel}, which computes {names},"
    does = f"{_VERBS[stray.fault]} element {stray.offset} of {stray.argument}"
    has = f"{stray.elements} element{'' if stray.elements == 1 else 's'}"
    lanes = f"{stray.lanes} lane{'' if stray.lanes == 1 else 's'}"
    who = f"{lanes} of program {stray.program}, grid {stray.grid}"
    stands = "was generated for" if stray.made_up and argument else "is"
    what = f"{stray.argument} {stands} {argument or stray.role}"
    return f"{kernel} {does}, which has {has} ({who}). {what}."


def _blame_mismatch(known: CompiledView, chain: Chain) -> Chain:
    """Blame an operator with a fake-kernel mismatch, if there is one."""
    if known.recorded.out_of_bounds and known.recorded.out_of_bounds.made_up:
        return chain  # no operator made a generated argument
    argument = chain.access.argument if chain.access else None
    given = _makers(known, chain, argument) if chain.kernel else None
    if liar := known.find_mismatch(given):
        cause = (liar[1], *chain.cause)[:3]
        return replace(chain, culprits=(liar[0],), cause=cause)
    if argument is None or not argument.made_by or _bears_another_shape(known, chain):
        return chain
    if said := describe_oversized(known.recorded, argument):
        by = ", ".join(map(str, argument.made_by))
        cause = (f"{said} {by} declares this result.", *chain.cause)[:3]
        return replace(chain, culprits=argument.made_by, cause=cause)
    return chain


def _makers(known: CompiledView, chain: Chain, argument: Layout | None) -> set[str]:
    """Return the producers of the failing argument, or of all arguments."""
    if argument is not None:
        return {operator.name for operator in argument.made_by}
    _, launch = known.launch_of(chain.kernel) or (-1, None)
    names = launch.arguments if launch else ()
    return {operator.name for name in names for operator in known.computed(name)}


def _bears_another_shape(known: CompiledView, chain: Chain) -> bool:
    """Return whether the access is through a buffer that the kernel writes in place.

    Its shape is that of the kernel's result, not of the memory.
    """
    in_place = chain.access is not None and "in_out" in chain.access.parameter
    return in_place and known.recorded.out_of_bounds is not None
