"""Find the kernel that made a wrong value from correct inputs."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from shrinkfx.explain.compiled_view import CompiledView, find_line_operators
from shrinkfx.explain.reduced_program import (
    ReducedProgram,
    find_dependencies,
    select_operators,
)
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import Stage
from shrinkfx.findings.code import CodeLine, Quoted
from shrinkfx.findings.operators import Operator
from shrinkfx.findings.values import WrongValue, describe_first_error
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.choices import Build
from shrinkfx.protocol.compiled_program_view import Anatomy
from shrinkfx.protocol.kernel_values import Computed, KernelValues, Wrong
from shrinkfx.system import scratch


def values(reduced: ReducedProgram) -> WrongValue | None:
    """Find the kernel and the operators that a wrong value comes from.

    This compiles the reduced program once. If one kernel computes several operators, it
    compiles it a second time with their values returned.

    Returns:
        None if the failure is not a wrong value. If no kernel was found, a record
        without operators has the reason.
    """
    if reduced.target.stage is not Stage.COMPARE:
        return None
    with scratch.make_scratch_folder("anatomy") as folder:
        found = _find(reduced, Path(folder))
        code = found.code or _quote(reduced, Path(folder), found)
        found = replace(found, code=code)
    wrong, message = found.wrong, reduced.target.text
    is_named = wrong is not None and describe_first_error(wrong) in message
    return replace(found, is_named=is_named)


def _find(reduced: ReducedProgram, view: Path) -> WrongValue:
    """Find the operators; write the compiled-program view into a folder."""
    reduced.note("explain: comparing the result of each kernel with eager")
    data, _ = _ask(reduced, compiled_view=str(view))
    found = find_first_wrong(reduced.candidate, data)
    amplified = found if found.amplifies else None
    if amplified:  # an error inside a kernel comes first
        found = WrongValue()
    names = [operator.name for operator in found.culprits]
    if not names and _is_right_throughout(data):
        names = list(reduced.candidate.operators)
    if len(names) < 2 or found.rewritten:
        return amplified or found
    reduced.note(f"explain: comparing the values of {len(names)} operators with eager")
    tapped, ending = _ask(reduced, taps=_values(reduced, names))
    if found.kernel and _passes(reduced, found, ending):
        return replace(found, fused=_RETURNED)
    found = clear_operators(found, reduced.candidate, tapped, names)
    if amplified and not found.culprits:
        return amplified
    return _tested_without_fusion(reduced, found, names)


def _quote(reduced: ReducedProgram, folder: Path, found: WrongValue) -> Quoted:
    """Quote the wrong kernel, or the part that computes the culprit operators.

    A kernel that computes other operators is quoted around the lines of the culprits,
    which are marked. It repeats itself for the elements that do not fill a vector; the
    first such part is quoted.

    Returns:
        No lines if that is long, or if the kernel is right.
    """
    file = folder / "anatomy.json"
    is_wrong = found.kernel and found.culprits and not found.amplifies
    if not (is_wrong and file.exists()):
        return ()
    view = CompiledView(Anatomy.from_line(file.read_text()), reduced.candidate)
    failing = view.locate(found.kernel)
    culprits = {operator.name for operator in found.culprits}
    code, fused = failing.code, {one.name for one in failing.chain.fused}
    marked: list[int] = []
    for number in range(code.head(), len(code.lines)):
        names = {one.name for one in find_line_operators(view, failing, number)}
        is_near = not marked or number - marked[-1] <= _GAP
        if names & culprits and is_near:
            marked.append(number)
    body = code.text.partition("\n'''")[0].rstrip()  # Triton's is in a string
    whole = range(code.head(), body.count("\n") + 1)
    shown, most = range(0), _MOST_LINES
    if fused and fused <= culprits:
        shown, most, marked = whole, 2 * _MOST_LINES, []
    elif marked:
        shown = range(code.around(marked[0]).start, code.around(marked[-1]).stop)
    if len(shown) > most:
        return ()
    return tuple(
        CodeLine(n - code.head() + 1, code.lines[n], n in marked) for n in shown
    )


def _quote_graph(text: str, candidate: Candidate) -> Quoted:
    """Quote a graph, unless it is long or calls custom operators of another preload."""
    called = {Operator("", name) for name in _CALLED.findall(text)}
    known = set(map(candidate.target, candidate.operators))
    lines = text.splitlines()
    if len(lines) > _MOST_LINES or any(
        each.is_custom and each.operator not in known for each in called
    ):
        return ()
    return tuple(CodeLine(number, line) for number, line in enumerate(lines, 1))


_CALLED = re.compile(r"torch\.ops\.(\w+\.\w+\.\w+)\(")


_GAP = 4
"""The maximum distance in lines between two lines of one part of a kernel."""

_MOST_LINES = 30
"""Maximum number of lines of a part of a kernel, or of a graph."""


def _is_right_throughout(data: KernelValues) -> bool:
    """Return whether all values are right, so that the error is inside a kernel."""
    known = data.computed and not any(v.wrong or v.unknown for v in data.computed)
    return bool(known) and not _is_rewritten(data)


def _ask(
    reduced: ReducedProgram,
    **changes: Any,  # noqa: ANN401 - fields of the options
) -> tuple[KernelValues, Ending | None]:
    """Return the values of all kernels from a run that fails in the same way.

    Returns:
        The values, and how the run ended.
    """
    with scratch.make_scratch_folder("values") as folder:
        path = Path(folder) / "values.json"
        options = {"build": Build.FAST, **changes}
        ending = reduced.run_recorded(path.parent, values=str(path), **options)
        if why := reduced.why_not(ending):
            return KernelValues(unknown=why), ending
        if not path.exists():
            return KernelValues(unknown=reduced.NOTHING_RECORDED), ending
        return KernelValues.from_line(path.read_text()), ending


def _passes(reduced: ReducedProgram, found: WrongValue, ending: Ending | None) -> bool:
    """Return whether a passing run shows that the operators fail only together.

    It does not for a flaky program, which may pass by chance, or for an error below the
    tolerances.
    """
    if ending is None or reduced.rate < 1.0 or found.tiny:
        return False
    return classify_ending(ending).passed


def _values(reduced: ReducedProgram, operators: Collection[str]) -> tuple[str, ...]:
    skeleton = reduced.candidate.skeleton
    return tuple(value for name in operators for value in skeleton.values(name))


def find_first_wrong(candidate: Candidate, data: KernelValues) -> WrongValue:
    """Find the first value that is wrong for its inputs."""
    if data.unknown:
        return _unknown(data.unknown)
    wrong = [value for value in data.computed if value.wrong is not None]
    any_unknown = any(value.unknown for value in data.computed)
    # A tiny error counts only if there is no other possible reason.
    if not wrong or (data.tiny and (any_unknown or _is_rewritten(data))):
        return _without_a_kernel(candidate, data)
    first = wrong[0]
    assert first.wrong is not None
    return replace(
        _at(candidate, data, first, first.wrong),
        agrees=not (first.wrong_sources or first.random_sources or _is_rewritten(data)),
        tiny=data.tiny,
        shown_by=_shown_by(data, first),
        unknown=_doubts(data, first),
    )


def _at(
    candidate: Candidate, data: KernelValues, value: Computed, wrong: Wrong
) -> WrongValue:
    """Describe where a wrong value was computed."""
    return WrongValue(
        culprits=select_operators(candidate, value.operators),
        wrong=wrong,
        kernel=value.kernel,
        launch=value.launch,
        launches=len(data.launches),
        value=value.value,
        calls=value.calls,
        call=data.call,
    )


def _is_rewritten(data: KernelValues) -> bool:
    return bool(data.rewritten) or data.graph_agrees is False


def _doubts(data: KernelValues, first: Computed) -> tuple[str, ...]:
    """Return what is unknown about launches before the culprit's."""
    before = data.computed[: data.computed.index(first)]
    found = [
        f"kernel {v.kernel}: {v.unknown}" for v in before if v.unknown and v.kernel
    ]
    return tuple(dict.fromkeys(found))


