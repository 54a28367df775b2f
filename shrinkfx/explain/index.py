"""An index that a kernel refuses: back to the value, the size, and who made them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shrinkfx.explain.anatomy import Known
from shrinkfx.failure.readers.generated import Assignment, Code, IndexCheck
from shrinkfx.protocol.anatomy import KernelText
from shrinkfx.report.explanation.chain import Chain, CodeLine, Layout, Limit, Step
from shrinkfx.report.explanation.operators import Operator

_COPY = re.compile(
    r"^(?:c10::convert<\w+>\()?(tmp\d+)\)?$|"
    r"(?:(?<=static_cast<int64_t>\())?\b(tmp\d+)(?:\[x\d+_inner\]\)|\.store\(tmpbuf)"
)
"""A line that gives the same value another name, or each lane of it."""

_SAID = re.compile(r"index out of bounds: ([^\n\"\[]+)")


@dataclass(frozen=True)
class _Refused:
    """A check that has refused an index, and what the kernel held there."""

    kernel: KernelText
    code: Code
    check: IndexCheck
    values: dict[str, int]


def index_chain(known: Known, text: str, eager_fails: bool) -> Chain:
    """Follow the index that was refused.

    Args:
        text: what the run has said.
    """
    refused = _refused(known, text)
    if refused is None:
        why = "which line refused it: the run did not tell, and several lines say so"
        return Chain(eager_fails=eager_fails, unknown=(why,))
    places = known.launches_of(refused.kernel.name)
    launch = known.anatomy.launches[places[0]] if places else None
    passed = known.passed(launch, refused.code) if launch else {}
    check, code = refused.check, refused.code
    history = code.history(check.index, check.line)
    steps = tuple(_step(known, refused, step, passed) for step in history)
    bound = check.upper or check.lower
    limit_value = refused.values.get(bound.replace(" ", ""))
    limit = known.limit(bound, passed, limit_value)
    checked_by = _operators_of(known, refused.kernel, "", check.said)
    chain = Chain(
        eager_fails=eager_fails,
        kernel=refused.kernel.name,
        launch=places[0] + 1 if len(places) == 1 else 0,
        launches=len(known.anatomy.launches),
        fused=known.operators(launch.nodes if launch else ()),
        code=marked(code, check.line),
        index=check.index,
        value=refused.values.get(check.index),
        limit=limit,
        steps=steps,
        inputs=_inputs(known, steps, limit),
    )
    guilty, evidence = _guilty(known, chain, checked_by)
    said = _said(chain, checked_by, _indexed(known, refused, history, passed))
    unknown = () if chain.value is not None else ("the index: the run did not tell",)
    return replace(
        chain,
        guilty=guilty,
        cause=(*said, evidence) if evidence else said,
        unknown=unknown,
    )


def marked(code: Code, line: int) -> tuple[CodeLine, ...]:
    """Quote the lines around one."""
    return tuple(
        CodeLine(number + 1, code.lines[number], number == line)
        for number in code.around(line)
    )


def _refused(known: Known, text: str) -> _Refused | None:
    """Find the line: it was told, or only one of all says what the failure does."""
    stray = known.anatomy.stray
    if stray is not None and stray.text and stray.line >= 0:
        origin = known.anatomy.kernel(stray.kernel)
        kernel = KernelText(stray.kernel, stray.text, origin.origins if origin else ())
        pairs = (pair.split("=", 1) for pair in stray.values)
        values = {name: int(value) for name, value in pairs}
        return _at(kernel, stray.line, values)
    if known.told.refused is not None:
        name, line, values = known.told.refused
        found = known.anatomy.kernel(name)
        return _at(found, line, values) if found else None
    said = _SAID.search(text)
    alike = [
        _Refused(kernel, code, check, {})
        for kernel in known.anatomy.kernels
        for code in [Code(kernel.text)]
        for check in code.checks()
        if said and check.said == said[1].strip() and kernel.name in text
    ]
    return alike[0] if len(alike) == 1 else None


def _at(kernel: KernelText, line: int, values: dict[str, int]) -> _Refused | None:
    code = Code(kernel.text)
    check = next((c for c in code.checks() if c.line == line), None)
    return _Refused(kernel, code, check, values) if check else None


def _step(
    known: Known, refused: _Refused, step: Assignment, passed: dict[str, str]
) -> Step:
    parameter = next((p for p in step.pointers if p in passed), "")
    return Step(
        code=f"{step.name} = {step.expression}",
        value=refused.values.get(step.name),
        operators=_operators_of(known, refused.kernel, step.name, step.expression),
        parameter=parameter,
        reads=known.layout(known.read(passed[parameter])) if parameter else None,
    )


def _operators_of(
    known: Known, kernel: KernelText, variable: str, expression: str
) -> tuple[Operator, ...]:
    """Say which operators a line was written for; none where that was not tracked."""
    for origin in kernel.origins:
        same = origin.expression == expression
        if not variable:
            same = not origin.variable and f"bounds: {expression}" in origin.expression
        if same and origin.variable == variable:
            return known.operators(origin.nodes)
    return ()


def _indexed(
    known: Known,
    refused: _Refused,
    history: Sequence[Assignment],
    passed: dict[str, str],
) -> Layout | None:
    """Find the tensor that the index was for: the next lines read or write there."""
    names = {refused.check.index}
    for step in reversed(history):
        if step.name in names:  # a copy, or the same as another type
            alike = re.fullmatch(
                r"(?:c10::convert<\w+>\()?(tmp\d+)\)?", step.expression
            )
            names |= {alike[1]} if alike else set()
    word = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
    for line in refused.code.lines[refused.check.line + 1 :]:
        access = re.search(r"\b((?:in_out|in|out)_ptr\d+)\b(.*)", line)
        if access and word.search(access[2]) and access[1] in passed:
            return known.layout(passed[access[1]])
    return None


def _inputs(known: Known, steps: Sequence[Step], limit: Limit) -> tuple[Layout, ...]:
    """List the inputs that index and limit come from."""
    read = [step.reads for step in steps if step.reads and not step.reads.made_in]
    carriers = {symbol.input for symbol in limit.symbols}
    named = {layout.name: layout for layout in read if layout.role != "buffer"}
    for given in known.anatomy.inputs:
        if given.name in carriers:
            named.setdefault(given.name, known.layout_of(given))
    return tuple(named.values())


def _guilty(
    known: Known, chain: Chain, checked_by: tuple[Operator, ...]
) -> tuple[tuple[Operator, ...], str]:
    """Say who made the index wrong, and what tells that.

    In eager each index is in range, so a value that eager's lie all below or above
    was computed wrong, whoever uses it.
    """
    if chain.eager_fails:
        return checked_by, _given(chain)
    by = checked_by[0] if len(checked_by) == 1 else None
    wrong = _first_out_of_range(known, chain, by)
    if wrong is not None:
        operators, value, (least, most) = wrong
        names = ", ".join(map(str, operators))
        return operators, (
            f"In eager all values of {names} lie within {least}..{most}, and here one "
            f"is {value}: it is computed wrong there."
        )
    loads = [step for step in chain.steps if step.reads is not None]
    if not loads and by:
        return checked_by, (
            f"The index is {_formula(chain)}: no data, only places and sizes, in the "
            f"code that {by.operator} was lowered to."
        )
    if loads and by and _all_as_in_eager(known, chain, by):
        return checked_by, (
            "All that it is made of lies where eager's values do: it is "
            f"{by.operator}'s own arithmetic or limit that is wrong."
        )
    makers = [o for step in loads if step.reads for o in step.reads.made_by]
    makers += [o for step in chain.steps for o in step.operators]
    return tuple(dict.fromkeys([*makers, *checked_by])), ""


def _formula(chain: Chain) -> str:
    """Quote how an index is computed: its last line that is no copy."""
    codes = (step.code.partition(" = ")[2] for step in reversed(chain.steps))
    return next((f"`{code}`" for code in codes if not _COPY.search(code)), "a constant")


def _given(chain: Chain) -> str:
    """Say which input eager refuses it for, where the index is that very value."""
    loads = [step for step in chain.steps if step.reads is not None]
    if len(loads) == 1 and loads[0].reads and loads[0].reads.role == "input":
        value = "" if loads[0].value is None else f" {loads[0].value}"
        where = f"value{value} of input {loads[0].reads.name}"
        return f"Eager fails too: {where} is refused without a compiler."
    return "Eager fails too: what was given is refused without a compiler."


def _first_out_of_range(
    known: Known, chain: Chain, by: Operator | None
) -> tuple[tuple[Operator, ...], int, tuple[int, int]] | None:
    """Find the first value, in the program's order, that eager does not have."""
    seen: list[tuple[int, Operator, int]] = []
    for operator, value in _values(known, chain, by).items():
        span = known.ranges.get(operator.name)
        if span and not span[0] <= value <= span[1]:
            seen.append((known.skeleton.order(operator.name), operator, value))
    if not seen:
        return None
    _, operator, value = min(seen, key=lambda entry: entry[0])
    return (operator,), value, known.ranges[operator.name]


