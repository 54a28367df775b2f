"""Find the kernel that made a wrong value from correct inputs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from shrinkfx import scratch
from shrinkfx.explain.operators import find_dependencies, select_operators
from shrinkfx.explain.reduced_program import ReducedProgram
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import Signature, Stage
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.choices import Build
from shrinkfx.protocol.kernel_values import Computed, KernelValues, Overwritten, Wrong
from shrinkfx.report.explanation.values import WrongValue, describe_first_error


def values(minimum: ReducedProgram) -> WrongValue | None:
    """Find the kernel and the operators that a wrong value comes from.

    This compiles the reduced program once. If one kernel computes several operators, it
    compiles it a second time with their values returned.

    Returns:
        None if the failure is not a wrong value. If no kernel was found, a record
        without operators has the reason.
    """
    if minimum.target.stage is not Stage.COMPARE:
        return None
    minimum.note("explain: comparing the result of each kernel with eager")
    told, _ = _ask(minimum)
    found = find_first_wrong(minimum.candidate, told)
    names = [operator.name for operator in found.culprits]
    if not names and _is_right_throughout(told):
        names = list(minimum.candidate.operators)
    if len(names) < 2 or found.rewritten:
        return _record_naming(minimum.target, found)
    minimum.note(f"explain: comparing the values of {len(names)} operators")
    again, ending = _ask(minimum, taps=_values(minimum, names))
    if found.kernel and _passes(minimum, found, ending):
        return _record_naming(minimum.target, replace(found, fused=_RETURNED))
    found = clear_operators(found, minimum.candidate, again, names)
    return _record_naming(minimum.target, _tested_without_fusion(minimum, found, names))


def _record_naming(failure: Signature, found: WrongValue) -> WrongValue:
    """Record whether the failure's own message names the first wrong value."""
    is_named = (
        found.wrong is not None and describe_first_error(found.wrong) in failure.text
    )
    return replace(found, is_named=is_named)


def _is_right_throughout(told: KernelValues) -> bool:
    """Return whether all values are right, so that the error is inside a kernel."""
    known = told.computed and not any(v.wrong or v.unknown for v in told.computed)
    return bool(known) and not _is_rewritten(told)


def _ask(
    minimum: ReducedProgram,
    **changes: Any,  # noqa: ANN401 - fields of the options
) -> tuple[KernelValues, Ending | None]:
    """Return the values of all kernels from a run that fails in the same way.

    Returns:
        The values, and how the run ended.
    """
    with scratch.make_scratch_folder("values") as folder:
        path = Path(folder) / "values.json"
        asked = {"build": Build.FAST, **changes}
        ending = minimum.run_recorded(path.parent, values=str(path), **asked)
        if why := minimum.why_not(ending):
            return KernelValues(unknown=why), ending
        if not path.exists():
            return KernelValues(unknown="the instrumented run recorded nothing"), ending
        return KernelValues.from_line(path.read_text()), ending


def _passes(minimum: ReducedProgram, found: WrongValue, ending: Ending | None) -> bool:
    """Return whether a passing run shows that the operators fail only together.

    It does not for a flaky program, which may pass by chance, or for an error below the
    tolerances.
    """
    if ending is None or minimum.rate < 1.0 or found.tiny:
        return False
    return classify_ending(ending).passed


def _values(minimum: ReducedProgram, operators: Collection[str]) -> tuple[str, ...]:
    skeleton = minimum.candidate.skeleton
    return tuple(value for name in operators for value in skeleton.values(name))


def find_first_wrong(candidate: Candidate, told: KernelValues) -> WrongValue:
    """Find the first value that is wrong for its inputs."""
    if told.unknown:
        return _unknown(told.unknown)
    wrong = [value for value in told.computed if value.wrong is not None]
    if (over := _first_overwritten(told)) is not None:
        return _of_overwritten(candidate, told, over)
    untold = any(value.unknown for value in told.computed)
    # A tiny error counts only if there is no other possible reason.
    if not wrong or (told.tiny and (untold or _is_rewritten(told))):
        return _without_a_kernel(candidate, told)
    first = wrong[0]
    assert first.wrong is not None
    guilty = select_operators(candidate, first.operators)
    return WrongValue(
        culprits=() if first.missized else guilty,
        missized=first.missized,
        wrong=first.wrong,
        kernel=first.kernel,
        launch=first.launch,
        launches=len(told.launches),
        value=first.value,
        calls=first.calls,
        agrees=not (first.wrong_sources or first.random_sources or _is_rewritten(told)),
        tiny=told.tiny,
        shown_by=_shown_by(told, first),
        call=told.call,
        unknown=_doubts(told, first),
    )


def _first_overwritten(told: KernelValues) -> Overwritten | None:
    """Return the first unexpected overwrite, if it is before any wrong value."""
    erred = [v.launch for v in told.computed if v.wrong and v.launch and not told.tiny]
    found = (o for o in told.overwritten if not erred or o.launch < min(erred))
    return next(found, None)