def _shown_by(data: KernelValues, first: Computed) -> tuple[str, ...]:
    """Return kernels that compute wrong values from the culprit kernel's result."""
    later = data.computed[data.computed.index(first) + 1 :]
    right = (v for v in later if v.wrong_sources and not v.wrong and not v.unknown)
    kernels = (v.kernel for v in right if v.kernel not in ("", first.kernel))
    return tuple(dict.fromkeys(kernels))


def _without_a_kernel(candidate: Candidate, data: KernelValues) -> WrongValue:
    if _is_rewritten(data) and data.rewritten_wrong is not None:
        names = [name for name in (data.lost or data.rewritten,) if name]
        names += data.functionalized
        return WrongValue(
            culprits=select_operators(candidate, names),
            wrong=data.rewritten_wrong,
            rewritten=True,
            decomposition=data.decomposition,
            lost=bool(data.lost),
            functionalized=bool(data.functionalized),
            code=_quote_graph(data.graph, candidate),
            unknown=() if names else ("which operator Inductor rewrote",),
        )
    reasons = [v.unknown for v in data.computed if v.unknown]
    if reasons:
        return _unknown("; ".join(dict.fromkeys(reasons)))
    if data.graph_agrees is None:
        return _unknown(
            f"{_ALL_RIGHT}; the graph that Inductor lowers could not be compared with "
            "eager in this call"
        )
    for value in data.computed:
        if value.amplified is not None:
            return replace(_at(candidate, data, value, value.amplified), amplifies=True)
    return _unknown(f"{_ALL_RIGHT}; rounding may add up, or strides matter")


