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
    view: CompiledView, chain: Chain, checked_by: tuple[Operator, ...]
) -> tuple[tuple[Operator, ...], str]:
    """Return the operators that made the index wrong, and a sentence with the evidence.

    In eager each index is in range. So a value outside eager's range was computed
    wrong, whichever operator uses it. The search has cut off all that it could, so
    operators before that value remain only if the failure needs them as well.
    """
    if chain.eager_fails:
        return checked_by, _given(chain)
    if (state := _wrong_state(view, chain)) is not None:
        return state
    user = checked_by[0] if len(checked_by) == 1 else None
    first = _first_out_of_range(view, chain, user)
    if first is not None:
        operator, value, (least, most) = first
        before = _left_before(view, operator)
        claim = f"{operator.operator} is wrong"
        claim = (
            f"{operator.operator} or one of its inputs is wrong" if before else claim
        )
        return (*before, operator), (
            f"In eager, all values of {operator} are within {least}..{most}; compiled "
            f"code computes {value}: {claim}."
        )
    loads = [step for step in chain.steps if step.reads is not None]
    if not loads and user and (folded := _folded_into(view, chain, user)):
        names = ", ".join(str(one) for one in (*folded, user))
        return (*folded, user), (
            f"The index is {_formula(chain)}, a constant at these sizes, which the "
            f"compiler has computed: it comes from one of {names}."
        )
    if not loads and user:
        return (user, *_readers(view, chain, user)), (
            f"The index is {_formula(chain)}, which depends on no tensor: it comes "
            f"from the lowering of {user.operator}."
        )
    if loads and user and _all_as_in_eager(view, chain, user):
        return checked_by, (
            "All values that the index is computed from are in eager's ranges: the "
            f"index arithmetic or the bound of {user.operator} is wrong."
        )
    read = [step.reads for step in loads if step.reads is not None]
    makers = [o for r in read for o in (*view.computed(r.name), *r.made_by)]
    makers += [o for step in chain.steps for o in step.operators]
    return tuple(dict.fromkeys([*makers, *checked_by])), ""


def _wrong_state(
    view: CompiledView, chain: Chain
) -> tuple[tuple[Operator, ...], str] | None:
    """Find an earlier call that wrote a value into a buffer that eager never writes."""
    states = {state.input: state for state in view.recorded.states}
    for step in chain.steps:
        entry = next((i for i in view.recorded.inputs if _is_read(step, i)), None)
        state = states.get(entry.name) if entry else None
        if entry is None or state is None or step.value is None:
            continue
        if float(state.least) <= step.value <= float(state.most):
            continue
        writers = view.operators([state.written])
        before = [o for writer in writers for o in _left_before(view, writer)]
        return (*before, *writers), (
            f"In eager, {entry.role} {entry.target} holds {state.least}..{state.most} "
            f"before call {state.call}; in compiled code it holds {step.value}: an "
            "earlier call wrote a wrong value."
        )
    return None


def _is_read(step: Step, entry: GivenInput) -> bool:
    return step.reads is not None and step.reads.name == entry.target


def _left_before(view: CompiledView, operator: Operator) -> tuple[Operator, ...]:
    """Return the operators of the reduced program that another one is computed from."""
    dependencies = find_dependencies(view.candidate, [operator.name])
    return view.operators([name for name in view.left if name in dependencies])


def _readers(view: CompiledView, chain: Chain, user: Operator) -> tuple[Operator, ...]:
    """Return non-pointwise operators of the kernel that read an operator's elements.

    The position at which such an operator reads is part of the index computation.
    """
    return tuple(
        operator
        for operator in chain.fused
        if user.name in find_dependencies(view.candidate, [operator.name])
        if operator.name not in view.candidate.replace  # simple ones are pointwise
        if not view.skeleton.node(operator.name).pointwise
    )


def _folded_into(
    view: CompiledView, chain: Chain, user: Operator
) -> tuple[Operator, ...]:
    """Return the operators whose values may be folded into a constant index.

    An index that depends on a loop position is the operator's own.
    """
    if not _CONSTANT.fullmatch(_formula(chain)):
        return ()
    dependencies = find_dependencies(view.candidate, [user.name])
    return tuple(one for one in chain.fused if one.name in dependencies)


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
        source = f"value{value} of input {loads[0].reads.name}"
        return f"The index comes from {source}."
    return ""


def _first_out_of_range(
    view: CompiledView, chain: Chain, user: Operator | None
) -> tuple[Operator, int, tuple[int, int]] | None:
    """Return the first value, in program order, that is outside eager's range."""
    seen: list[tuple[int, Operator, int]] = []
    for operator, value in _values(view, chain, user).items():
        span = view.ranges.get(operator.name)
        if span and not span[0] <= value <= span[1]:
            seen.append((view.skeleton.order(operator.name), operator, value))
    if not seen:
        return None
    _, operator, value = min(seen, key=lambda entry: entry[0])
    return operator, value, view.ranges[operator.name]


def _values(
    view: CompiledView, chain: Chain, user: Operator | None
) -> dict[Operator, int]:
    """Map operators to their results: values that were loaded or computed.

    Args:
        user: the operator of the index; its lines compute no result of its own.
    """
    found: dict[Operator, int] = {}
    outputs = _last_lines(view, chain.kernel)
    for step in chain.steps:
        if step.value is None:
            continue
        if step.reads is not None:
            found |= dict.fromkeys(view.result(step.reads.name), step.value)
        elif len(step.operators) == 1 and step.operators[0] != user:
            (operator,) = step.operators
            if step.code.startswith(f"{outputs.get(operator.name)} = "):
                found[operator] = step.value
    return found


def _last_lines(view: CompiledView, kernel: str) -> dict[str, str]:
    """Return the variable of each node's result, which its last line assigns.

    Other lines may be shared between nodes. A node with a line in a later kernel is
    omitted, because its result may be completed there.
    """
    kernels = view.recorded.kernels
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


def _all_as_in_eager(view: CompiledView, chain: Chain, user: Operator) -> bool:
    """Return whether all values behind an index are known to be in eager's ranges."""
    values = _values(view, chain, user)
    for step in chain.steps:
        if step.reads is not None:
            needed = view.result(step.reads.name)
            if not needed and step.reads.role == "buffer":
                return False
        else:
            needed = tuple(o for o in step.operators if o != user)
        for operator in needed:
            if operator not in values or operator.name not in view.ranges:
                return False
    return True  # the caller has excluded values outside eager's range
