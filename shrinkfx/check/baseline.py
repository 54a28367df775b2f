"""What the unchanged program does, before anything is cut."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace

from shrinkfx.check.oracle import (
    ENOUGH,
    RUNS_PER_CHILD,
    Compiler,
    runs_to_be_sure,
)
from shrinkfx.errors import NotReproducible
from shrinkfx.failure.signature import ANY, MEMORY, Kind, Signature, Stage, asked_for
from shrinkfx.failure.verdict import Observation


@dataclass(frozen=True)
class Baseline:
    """The failure to look for.

    Attributes:
        rate: the part of the runs that failed so.
        fallback_random: random numbers are eager's, so that values compare.
        seconds: the longest run.
        calls: how often a run must call the program before it fails.
        probe: what shows it on the interpreter; '' elsewhere.
    """

    target: Signature
    rate: float
    fallback_random: bool
    seconds: float
    calls: int = 1
    probe: str = ""


def baseline(
    compiler: Compiler,
    until: str | None,
    match: str,
    max_runs: int,
    note: Callable[[str], None],
    max_calls: int = 1,
) -> Baseline:
    """Run the program once in a fresh interpreter and twice in forks, then on.

    A failure to compile that all three show is steady. Of anything else there are
    more runs, which cost little since they compile nothing: until it has failed
    ``ENOUGH`` times. What fails in nine runs of ten would pass for steady else,
    and a loud failure would hide the one that was asked for.
    Where all three pass, a program that changes its buffers is called several
    times in each run.

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
    runs = _Runs(wanted, match, [first, compiler.original()[0]])
    with tempfile.TemporaryDirectory(prefix="shrinkfx-package-") as folder:
        kept = compiler.with_options(package=f"{folder}/model.pt2")
        runs.seen.append(kept.original()[0])
        calls, later = 1, list[Observation]()
        if max_calls > 1 and all(_passes(s) for s in runs.seen):
            calls, later = _calls_needed(kept, runs, max_calls, note)
        _go_on(kept.with_options(calls=calls), runs, max_runs, note)
    if (target := runs.target) is None:
        seen = [*runs.seen, *later]
        described = list(dict.fromkeys(describe(s) for s in seen))
        raise NotReproducible(wanted, runs.total, described, _advice(seen))
    note(f"baseline: {target}")
    rate = runs.failed / runs.total
    if rate < 1.0:
        note(
            f"flaky: {runs.failed} of {runs.total} runs fail so; a candidate passes "
            f"after {runs_to_be_sure(rate)}"
        )
        if target.detail == MEMORY and "guard_pages" not in compiler.options:
            note("guard pages may have it fail in every run: --until ima")
    elif _may_be_the_inputs(target):
        _check_sanity(compiler.with_options(calls=calls), note)
    seconds = max(s.seconds for s in runs.seen)
    return Baseline(target, rate, random, seconds, calls)


@dataclass(frozen=True)
class _Runs:
    """What the runs so far have shown, and whether more would tell more."""

    wanted: str
    match: str
    seen: list[Observation]

    @property
    def total(self) -> int:
        return sum(s.runs for s in self.seen)

    @property
    def target(self) -> Signature | None:
        """The failure asked for that most runs show; the first seen of equals."""
        shown = [
            s.signature
            for s in self.seen
            if s.signature
            and asked_for(self.wanted, s.signature)
            and s.signature.says(self.match)
        ]
        if not shown:
            return None
        return replace(max(shown, key=self._shows), match=self.match)

    @property
    def failed(self) -> int:
        """Count the runs that failed as the target says."""
        return self._shows(self.target) if self.target else 0

    def _shows(self, failure: Signature) -> int:
        return sum(failure.admits(s.signature) for s in self.seen)

    def are_enough(self, max_runs: int) -> bool:
        if any(s.unresolved or s.invalid for s in self.seen):
            return True  # each more would cost as much, or be refused again
        first = self.seen[0].signature
        if first and all(first.admits(s.signature) for s in self.seen):
            at_run_time = first.stage in (Stage.RUN, Stage.COMPARE)
            return not at_run_time or len(self.seen) >= ENOUGH
        if self.target is None:
            return self.total >= max_runs
        # Few failures make a rate that cannot be planned with.
        return self.failed >= ENOUGH or self.total >= ENOUGH * max_runs


def _passes(seen: Observation) -> bool:
    return not (seen.signature or seen.invalid or seen.unresolved)


def _calls_needed(
    kept: Compiler, runs: _Runs, max_calls: int, note: Callable[[str], None]
) -> tuple[int, list[Observation]]:
    """Find the fewest calls after which the program fails; 1 if it never does.

    What runs of fewer calls showed is forgotten then.

    Returns:
        The calls, and what runs of several showed instead.
    """
    later = []
    note(f"it changes its buffers: calling it up to {max_calls} times in a run")
    for calls in range(2, max_calls + 1):
        seen, _ = kept.with_options(calls=calls).original()
        if replace(runs, seen=[seen]).target:
            note(f"call {calls} of a run fails")
            runs.seen[:] = [seen]
            return calls, []
        later.append(seen)
    return 1, [s for s in later if not _passes(s)]


def _go_on(
    kept: Compiler, runs: _Runs, max_runs: int, note: Callable[[str], None]
) -> None:
    """Run what the last run has compiled until there are runs enough."""
    if not runs.are_enough(max_runs):
        note(f"running it until it has failed {ENOUGH} times")
    while not runs.are_enough(max_runs):
        # Each in a process of its own at first: one may see what another left.
        batch = 1 if len(runs.seen) < ENOUGH else RUNS_PER_CHILD
        compiles = runs.target and runs.target.stage is Stage.COMPILE
        again = {"package": None} if compiles else {"runs": batch}
        runs.seen.append(kept.with_options(**again).original()[0])


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
            "settings of the failing run? --inductor-config KEY=VALUE, --env KEY=VALUE."
            " a silent memory error? --until ima"
        )
    return "see above"
