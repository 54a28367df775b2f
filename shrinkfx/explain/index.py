"""Explain a rejected index: its value, its bound, and the operators that made them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shrinkfx.explain.compiled_view import (
    CompiledView,
    FailingKernel,
    find_line_operators,
    quote_lines,
)
from shrinkfx.explain.reduced_program import find_dependencies
from shrinkfx.failure.readers.generated import COPY, Assignment, IndexCheck
from shrinkfx.findings.chain import (
    Chain,
    Layout,
    Limit,
    SizeSymbol,
    Step,
)
from shrinkfx.findings.operators import Operator

_MESSAGE = re.compile(r"index out of bounds: ([^\n\"\[]+)")


@dataclass(frozen=True)
class _RejectedIndex:
    """An index check that failed, and the values in the kernel."""

    failing: FailingKernel
    check: IndexCheck
    values: dict[str, int]


def index_chain(view: CompiledView, text: str) -> Chain:
    """Follow a rejected index to its cause.

    Args:
        text: the output of the run.
    """
    rejected = _find_rejected_index(view, text)
    if rejected is None:
        why = "which line rejected the index: the run did not report it"
        return Chain(unknown=(why,))
    check, failing = rejected.check, rejected.failing
    history = failing.code.history(check.index, check.line)
    steps = tuple(_step(view, rejected, step) for step in history)
    bound = check.upper or check.lower
    limit_value = rejected.values.get(bound.replace(" ", ""))
    limit = view.limit(bound, failing.passed, limit_value)
    checked_by = find_line_operators(view, failing, check.line)
    value, finding = rejected.values.get(check.index), view.recorded.out_of_bounds
    chain = replace(
        failing.chain,
        grid=finding.grid if finding else (),
        code=quote_lines(failing.code, check.line),
        index=check.index,
        value=value,
        limit=limit,
        steps=steps,
        sizes=_sizes(view, steps, failing.passed, limit),
        inputs=_inputs(view, steps, limit),
        unknown=("the index value: the run did not report it",) * (value is None),
    )
    indexed = _indexed(view, rejected, history)
    culprits, evidence = find_culprits(view, chain, checked_by)
    sentences = _describe_index(chain, checked_by, indexed)
    return replace(
        chain,
        culprits=culprits,
        dies=checked_by or chain.fused,
        cause=(*sentences, evidence) if evidence else sentences,
    )


def _find_rejected_index(view: CompiledView, text: str) -> _RejectedIndex | None:
    """Return the check that failed: as reported, or the only one with its message."""
    finding = view.recorded.out_of_bounds
    if finding is not None and finding.text and finding.line >= 0:
        failing = view.locate(finding.kernel, finding.text)
        pairs = (pair.split("=", 1) for pair in finding.values)
        values = {name: int(value) for name, value in pairs}
        return _find_check(failing, finding.line, values)
    if view.kernel_log.refused is not None:
        name, line, values = view.kernel_log.refused
        return _find_check(view.locate(name), line, values)
    message = _MESSAGE.search(text)
    matching = [
        _RejectedIndex(failing, check, {})
        for kernel in view.recorded.kernels
        if message and kernel.name in text
        for failing in [view.locate(kernel.name)]
        for check in failing.code.checks()
        if check.text == message[1].strip()
    ]
    return matching[0] if len(matching) == 1 else None


def _find_check(
    failing: FailingKernel, line: int, values: dict[str, int]
) -> _RejectedIndex | None:
    check = next((c for c in failing.code.checks() if c.line == line), None)
    return _RejectedIndex(failing, check, values) if check else None


def _step(view: CompiledView, rejected: _RejectedIndex, step: Assignment) -> Step:
    passed = rejected.failing.passed
    parameter = next((p for p in step.pointers if p in passed), "")
    return Step(
        code=f"{step.name} = {step.expression}",
        value=rejected.values.get(step.name),
        operators=find_line_operators(view, rejected.failing, step.line),
        parameter=parameter,
        reads=view.layout(view.read(passed[parameter])) if parameter else None,
    )


def _indexed(
    view: CompiledView, rejected: _RejectedIndex, history: Sequence[Assignment]
) -> Layout | None:
    """Return the tensor that the index is used on, from the lines after the check."""
    names = {rejected.check.index}
    for step in reversed(history):
        if step.name in names:  # a copy or a cast
            copied = COPY.findall(step.expression)
            names |= {variable or lane for variable, lane in copied}
    word = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
    passed, depth = rejected.failing.passed, 0
    for line in rejected.failing.code.lines[rejected.check.line + 1 :]:
        depth += line.count("{") - line.count("}")
        if depth < 0:
            break  # the variables are out of scope
        access = re.search(r"\b((?:in_out|in|out)_ptr\d+)\b(.*)", line)
        if access and word.search(access[2]) and access[1] in passed:
            return view.layout(passed[access[1]])
    return None


def _sizes(
    view: CompiledView, steps: Sequence[Step], passed: dict[str, str], limit: Limit
) -> tuple[SizeSymbol, ...]:
    """Return the sizes that the index itself is computed from."""
    words = [word for step in steps for word in re.findall(r"\bks\d+\b", step.code)]
    names = " ".join(passed.get(word, "") for word in words)
    found = view.symbols(dict.fromkeys(re.findall(r"\w+", names)))
    return tuple(size for size in found if size not in limit.symbols)


def _inputs(
    view: CompiledView, steps: Sequence[Step], limit: Limit
) -> tuple[Layout, ...]:
    """Return the inputs that the index and the bound come from."""
    read = [step.reads for step in steps if step.reads and not step.reads.made_in]
    carriers = {symbol.input for symbol in limit.symbols}
    named = {layout.name: layout for layout in read if layout.role != "buffer"}
    for entry in view.recorded.inputs:
        if entry.name in carriers:
            named.setdefault(entry.name, view.layout_of(entry))
    return tuple(named.values())


def _describe_index(
    chain: Chain,
    checked_by: tuple[Operator, ...],
    indexed: Layout | None,
) -> tuple[str, ...]:
    """Return sentences about the rejected index, its bound and their sources."""
    value = chain.index if chain.value is None else str(chain.value)
    limit = chain.limit
    assert limit is not None
    size = limit.code if limit.value is None else str(limit.value)
    where = f" in {', '.join(map(str, checked_by))}" if checked_by else ""
    of = f" of {indexed.role} {indexed.name}" if indexed else ""
    bounds = f"Index {value} is out of bounds for size {size}"
    first = f"{bounds}{where}{of}, in kernel {chain.kernel}."
    made = [
        f"{step.reads}" + ("" if step.value is None else f", which holds {step.value}")
        for step in chain.steps
        if step.reads is not None
    ]
    parts = [f"The index comes from {'; '.join(dict.fromkeys(made))}"] if made else []
    if limit.symbols:
        parts.append(f"the size is {'; '.join(map(str, limit.symbols))}")
    second = "; ".join(parts)
    return (first, f"{second[0].upper()}{second[1:]}.") if second else (first,)


def find_culprits(
    view: CompiledView, chain: Chain, checked_by: tuple[Operator, ...]
) -> tuple[tuple[Operator, ...], str]:
    """Return the operators that made the index wrong, and a sentence with the evidence.

    In eager each index is in range. So a value outside eager's range was computed
    wrong, whichever operator uses it. The search has cut off all that it could, so
    operators before that value remain only if the failure needs them as well.
    """
    if view.eager_fails:
        return checked_by, _given(chain)
    user = checked_by[0] if len(checked_by) == 1 else None
    first = _first_out_of_range(view, chain, user)
    if first is not None:
        operator, value, (least, most) = first
        before = _left_before(view, operator)
        inputs = " or one of its inputs" if before else ""
        claim = f"{operator.operator}{inputs} is wrong"
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
    read = loads[0].reads if len(loads) == 1 else None
    if read is None or read.role != "input":
        return ""
    value = "" if loads[0].value is None else f" {loads[0].value}"
    return f"The index comes from value{value} of input {read.name}."


def _first_out_of_range(
    view: CompiledView, chain: Chain, user: Operator | None
) -> tuple[Operator, int, tuple[int, int]] | None:
    """Return the first value, in program order, that is outside eager's range."""
    wrong: dict[Operator, int] = {}
    for operator, value in _values(view, chain, user).items():
        span = view.ranges.get(operator.name)
        if span and not span[0] <= value <= span[1]:
            wrong[operator] = value
    if not wrong:
        return None
    first = min(wrong, key=lambda operator: view.skeleton.order(operator.name))
    return first, wrong[first], view.ranges[first.name]


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
