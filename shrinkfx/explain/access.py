"""An access out of its memory: which argument, how far, and who declared it so."""

from __future__ import annotations

from dataclasses import replace

from shrinkfx.explain.anatomy import Known
from shrinkfx.explain.death import assertion_in, death_chain
from shrinkfx.explain.layouts import declared_too_large
from shrinkfx.explain.lines import marked, with_views, written_for
from shrinkfx.explain.timed import wrong_sizes
from shrinkfx.failure.readers.asan import MemoryReport
from shrinkfx.failure.readers.generated import Code
from shrinkfx.protocol.anatomy import KernelText, StrayAccess
from shrinkfx.report.explanation.chain import Access, Chain, Layout
from shrinkfx.report.explanation.operators import Operator

_TIMED = "When AOTInductor benchmarks kernels with generated arguments, "


def access_chain(known: Known, memory: MemoryReport | None, eager_fails: bool) -> Chain:
    """Follow an access out of its memory, or a kernel's death.

    Args:
        memory: what AddressSanitizer has said, if it was asked.
    """
    if known.anatomy.stray is not None:
        chain = _of_finding(known, known.anatomy.stray)
    else:
        chain = death_chain(known, memory)
    chain = replace(chain, eager_fails=eager_fails, dies=chain.guilty)
    return _with_liar(known, chain)


def assertion_chain(known: Known, said: str, eager_fails: bool) -> Chain:
    """Say in which kernel another assertion than of an index fails, or who lies.

    Args:
        said: what the assertion says.
    """
    chain = replace(assertion_in(known, said), eager_fails=eager_fails)
    chain = _with_liar(known, chain)
    if chain.guilty:
        return chain
    return replace(chain, unknown=("which kernel: no kernel contains the assertion",))


def _of_finding(known: Known, stray: StrayAccess) -> Chain:
    """Say what the interpreter has seen."""
    code = Code(stray.text)
    place, launch = known.launch_of(stray.kernel) or (-1, None)
    written = known.anatomy.kernel(stray.kernel)
    passed = known.passed(launch, Code(written.text)) if launch and written else {}
    name = passed.get(stray.argument, "")
    argument = known.layout(known.read(name) if stray.fault != "store" else name)
    if argument is not None and stray.shape:
        argument = replace(
            argument,
            real_shape=stray.shape,
            real_stride=stray.stride,
            made_by=known.made(stray.role) or argument.made_by,
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
        launches=len(known.anatomy.launches),
        grid=stray.grid,
        fused=known.operators(launch.nodes if launch else ()),
        code=marked(code, stray.line) if stray.line >= 0 else (),
        access=access,
        inputs=(argument,) if argument and argument.role != "buffer" else (),
    )
    by = _by(known, stray, written, code)
    argument = _made_before(argument, by) if argument and stray.user else argument
    made = known.made(stray.role) if stray.fault == "misaligned" else ()
    by_address = not stray.user and stray.fault != "assert"
    guilty = made or (with_views(known, chain.fused, by) if by_address else by)
    guilty = guilty or chain.fused
    said = _said_of(stray, guilty, argument)
    sizes = wrong_sizes(known, stray) if stray.made_up else ""
    if stray.made_up:
        said = f"{_TIMED}{said[0].lower()}{said[1:]}"
    # Inductor names the neighbours of a user's kernel with its operator.
    fused = by if stray.user else chain.fused
    cause = (sizes, said) if sizes else (said,)
    return replace(chain, fused=fused, guilty=guilty, cause=cause)


def _made_before(argument: Layout, by: tuple[Operator, ...]) -> Layout:
    """Leave out of an argument's makers the operator that hands it to its kernel."""
    others = tuple(maker for maker in argument.made_by if maker not in by)
    return replace(argument, made_by=others or argument.made_by)


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
    return written_for(known, written, code, stray.line)


def _is_pytorchs(operator: Operator) -> bool:
    return operator.operator.startswith("aten.")


def _said_of(
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
    stands = "generated for " if stray.made_up and argument else ""
    where = f"{stray.argument} ({stands}{argument or stray.role})"
    return (
        f"A {stray.fault} through {where} in {whose} accesses "
        f"element {stray.offset}, {_beyond(stray)}, in {stray.lanes} "
        f"{'lane' if stray.lanes == 1 else 'lanes'} of program {stray.program} of grid "
        f"{stray.grid}."
    )


def _beyond(stray: StrayAccess) -> str:
    """Say where an element lies that is none of an argument's."""
    elements = f"{stray.elements} element{'' if stray.elements == 1 else 's'}"
    if 0 <= stray.offset < stray.elements:
        return f"one of its {elements}"
    return f"{'before' if stray.offset < 0 else 'beyond'} its {elements}"


def _with_liar(known: Known, chain: Chain) -> Chain:
    """Blame an operator that has made something else than it declares."""
    if known.anatomy.stray and known.anatomy.stray.made_up:
        return chain  # nobody has made that
    argument = chain.access.argument if chain.access else None
    given = _makers(known, chain, argument) if chain.kernel else None
    if liar := known.liar(given):
        cause = (liar[1], *chain.cause)[:3]
        return replace(chain, guilty=(liar[0],), cause=cause)
    if argument is None or not argument.made_by or _bears_another_shape(known, chain):
        return chain
    if said := declared_too_large(known.anatomy, argument):
        by = ", ".join(map(str, argument.made_by))
        cause = (f"{said} {by} declares this result.", *chain.cause)[:3]
        return replace(chain, guilty=argument.made_by, cause=cause)
    return chain


def _makers(known: Known, chain: Chain, argument: Layout | None) -> set[str]:
    """Name who has made the argument at fault; all of the kernel's if it is unknown."""
    if argument is not None:
        return {operator.name for operator in argument.made_by}
    _, launch = known.launch_of(chain.kernel) or (-1, None)
    names = launch.arguments if launch else ()
    return {operator.name for name in names for operator in known.computed(name)}


def _bears_another_shape(known: Known, chain: Chain) -> bool:
    """Tell whether an argument is what a kernel writes in place, not what is there."""
    in_place = chain.access is not None and "in_out" in chain.access.parameter
    return in_place and known.anatomy.stray is not None
