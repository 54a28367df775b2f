"""Find the operator that made an index wrong, by eager's value ranges."""

from __future__ import annotations

import re

from shrinkfx.explain.compiled_view import CompiledView
from shrinkfx.explain.operators import find_dependencies
from shrinkfx.failure.readers.generated import COPY
from shrinkfx.protocol.compiled_program_view import GivenInput
from shrinkfx.report.explanation.chain import Chain, Step
from shrinkfx.report.explanation.operators import Operator


def find_culprits(
    known: CompiledView, chain: Chain, checked_by: tuple[Operator, ...]
) -> tuple[tuple[Operator, ...], str]:
    """Return the operators that made the index wrong, and a sentence with the evidence.

    In eager each index is in range. So a value outside eager's range was computed
    wrong, whichever operator uses it. The search has cut off all that it could, so
    operators before that value remain only if the failure needs them as well.
    """
    if chain.eager_fails:
        return checked_by, _given(chain)
    if (state := _wrong_state(known, chain)) is not None:
        return state
    by = checked_by[0] if len(checked_by) == 1 else None
    wrong = _first_out_of_range(known, chain, by)
    if wrong is not None:
        operator, value, (least, most) = wrong
        before = _left_before(known, operator)
        so = f"{operator.operator} is wrong"
        so = f"{operator.operator} or one of its inputs is wrong" if before else so
        return (*before, operator), (
            f"In eager, all values of {operator} are within {least}..{most}; compiled "
            f"code computes {value}: {so}."
        )
    loads = [step for step in chain.steps if step.reads is not None]
    if not loads and by and (folded := _folded_into(known, chain, by)):
        names = ", ".join(str(one) for one in (*folded, by))
        return (*folded, by), (
            f"The index is {_formula(chain)}, a constant at these sizes, which the "
            f"compiler has computed: it comes from one of {names}."
        )
    if not loads and by:
        return (by, *_readers(known, chain, by)), (
            f"The index is {_formula(chain)}, which depends on no tensor: it comes "
            f"from the lowering of {by.operator}."
        )
    if loads and by and _all_as_in_eager(known, chain, by):
        return checked_by, (
            "All values that the index is computed from are in eager's ranges: the "
            f"index arithmetic or the bound of {by.operator} is wrong."
        )
    read = [step.reads for step in loads if step.reads is not None]
    makers = [o for r in read for o in (*known.computed(r.name), *r.made_by)]
    makers += [o for step in chain.steps for o in step.operators]
    return tuple(dict.fromkeys([*makers, *checked_by])), ""


def _wrong_state(
    known: CompiledView, chain: Chain
) -> tuple[tuple[Operator, ...], str] | None:
    """Find an earlier call that wrote a value into a buffer that eager never writes."""
    states = {state.input: state for state in known.recorded.states}
    for step in chain.steps:
        given = next((i for i in known.recorded.inputs if _is_read(step, i)), None)
        state = states.get(given.name) if given else None
        if given is None or state is None or step.value is None:
            continue
        if float(state.least) <= step.value <= float(state.most):
            continue
        writers = known.operators([state.written])
        before = [o for writer in writers for o in _left_before(known, writer)]
        return (*before, *writers), (
            f"In eager, {given.role} {given.target} holds {state.least}..{state.most} "
            f"before call {state.call}; in compiled code it holds {step.value}: an "
            "earlier call wrote a wrong value."
        )
    return None


def _is_read(step: Step, given: GivenInput) -> bool:
    return step.reads is not None and step.reads.name == given.target


def _left_before(known: CompiledView, operator: Operator) -> tuple[Operator, ...]:
    """Return the operators of the reduced program that another one is computed from."""
    before = find_dependencies(known.candidate, [operator.name])
    return known.operators([name for name in known.left if name in before])