def _values(known: Known, chain: Chain, by: Operator | None) -> dict[Operator, int]:
    """Say what operators have given: what was loaded of them, and computed there.

    Args:
        by: the one that the index is for: its lines compute no result of its own.
    """
    found: dict[Operator, int] = {}
    kernel = known.anatomy.kernel(chain.kernel)
    outputs = _last_lines(kernel) if kernel else {}
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


def _last_lines(kernel: KernelText) -> dict[str, str]:
    """Say what each node's last line assigns: its result. Others may be shared."""
    return {
        node: origin.variable
        for origin in kernel.origins
        if origin.variable
        for node in origin.nodes
    }


def _all_as_in_eager(known: Known, chain: Chain, by: Operator) -> bool:
    """Tell whether all that an index is made of is known to be what eager may have."""
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
    return True  # and none is out of eager's range


def _said(
    chain: Chain, checked_by: tuple[Operator, ...], indexed: Layout | None
) -> tuple[str, ...]:
    """Say what was refused, and what index and size are."""
    value = chain.index if chain.value is None else str(chain.value)
    limit = chain.limit
    assert limit is not None
    size = limit.code if limit.value is None else str(limit.value)
    by = checked_by or chain.fused[:1]
    where = f" in {', '.join(map(str, by))}" if checked_by else ""
    of = f" of {indexed.role} {indexed.name}" if indexed else ""
    first = f"Index {value} of size {size}{where}{of}, in kernel {chain.kernel}."
    made = [
        f"{step.reads}" + ("" if step.value is None else f", {step.value} there")
        for step in chain.steps
        if step.reads is not None
    ]
    parts = [f"The index comes from {'; '.join(dict.fromkeys(made))}"] if made else []
    if limit.symbols:
        parts.append(f"the size is {'; '.join(map(str, limit.symbols))}")
    second = "; ".join(parts)
    return (first, f"{second[0].upper()}{second[1:]}.") if second else (first,)
