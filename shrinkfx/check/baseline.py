"""What the unchanged program does, before anything is cut."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from shrinkfx.check.oracle import Compiler
from shrinkfx.errors import NotReproducible
from shrinkfx.failure.signature import ANY, Kind, Signature, Stage, asked_for
from shrinkfx.failure.verdict import Observation

_FORKS = 2
_ENOUGH = 5
"""Failures that make a rate to plan with."""


@dataclass(frozen=True)
class Baseline:
    """The failure to look for.

    Attributes:
        rate: the part of the runs that failed so.
        fallback_random: random numbers are eager's, so that values compare.
        seconds: the longest run.
        calls: how often a run must call the program before it fails.
    """

    target: Signature
    rate: float
    fallback_random: bool
    seconds: float
    calls: int = 1


def baseline(
    compiler: Compiler,
    until: str | None,
    match: str,
    max_runs: int,
    note: Callable[[str], None],
    max_calls: int = 1,
) -> Baseline:
    """Run the program once in a fresh interpreter and twice in forks.

    Where all of them pass, a program that changes its buffers is called several
    times in each run. Where not all of them fail, it is run often.

    Args:
        match: a regular expression that the failure's text must hold.
        max_runs: how often it may run before it is said not to fail.
        max_calls: how often it may be called in one run.

    Raises:
        NotReproducible: it passes, or fails in another way than asked.
    """
    wanted = until or ANY
    note("baseline: running the program as it is, three times")
    first, ending = compiler.original(fresh=True)
    skipped = first.signature is None and ending.answer.get("values_skipped", 0) > 0
    random = skipped and wanted in (ANY, Kind.MISMATCH, Kind.NAN)
    if random:
        note("random values: comparing them with eager's random numbers")
        compiler = compiler.with_options(fallback_random=True)
        first, _ = compiler.original(fresh=True)
    seen = [first, *_again(compiler, _FORKS)]
    target = _target(seen, wanted, match)
    calls = 1
    if max_calls > 1 and all(_passes(s) for s in seen):
        calls = _calls_needed(compiler, wanted, match, max_calls, note)
        if calls > 1:
            compiler = compiler.with_options(calls=calls)
            seen = list(_again(compiler, 1 + _FORKS))
            target = _target(seen, wanted, match)
    if _may_be_flaky(seen):
        seen += _until_it_shows(compiler, wanted, match, max_runs - len(seen), note)
        target = target or _target(seen, wanted, match)
    if target is None:
        described = list(dict.fromkeys(describe(s) for s in seen))
        raise NotReproducible(wanted, len(seen), described, _advice(seen))
    failed = sum(target.admits(s.signature) for s in seen)
    note(f"baseline: {target}")
    if failed < len(seen):
        note(f"flaky: {failed} of {len(seen)} runs fail so; each check runs often")
    elif _may_be_the_inputs(target):
        _check_sanity(compiler, note)
    seconds = max(s.seconds for s in seen)
    return Baseline(target, failed / len(seen), random, seconds, calls)


def _again(compiler: Compiler, runs: int) -> Iterator[Observation]:
    return (compiler.original()[0] for _ in range(runs))


def _target(seen: list[Observation], wanted: str, match: str) -> Signature | None:
    """Take the first failure that was asked for."""
    for observation in seen:
        signature = observation.signature
        if signature and asked_for(wanted, signature) and signature.says(match):
            return replace(signature, match=match)
    return None


def _passes(seen: Observation) -> bool:
    return not (seen.signature or seen.invalid or seen.unresolved)


def _calls_needed(
    compiler: Compiler,
    wanted: str,
    match: str,
    max_calls: int,
    note: Callable[[str], None],
) -> int:
    """Find the fewest calls after which the program fails; 1 if it never does."""
    note(f"it changes its buffers: calling it up to {max_calls} times in a run")
    with tempfile.TemporaryDirectory(prefix="shrinkfx-package-") as folder:
        kept = compiler.with_options(package=f"{folder}/model.pt2")
        for calls in range(2, max_calls + 1):
            seen, _ = kept.with_options(calls=calls).original()
            if _target([seen], wanted, match):
                note(f"call {calls} of a run fails")
                return calls
    return 1


def _may_be_flaky(seen: list[Observation]) -> bool:
    """Tell whether more runs could show something else.

    Not so where all runs agree on one failure, asked for or not, and where a
    run does not end: each more would cost as long again.
    """
    if any(s.unresolved for s in seen):
        return False
    first = seen[0].signature
    if first is None:
        return True
    return not all(first.admits(s.signature) for s in seen)


def _until_it_shows(
    compiler: Compiler,
    wanted: str,
    match: str,
    max_runs: int,
    note: Callable[[str], None],
) -> list[Observation]:
    """Compile once and run again, until there are failures enough for a rate."""
    note(f"not every run fails: running the compiled program up to {max_runs} times")
    seen: list[Observation] = []
    found = 0
    with tempfile.TemporaryDirectory(prefix="shrinkfx-package-") as folder:
        kept = compiler.with_options(package=f"{folder}/model.pt2")
        for observation in _again(kept, max_runs):
            seen.append(observation)
            found += _target([observation], wanted, match) is not None
            if found >= _ENOUGH or observation.invalid or observation.unresolved:
                break
    return seen


def _may_be_the_inputs(target: Signature) -> bool:
    ran = target.stage in (Stage.RUN, Stage.COMPARE)
    return ran and target.kind not in (Kind.CHECK_INPUTS, Kind.HANG, Kind.OOM)


def _check_sanity(compiler: Compiler, note: Callable[[str], None]) -> None:
    """Say if the inputs break the program's own guards: the guide's first step."""
    seen, _ = compiler.with_options(sanity=True).original()
    if seen.signature and seen.signature.kind is Kind.CHECK_INPUTS:
        note(
            "careful: with AOTI_RUNTIME_CHECK_INPUTS=1 the program refuses its inputs "
            f"({seen.signature.text}); the failure may be theirs. Other inputs: "
            "--inputs FILE; to reduce the refusal itself: --until check-inputs"
        )


def describe(seen: Observation) -> str:
    """Say in a line what a run did."""
    if seen.signature:
        return str(seen.signature)
    return seen.invalid or seen.unresolved or "passes: the same result as eager"


def _advice(seen: list[Observation]) -> str:
    kinds = {s.signature.kind.value for s in seen if s.signature}
    if kinds:
        return f"to reduce what it does: --until {sorted(kinds)[0]}"
    if all(_passes(s) for s in seen):
        return (
            "failing inputs other than the exported ones? --inputs FILE. "
            "settings of the failing run? --inductor-config KEY=VALUE, --env KEY=VALUE"
        )
    return "see above"
