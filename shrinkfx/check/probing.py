"""What the unchanged program does on the interpreter, probe by probe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from shrinkfx.check.baseline import Baseline, describe
from shrinkfx.check.oracle import Compiler
from shrinkfx.errors import NotReproducible
from shrinkfx.failure.signature import ANY, Kind, Stage, asked_for
from shrinkfx.failure.verdict import Observation
from shrinkfx.program.messages import Ending, Probe


def probe_baseline(
    compiler: Compiler,
    until: str | None,
    match: str,
    probes: Sequence[Probe],
    note: Callable[[str], None],
) -> Baseline:
    """Ask each probe once, and the one that shows the failure twice more.

    The interpreter runs one program after the other, on memory that no other
    process has a part in: what it finds, it finds again.

    Raises:
        NotReproducible: none shows what was asked for, or it does not show again.
    """
    wanted = until or ANY
    if wanted not in (ANY, Kind.COMPILE_ERROR, Kind.HANG):
        probes = [p for p in probes if p is not Probe.COMPILE] or probes
    shown: dict[Probe, Observation] = {}
    warnings: dict[Probe, str] = {}
    for probe in probes:
        shown[probe], ending = compiler.with_options(probe=probe).original()
        note(f"probe {probe} ({_LOOKS_AT[probe]}): {_said(probe, shown[probe])}")
        if sampled := _sampled(ending):
            warnings[probe] = f"{_SAMPLED}: {'; '.join(sampled)}"
            note(warnings[probe])
    for probe, seen in shown.items():
        found = seen.signature
        if not found or _is_of_the_probe(probe, seen):
            continue
        if asked_for(wanted, found) and found.says(match):
            base = _confirmed(compiler, probe, seen, match, note)
            return replace(base, warning=warnings.get(probe, ""))
    described = [f"{probe}: {_said(probe, seen)}" for probe, seen in shown.items()]
    raise NotReproducible(wanted, len(probes), described, _advice(shown))


_SAMPLED = "large grids, of which only some programs ran"


def _sampled(ending: Ending) -> list[str]:
    """List the launches of which not all was run, report or no report."""
    error = ending.answer.get("error", {})
    found = error.get("notes", []) if error.get("type") == "Report" else []
    return list(ending.answer.get("sampled", found))


def _confirmed(
    compiler: Compiler,
    probe: Probe,
    first: Observation,
    match: str,
    note: Callable[[str], None],
) -> Baseline:
    assert first.signature is not None
    target = first.signature.with_match(match)
    asked = compiler.with_options(probe=probe)
    seen = [first, asked.original(fresh=True)[0], asked.original()[0]]
    failed = sum(target.admits(s.signature) for s in seen)
    if failed < len(seen):
        described = list(dict.fromkeys(describe(s) for s in seen))
        advice = "the interpreter does the same each time: please report this"
        raise NotReproducible(target.kind, len(seen), described, advice)
    note(f"baseline: {target}")
    seconds = max(s.own_seconds for s in seen)
    return Baseline(target, 1.0, False, seconds, probe=probe)


_LOOKS_AT = {
    Probe.REAL: "the kernels on the failing inputs",
    Probe.CONTRACT: "sizes and strides of inputs and operators' results",
    Probe.HINTS: "AOTInductor's compile-time benchmark",
    Probe.COMPILE: "its kernels, compiled by Triton and ptxas",
}


def _is_of_the_probe(probe: Probe, seen: Observation) -> bool:
    """Tell whether a failure is the probe's own and none of the program.

    The interpreter takes far more time and memory than a GPU, and code for Python,
    which the first two generate, is other code than AOTInductor's.
    """
    assert seen.signature is not None
    if seen.unresolved:  # a limit was broken
        return probe is not Probe.COMPILE
    return probe in _IN_PYTHON and seen.signature.stage is Stage.COMPILE


_IN_PYTHON = (Probe.REAL, Probe.CONTRACT)


def _said(probe: Probe, seen: Observation) -> str:
    """Say what a probe found; only one of them compares results with eager."""
    if seen.signature and _is_of_the_probe(probe, seen):
        why = seen.unresolved or f"Inductor for Python: {seen.signature}"
        return f"cannot tell: {why}"
    passes = not (seen.signature or seen.invalid or seen.unresolved)
    return "finds nothing" if passes and probe is not Probe.REAL else describe(seen)


def _advice(shown: dict[Probe, Observation]) -> str:
    failures = {p: s.signature for p, s in shown.items() if s.signature}
    kinds = sorted(
        failure.kind.value
        for probe, failure in failures.items()
        if not _is_of_the_probe(probe, shown[probe])
    )
    if kinds:
        return f"to reduce what it does: --until {kinds[0]}"
    if any(s.unresolved for s in shown.values()):
        return "what the interpreter cannot run needs a GPU"
    return (
        "failing inputs other than the exported ones? --inputs FILE; other sizes? "
        "--dynamic-sweep. A race, a kernel "
        "of a library or a GPU of another kind (--arch) are beyond the interpreter"
    )