def _of_overwritten(
    candidate: Candidate, told: KernelValues, over: Overwritten
) -> WrongValue:
    return WrongValue(
        culprits=select_operators(candidate, over.operators),
        wrong=Wrong(wrong=over.changed, of=over.of),
        kernel=over.kernel,
        launch=over.launch,
        launches=len(told.launches),
        value=over.value,
        overwrites=True,
        shown_by=over.read_by,
        shown_in=select_operators(candidate, over.readers),
        call=told.call,
    )


def _is_rewritten(told: KernelValues) -> bool:
    return bool(told.rewritten) or told.graph_agrees is False


def _doubts(told: KernelValues, first: Computed) -> tuple[str, ...]:
    """Return what is unknown about launches before the culprit's."""
    before = told.computed[: told.computed.index(first)]
    found = [
        f"kernel {v.kernel}: {v.unknown}" for v in before if v.unknown and v.kernel
    ]
    return tuple(dict.fromkeys(found))


def _shown_by(told: KernelValues, first: Computed) -> tuple[str, ...]:
    """Return kernels that compute wrong values from the culprit kernel's result."""
    later = told.computed[told.computed.index(first) + 1 :]
    kernels = (
        v.kernel for v in later if v.wrong_sources and not v.wrong and not v.unknown
    )
    return tuple(
        dict.fromkeys(name for name in kernels if name and name != first.kernel)
    )


def _without_a_kernel(candidate: Candidate, told: KernelValues) -> WrongValue:
    if _is_rewritten(told) and told.rewritten_wrong is not None:
        names = [name for name in (told.lost or told.rewritten,) if name]
        unknown = () if names else ("which operator was rewritten",)
        return WrongValue(
            culprits=select_operators(candidate, names),
            wrong=told.rewritten_wrong,
            rewritten=True,
            lost=bool(told.lost),
            unknown=unknown,
        )
    untold = [v.unknown for v in told.computed if v.unknown]
    if untold:
        return _unknown("; ".join(dict.fromkeys(untold)))
    if told.graph_agrees is None:
        return _unknown(
            f"{_ALL_RIGHT}; the graph that Inductor lowers could not be compared with "
            "eager in this call"
        )
    return _unknown(f"{_ALL_RIGHT}: accumulated rounding or strides may be the reason")


_ALL_RIGHT = "each value in memory agrees with eager for the same inputs"


def clear_operators(
    found: WrongValue,
    candidate: Candidate,
    told: KernelValues,
    suspected: Collection[str],
) -> WrongValue:
    """Clear operators whose own value is right when it is returned."""
    if told.unknown:
        why = (
            f"which operator of the kernel: {told.unknown} if the kernel also returns "
            "its intermediate values"
        )
        return replace(found, unknown=(*found.unknown, why))
    if told.tiny and found.culprits and any(value.unknown for value in told.computed):
        return found
    for value in told.computed:
        among = select_operators(candidate, value.operators)
        if value.wrong is None or not {o.name for o in among} <= set(suspected):
            continue
        if not found.culprits:  # this form of the program has other kernels
            return replace(find_first_wrong(candidate, told), separated=True)
        if among and len(among) < len(suspected):
            wrong, tiny = value.wrong, told.tiny
            return replace(
                found, culprits=among, wrong=wrong, tiny=tiny, separated=True
            )
    return found


_RETURNED = "when it also returns inner values"
_UNFUSED = {"max_fusion_size": 1, "epilogue_fusion": False, "prologue_fusion": False}


def _tested_without_fusion(
    minimum: ReducedProgram, found: WrongValue, suspected: Collection[str]
) -> WrongValue:
    """Name an operator with those fused into it, unless it fails without fusion too.

    A value from the same kernel may be in a register, and differ from the value in
    memory. So the program is compiled without fusion, with all inner values returned.
    """
    if not (found.separated and found.culprits) or found.tiny or minimum.rate < 1.0:
        return found
    names = {operator.name for operator in found.culprits}
    producers = (
        find_dependencies(minimum.candidate, names).intersection(suspected) - names
    )
    if not producers:
        return found
    minimum.note("explain: comparing the values without fusion")
    own, taps = minimum.client.options.inductor, _values(minimum, suspected)
    told, ending = _ask(minimum, taps=taps, inductor={**own, **_UNFUSED})
    seen = classify_ending(ending).signature if ending is not None else None
    if seen is not None and seen.stage is Stage.COMPARE:
        return found
    together = select_operators(minimum.candidate, names | producers)
    found = replace(found, culprits=together)
    if _passes(minimum, found, ending):
        return replace(found, fused=f"{_RETURNED} and nothing is fused")
    why = f"whether the program fails without fusion: {told.unknown}"
    return replace(found, unknown=(*found.unknown, why))


def _unknown(why: str) -> WrongValue:
    return WrongValue(unknown=(f"which kernel is wrong: {why}",))