def _readers(known: CompiledView, chain: Chain, by: Operator) -> tuple[Operator, ...]:
    """Return non-pointwise operators of the kernel that read an operator's elements.

    The position at which such an operator reads is part of the index computation.
    """
    return tuple(
        operator
        for operator in chain.fused
        if by.name in find_dependencies(known.candidate, [operator.name])
        if operator.name not in known.candidate.replace  # simple ones are pointwise
        if not known.skeleton.node(operator.name).pointwise
    )


def _folded_into(
    known: CompiledView, chain: Chain, by: Operator
) -> tuple[Operator, ...]:
    """Return the operators whose values may be folded into a constant index.

    An index that depends on a loop position is the operator's own.
    """
    if not _CONSTANT.fullmatch(_formula(chain)):
        return ()
    before = find_dependencies(known.candidate, [by.name])
    return tuple(one for one in chain.fused if one.name in before)


_CONSTANT = re.compile(r"`[-\d\sL+*()]+`")


def _formula(chain: Chain) -> str:
    """Quote the code of an index: its last line that is not a copy."""
    codes = (step.code.partition(" = ")[2] for step in reversed(chain.steps))
    return next((f"`{code}`" for code in codes if not COPY.search(code)), "a constant")


def _given(chain: Chain) -> str:
    """Name the input whose value is the index, so that eager may reject it too."""
    loads = [step for step in chain.steps if step.reads is not None]
    if len(loads) == 1 and loads[0].reads and loads[0].reads.role == "input":
        value = "" if loads[0].value is None else f" {loads[0].value}"
        made = f"value{value} of input {loads[0].reads.name}"
        return f"The index comes from {made}."
    return ""


def _first_out_of_range(
    known: CompiledView, chain: Chain, by: Operator | None
) -> tuple[Operator, int, tuple[int, int]] | None:
    """Return the first value, in program order, that is outside eager's range."""
    seen: list[tuple[int, Operator, int]] = []
    for operator, value in _values(known, chain, by).items():
        span = known.ranges.get(operator.name)
        if span and not span[0] <= value <= span[1]:
            seen.append((known.skeleton.order(operator.name), operator, value))
    if not seen:
        return None
    _, operator, value = min(seen, key=lambda entry: entry[0])
    return operator, value, known.ranges[operator.name]


def _values(
    known: CompiledView, chain: Chain, by: Operator | None
) -> dict[Operator, int]:
    """Map operators to their results: values that were loaded or computed.

    Args:
        by: the operator of the index; its lines compute no result of its own.
    """
    found: dict[Operator, int] = {}
    outputs = _last_lines(known, chain.kernel)
    for step in chain.steps:
        if step.value is None:
            continue
        if step.reads is not None:
            found |= dict.fromkeys(known.result(step.reads.name), step.value)
        elif len(step.operators) == 1 and step.operators[0] != by:
            (operator,) = step.operators
            if step.code.startswith(f"{outputs.get(operator.name)} = "):
                found[operator] = step.value
    return found


def _last_lines(known: CompiledView, kernel: str) -> dict[str, str]:
    """Return the variable of each node's result, which its last line assigns.

    Other lines may be shared between nodes. A node with a line in a later kernel is
    omitted, because its result may be completed there.
    """
    kernels = known.recorded.kernels
    place = next((n for n, text in enumerate(kernels) if text.name == kernel), None)
    if place is None:
        return {}
    later = {n for text in kernels[place + 1 :] for o in text.origins for n in o.nodes}
    return {
        node: origin.variable
        for origin in kernels[place].origins
        if origin.variable
        for node in origin.nodes
        if node not in later
    }


def _all_as_in_eager(known: CompiledView, chain: Chain, by: Operator) -> bool:
    """Return whether all values behind an index are known to be in eager's ranges."""
    values = _values(known, chain, by)
    for step in chain.steps:
        if step.reads is not None:
            needed = known.result(step.reads.name)
            if not needed and step.reads.role == "buffer":
                return False
        else:
            needed = tuple(o for o in step.operators if o != by)
        for operator in needed:
            if operator not in values or operator.name not in known.ranges:
                return False
    return True  # the caller has excluded values outside eager's range
