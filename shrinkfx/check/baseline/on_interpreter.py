"""The baseline on the interpreter, probe by probe."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import replace

from shrinkfx.check.baseline.attempt import BaselineRequest
from shrinkfx.check.baseline.stock import Baseline
from shrinkfx.check.oracle import CheckClient
from shrinkfx.errors import (
    REPORT_BUG,
    BudgetExhausted,
    NotReproducible,
)
from shrinkfx.failure.signature import ANY, Kind, Stage
from shrinkfx.failure.verdict import Observation
from shrinkfx.program.display_text import cut_text
from shrinkfx.protocol.answers import Checked, Ending, Raised
from shrinkfx.protocol.choices import Probe


def probe_baseline(
    client: CheckClient,
    request: BaselineRequest,
    probes: Sequence[Probe],
    *,
    ask_all: bool = False,
) -> Baseline:
    """Run the probes until one shows the failure, then repeat that one twice.

    The interpreter is deterministic: it runs one program after another, in memory that
    no other process shares. A fresh process is used only if the fork may be the cause,
    because the probe died without a message. A probe takes at most half of the time, so
    that time is left for the next probe, or to verify this one's failure.

    Args:
        request: if one call passes, one run calls the program several times.
        probes: the probes to run; the most informative ones for the kind come first.
        ask_all: run the other probes too, to report what they find.

    Raises:
        NotReproducible: no probe shows the failure, or it does not show again.
        BudgetExhausted: the time ended before a probe showed the failure.
    """
    note, budget = request.note, request.budget
    shown: dict[Probe, Observation] = {}
    warnings: dict[Probe, str] = {}
    described: list[str] = []
    silent: set[Probe] = set()
    showing: Probe | None = None
    probes = _sort_probes(probes, request.wanted)
    for probe in probes:
        if showing and not (ask_all and budget.has(shown[showing].seconds)):
            break
        is_last = probe is probes[-1] and not showing
        within = math.inf if is_last else 2 * budget.share()
        seen, ending = _run_probe(client.with_options(probe=probe), within)
        shown[probe] = seen
        if ending.answer is None:
            silent.add(probe)
        unseen = _list_unchecked(ending)
        finding = _describe_probe(probe, seen, complete=not unseen)
        note(
            f"checked {_LOOKS_AT[probe]} (--probe {probe}): {cut_text(finding, _NOTED)}"
        )
        described.append(f"{probe}: {finding}")
        if unseen:
            warnings[probe] = f"not checked: {'; '.join(unseen)}"
            note(warnings[probe])
            described[-1] += f"; {warnings[probe]}"
        if not showing and _shows(probe, seen, request):
            showing = probe
            budget.keep(seen.seconds)
    calls = 1
    alone = shown.get(Probe.REAL)
    passes = showing is None and alone is not None and alone.passed
    real = client.with_options(probe=Probe.REAL)
    if passes and (often := _find_calls(real, request)):
        showing = Probe.REAL
        calls, shown[Probe.REAL] = often
    if showing is not None:
        probe_client = client.with_options(probe=showing, calls=calls)
        ways = (showing in silent, False)
        base = _repeat_probe(probe_client, shown[showing], request, ways)
        known = filter(None, [base.warning, warnings.get(showing, "")])
        return replace(base, calls=calls, warning="; ".join(known))
    if any(seen.unresolved == _CUT_SHORT for seen in shown.values()):
        lines = "\n".join(f"  {text}" for text in described)
        raise BudgetExhausted(f"the time limit is too short for the probes:\n{lines}")
    advice = _advice(shown, bool(warnings))
    raise NotReproducible(request.wanted, len(shown), described, advice)


def _sort_probes(probes: Sequence[Probe], wanted: str) -> list[Probe]:
    """Order the probes for a kind of failure, and omit one that tells nothing.

    If the kind is unknown, the probe that runs what the user runs comes first.
    """
    if wanted in (Kind.COMPILE_ERROR, Kind.HANG):
        return sorted(probes, key=lambda probe: probe is not Probe.COMPILE)
    if wanted != ANY:
        return [p for p in probes if p is not Probe.COMPILE] or list(probes)
    return list(probes)


def _run_probe(client: CheckClient, within_s: float) -> tuple[Observation, Ending]:
    """Run a probe with a limit in seconds; a probe that is cut short is not a hang."""
    seen, ending = client.with_clock_limit(within_s).run_input_program()
    if ending.how == "late" and math.isfinite(within_s):
        seen = replace(seen, signature=None, unresolved=_CUT_SHORT)
    return seen, ending


_NOTED = 100
"""Most characters of a probe's result in a note; the baseline's note has all."""

_CUT_SHORT = "this probe takes more than half of the remaining time"


def _shows(probe: Probe, seen: Observation, request: BaselineRequest) -> bool:
    """Tell whether a probe has shown the requested failure."""
    return request.is_shown_by(seen) and not _is_probe_failure(probe, seen)


def _list_unchecked(ending: Ending) -> tuple[str, ...]:
    """List what was not run, kernel by kernel, whether there was a report or not."""
    match ending.answer:
        case Checked(unseen=unseen):
            return unseen
        case Raised(type="Report", notes=notes):
            return notes
    return ()


def _repeat_probe(
    client: CheckClient,
    first: Observation,
    request: BaselineRequest,
    ways: Sequence[bool],
) -> Baseline:
    """Repeat the probe that showed the failure.

    Args:
        ways: for each repetition, whether it is in a fresh process.
    """
    assert first.signature is not None
    target, note = first.signature.with_match(request.match), request.note
    seen = [first]
    for fresh in ways:
        if first.seconds <= request.budget.share():
            with contextlib.suppress(BudgetExhausted):
                seen.append(client.run_input_program(fresh=fresh)[0])
    failed = sum(target.admits(s.signature) for s in seen)
    if failed < len(seen):
        described = list(dict.fromkeys(s.in_words for s in seen))
        advice = (
            f"the interpreter is deterministic, so this should not happen: {REPORT_BUG}"
        )
        raise NotReproducible(target.kind, len(seen), described, advice)
    note(f"baseline: {target}")
    seconds = max(s.own_seconds for s in seen)
    warning = ""
    if len(seen) == 1:
        warning = _SHOWN_ONCE
        note(f"warning: {warning}")
    probe = client.options.probe
    return Baseline(target, 1.0, False, seconds, probe=probe, warning=warning)


_SHOWN_ONCE = (
    "not enough time was left: the probe showed the failure once and was not repeated"
)

_LOOKS_AT = {
    Probe.REAL: "the kernels on the failing inputs",
    Probe.CONTRACT: "sizes and strides of inputs and operators' results",
    Probe.HINTS: "AOTInductor's compile-time benchmark",
    Probe.COMPILE: "the kernels, compiled by Triton and ptxas",
}


def _is_probe_failure(probe: Probe, seen: Observation) -> bool:
    """Tell whether the probe causes a failure, and not the program.

    The interpreter needs far more time and memory than a GPU; and the first two probes
    generate Python code, which is not AOTInductor's code.
    """
    assert seen.signature is not None
    if seen.unresolved:  # the run exceeded a limit
        return probe is not Probe.COMPILE
    return probe in _IN_PYTHON and seen.signature.stage is Stage.COMPILE


_IN_PYTHON = (Probe.REAL, Probe.CONTRACT)


def _describe_probe(probe: Probe, seen: Observation, *, complete: bool) -> str:
    """Describe what a probe found.

    Only the real probe compares results, and only if it ran all kernels.
    """
    if seen.unresolved == _CUT_SHORT:
        return f"inconclusive: {_CUT_SHORT}"
    if seen.signature and _is_probe_failure(probe, seen):
        why = seen.unresolved or f"Inductor for Python: {seen.signature}"
        return f"inconclusive: {why}"
    compares = probe is Probe.REAL and complete
    return "finds nothing" if seen.passed and not compares else seen.in_words


def _advice(shown: dict[Probe, Observation], is_unseen: bool) -> str:
    failures = {p: s.signature for p, s in shown.items() if s.signature}
    kinds = sorted(
        failure.kind.value
        for probe, failure in failures.items()
        if not _is_probe_failure(probe, shown[probe])
    )
    if kinds:
        return f"to reduce the failure seen here: --until {kinds[0]}"
    if is_unseen or any(s.unresolved for s in shown.values()):
        return "the interpreter cannot run the whole program; reduce it on a GPU"
    return (
        "the failing run may have had other inputs: --inputs FILE; or "
        "other sizes: --dynamic-sweep. The interpreter cannot detect a "
        "race, or a failure of a library kernel or of another kind of GPU "
        "(--arch)"
    )


def _find_calls(
    client: CheckClient, request: BaselineRequest
) -> tuple[int, Observation] | None:
    """Find the fewest calls in one run whose last call fails.

    First it makes all calls, so a program that passes them needs one check only. After
    that it bisects, because the interpreter is deterministic.

    Returns:
        The number of calls and its observation; None if all calls pass.
    """
    if request.max_calls < 2:
        return None
    request.note(
        f"the program changes its buffers: calling it {request.max_calls} times in one "
        "run"
    )
    often, _ = client.with_options(calls=request.max_calls).run_input_program()
    if not _shows(Probe.REAL, often, request):
        return None
    passes, fails = 1, (request.max_calls, often)
    while fails[0] - passes > 1 and request.budget.has(often.seconds):
        calls = (passes + fails[0]) // 2
        seen, _ = client.with_options(calls=calls).run_input_program()
        if _shows(Probe.REAL, seen, request):
            fails = calls, seen
        else:
            passes = calls
    request.note(f"the failure shows in call {fails[0]} of a run")
    return fails