_ALL_RIGHT = "each buffer agrees with eager for the same inputs"


def clear_operators(
    found: WrongValue,
    candidate: Candidate,
    data: KernelValues,
    suspected: Collection[str],
) -> WrongValue:
    """Clear operators whose own value is right when it is returned."""
    if data.unknown:
        why = (
            f"which operator of the kernel: {data.unknown} if the kernel also returns "
            "its intermediate values"
        )
        return replace(found, unknown=(*found.unknown, why))
    if data.tiny and found.culprits and any(value.unknown for value in data.computed):
        return found
    for value in data.computed:
        among = select_operators(candidate, value.operators)
        if value.wrong is None or not {o.name for o in among} <= set(suspected):
            continue
        if not found.culprits:  # this form of the program has other kernels
            return replace(find_first_wrong(candidate, data), separated=True)
        if among and len(among) < len(suspected):
            found = replace(found, culprits=among, wrong=value.wrong, tiny=data.tiny)
            return replace(found, separated=True)
    return found


_RETURNED = "if its inner values are returned, too"
_UNFUSED = {"max_fusion_size": 1, "epilogue_fusion": False, "prologue_fusion": False}


def _tested_without_fusion(
    reduced: ReducedProgram, found: WrongValue, suspected: Collection[str]
) -> WrongValue:
    """Name an operator with those fused into it, unless it fails without fusion too.

    A value from the same kernel may be in a register, and differ from the value in
    memory. So the program is compiled without fusion, with all inner values returned.
    """
    if not (found.separated and found.culprits) or found.tiny or reduced.rate < 1.0:
        return found
    names = {operator.name for operator in found.culprits}
    producers = (
        find_dependencies(reduced.candidate, names).intersection(suspected) - names
    )
    if not producers:
        return found
    reduced.note("explain: comparing the values without fusion")
    inductor, taps = reduced.client.options.inductor, _values(reduced, suspected)
    data, ending = _ask(reduced, taps=taps, inductor={**inductor, **_UNFUSED})
    signature = classify_ending(ending).signature if ending is not None else None
    if signature is not None and signature.stage is Stage.COMPARE:
        return found
    together = select_operators(reduced.candidate, names | producers)
    # Float64 was compared for one of them, with eager's value of the others.
    wrong = found.wrong and replace(found.wrong, exact="")
    found = replace(found, culprits=together, wrong=wrong)
    if _passes(reduced, found, ending):
        return replace(found, fused="without fusion")
    why = f"whether the program fails without fusion: {data.unknown}"
    return replace(found, unknown=(*found.unknown, why))


def _unknown(why: str) -> WrongValue:
    return WrongValue(unknown=(f"which kernel is wrong: {why}",))
