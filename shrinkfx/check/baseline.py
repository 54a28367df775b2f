"""What the unchanged program does, before anything is cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from shrinkfx.check.oracle import Compiler
from shrinkfx.errors import FlakyFailure, NotReproducible
from shrinkfx.failure.signature import ANY, Kind, Signature, Stage, asked_for
from shrinkfx.failure.verdict import Observation

_FORKS = 2


@dataclass(frozen=True)
class Baseline:
    """The failure to look for.

    Attributes:
        fallback_random: random numbers are eager's, so that values compare.
        seconds: the longest run.
    """

    target: Signature
    fallback_random: bool
    seconds: float


def baseline(
    compiler: Compiler, until: str | None, match: str, note: Callable[[str], None]
) -> Baseline:
    """Run the program once in a fresh interpreter and twice in forks.

    Args:
        match: a regular expression that the failure's text must hold.

    Raises:
        NotReproducible: it passes, or fails in another way than asked.
        FlakyFailure: some of the runs fail as asked and others do not.
    """
    wanted = until or ANY
    first, ending = compiler.original(fresh=True)
    random = first.signature is None and ending.answer.get("values_skipped", 0) > 0
    if random and wanted in (ANY, Kind.MISMATCH, Kind.NAN):
        note("random values: comparing them with eager's random numbers")
        compiler = compiler.with_options(fallback_random=True)
        first, _ = compiler.original(fresh=True)
    seen = [first]
    seen += [compiler.original()[0] for _ in range(_FORKS)]
    found = [
        s.signature
        for s in seen
        if s.signature and asked_for(wanted, s.signature) and s.signature.says(match)
    ]
    described = [describe(s) for s in seen]
    if not found:
        raise NotReproducible(wanted, described, _advice(seen))
    target = replace(found[0], match=match)
    if not all(target.admits(s.signature) for s in seen):
        advice = "a flaky failure: fix its cause of randomness, or raise --timeout"
        raise FlakyFailure(wanted, described, advice)
    note(f"baseline: {target}")
    if target.stage in (Stage.RUN, Stage.COMPARE):
        _check_sanity(compiler, note)
    return Baseline(target, random, max(s.seconds for s in seen))


def _check_sanity(compiler: Compiler, note: Callable[[str], None]) -> None:
    """Say if the inputs break the program's own guards: the guide's first step."""
    seen, _ = compiler.with_options(sanity=True).original()
    if seen.signature and seen.signature.kind is Kind.CHECK_INPUTS:
        note(
            "careful: with AOTI_RUNTIME_CHECK_INPUTS=1 the program refuses its inputs "
            f"({seen.signature.text}); the failure may be theirs"
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
    if all(s.signature is None and not s.invalid and not s.unresolved for s in seen):
        return (
            "failing inputs other than the exported ones? --inputs FILE. "
            "settings of the failing run? --inductor-config KEY=VALUE, --env KEY=VALUE"
        )
    return "see above"
