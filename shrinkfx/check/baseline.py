"""What the unchanged program does, before anything is cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from shrinkfx import scratch
from shrinkfx.check.oracle import (
    ENOUGH,
    RUNS_PER_CHILD,
    Compiler,
    runs_to_be_sure,
)
from shrinkfx.check.sanity import other_cause
from shrinkfx.errors import NotReproducible
from shrinkfx.failure.signature import ANY, MEMORY, Kind, Signature, Stage, asked_for
from shrinkfx.failure.verdict import Observation
from shrinkfx.program.messages import Build, Weights


@dataclass(frozen=True)
class Baseline:
    """The failure to look for.

    Attributes:
        rate: the part of the runs that failed so.
        fallback_random: random numbers are eager's, so that values compare.
        seconds: the longest run.
        calls: how often a run must call the program before it fails.
        probe: what shows it on the interpreter; '' elsewhere.
        warning: what else may be the cause, or what was not looked at; or ''.
    """

    target: Signature
    rate: float
    fallback_random: bool
    seconds: float
    calls: int = 1
    probe: str = ""
    warning: str = ""


def baseline(
    compiler: Compiler,
    until: str | None,
    match: str,
    max_runs: int,
    note: Callable[[str], None],
    max_calls: int = 1,
    build: Build = Build.STOCK,
) -> Baseline:
    """Run the program in a fresh interpreter, then on in forks.

    A failure to compile is steady if a second process shows it. Of anything else
    there are more runs, which cost little since they compile nothing: until what is
    asked for has shown ``ENOUGH`` times. What fails in nine runs of ten would pass
    for steady else, and a loud failure would hide the one that was asked for.
    What does not show it is compiled again; where that passes too, a program that
    changes its buffers is called several times in each run.

    Args:
        match: a regular expression that the failure's text must hold.
        max_runs: how often it may run before it is said not to fail.
        max_calls: how often it may be called in one run.
        build: of the run that looks for other causes.

    Raises:
        NotReproducible: it passes, or fails in another way than asked.
    """
    wanted = until or ANY
    note("baseline: running the program as it is, first in a fresh process")
    tried: list[_Runs] = []
    with scratch.folder("package") as folder:
        kept = compiler.with_options(package=f"{folder}/first.pt2")
        first, ending = kept.original(fresh=True)
        ways = [kept]
        skipped = first.signature is None and ending.answer.get("values_skipped", 0) > 0
        if skipped and wanted in (ANY, Kind.MISMATCH, Kind.NAN):
            note("random values: comparing them with eager's random numbers")
            own = {"package": f"{folder}/random.pt2", "fallback_random": True}
            ways.insert(0, kept.with_options(**own))
        for way in ways:
            if tried:
                note(f"it does not fail so: up to {max_runs} more runs, {_OWN_RANDOM}")
            begun = first if way is kept else way.original()[0]
            runs = _Runs(wanted, match, [begun])
            tried.append(runs)
            calls = _run_often(way, runs, max_runs, max_calls, note)
            if target := runs.target:
                way = way.without("package").with_options(calls=calls)
                return _settled(way, runs, target, build, note)
    seen = [s for runs in tried for s in (*runs.seen, *runs.later)]
    said = list(dict.fromkeys(describe(s) for s in seen))
    made = sum(r.made for r in tried)
    raise NotReproducible(wanted, made, said, _advice(seen, wanted))


_OWN_RANDOM = "with random numbers of its own"


def _run_often(
    kept: Compiler,
    runs: _Runs,
    max_runs: int,
    max_calls: int,
    note: Callable[[str], None],
) -> int:
    """Add runs to the first one until they are enough; return the calls in each.

    Compiled again, it may fail where it did not, and must fail where it did not
    compile.
    """
    calls = 1
    in_vain = runs.target is None and (max_runs > 1 or _leaves_out_weights(kept))
    if in_vain or (runs.target and runs.target.stage is Stage.COMPILE):
        kept = _again(kept, runs)
    max_calls = min(max_calls, 1 + max_runs - runs.made)  # a run for each but the first
    if max_calls > 1 and all(_passes(s) for s in runs.seen):
        calls = _calls_needed(kept, runs, max_calls, note)
    _go_on(kept.with_options(calls=calls), runs, max_runs, note)
    return calls


def _leaves_out_weights(kept: Compiler) -> bool:
    return kept.options.get("weights") == Weights.BESIDE


def _again(kept: Compiler, runs: _Runs) -> Compiler:
    """Compile and run it once more, with its weights inside; choose what to go on with.

    Where they were left out and that makes no difference, it stays so.
    """
    name, before = f"{kept.options['package']}.again", list(runs.seen)
    again = kept.with_options(package=name, weights=Weights.INSIDE)
    runs.seen.append(again.original()[0])
    if not _leaves_out_weights(kept):
        return again
    if replace(runs, seen=before).target or not runs.target:
        return kept
    # What passes without them says nothing of how often it fails with them.
    runs.seen[:] = runs.seen[-1:]
    return again


def _settled(
    compiler: Compiler,
    runs: _Runs,
    target: Signature,
    build: Build,
    note: Callable[[str], None],
) -> Baseline:
    """Say what has been found, and what else may matter."""
    note(f"baseline: {target}")
    rate = runs.failed / runs.total
    if rate < 1.0:
        note(
            f"flaky: {runs.failed} of {runs.total} runs fail so; a candidate passes "
            f"after {runs_to_be_sure(rate)}"
        )
        if target.detail == MEMORY and "guard_pages" not in compiler.options:
            note("guard pages may have it fail in every run: --until ima")
    others = compiler.with_options(build=build)
    warning = other_cause(others, target, runs.have_shown)
    if warning:
        note(f"careful: {warning}")
    seconds = max(s.seconds for s in runs.seen)
    options = compiler.options
    random, calls = bool(options.get("fallback_random")), options["calls"]
    return Baseline(target, rate, random, seconds, calls, warning=warning)


@dataclass(frozen=True)
class _Runs:
    """What the runs so far have shown, and whether more would tell more.

    Attributes:
        later: runs of several calls, none of which showed what was asked for.
    """

    wanted: str
    match: str
    seen: list[Observation]
    later: list[Observation] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(s.runs for s in self.seen)

    @property
    def made(self) -> int:
        return self.total + len(self.later)

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

    def have_shown(self, failure: Signature) -> bool:
        return any(s.signature and s.signature.admits(failure) for s in self.seen)

    def are_enough(self, max_runs: int) -> bool:
        target = self.target
        silent = [s for s in self.seen if s.unresolved]
        if any(s.invalid for s in self.seen) or len(silent) >= _PATIENCE:
            return True  # each more would be refused again, or cost as much
        if self._always_in(Stage.COMPILE, Stage.LOAD):
            return True  # two processes were no chance
        if target is None:
            return self.made >= max_runs
        if any(target.admits(s.signature) for s in silent):
            return True  # each one that shows it lasts to a limit
        # Few failures make a rate that cannot be planned with.
        return self.failed >= ENOUGH or self.total >= ENOUGH * max_runs

    def _always_in(self, *stages: Stage) -> bool:
        """Tell whether two runs or more have failed alike, in one of the stages."""
        first, *others = (s.signature for s in self.seen)
        if first is None or first.stage not in stages:
            return False
        return bool(others) and all(map(first.admits, others))


_PATIENCE = 3
"""Runs that last to a limit, or are killed from outside, before there are no more."""


def _passes(seen: Observation) -> bool:
    return not (seen.signature or seen.invalid or seen.unresolved)


def _calls_needed(
    kept: Compiler, runs: _Runs, max_calls: int, note: Callable[[str], None]
) -> int:
    """Find the fewest calls after which the program fails; 1 if it never does.

    What runs of fewer calls showed is forgotten then.
    """
    note(f"it changes its buffers: calling it up to {max_calls} times in a run")
    for calls in range(2, max_calls + 1):
        seen, _ = kept.with_options(calls=calls).original()
        if replace(runs, seen=[seen]).target:
            note(f"call {calls} of a run fails")
            runs.seen[:] = [seen]
            return calls
        runs.later.append(seen)
    return 1


def _go_on(
    kept: Compiler, runs: _Runs, max_runs: int, note: Callable[[str], None]
) -> None:
    """Run what the last run has compiled until there are runs enough."""
    if not runs.are_enough(max_runs):
        until = f"until it has failed {ENOUGH} times: does it always?"
        often = f"up to {max_runs} times" if runs.target is None else until
        note(f"running it {often}")
    while not runs.are_enough(max_runs):
        # Each in a process of its own at first: one may see what another left.
        left = max_runs * (ENOUGH if runs.target else 1) - runs.made
        batch = 1 if len(runs.seen) < ENOUGH else min(RUNS_PER_CHILD, left)
        compiles = runs.target and runs.target.stage is Stage.COMPILE
        again = {"package": None} if compiles else {"runs": batch}
        runs.seen.append(kept.with_options(**again).original()[0])
    silent = [s.unresolved for s in runs.seen if s.unresolved]
    if len(silent) >= _PATIENCE:
        note(f"{len(silent)} runs gave no answer ({silent[-1]}): running it no further")


def describe(seen: Observation) -> str:
    """Say in a line what a run did."""
    if seen.signature:
        return str(seen.signature)
    return seen.invalid or seen.unresolved or "passes: the same result as eager"


def _advice(seen: list[Observation], wanted: str) -> str:
    kinds = {s.signature.kind.value for s in seen if s.signature}
    if kinds:
        return f"to reduce what it does: --until {sorted(kinds)[0]}"
    if all(_passes(s) for s in seen):
        silent = ["a silent memory error? --until ima"] if wanted != Kind.IMA else []
        return "\n".join([*_WHAT_DIFFERS, *silent, *_WHERE_ELSE])
    return "see above"


_WHAT_DIFFERS = (
    "what may differ from the failing run:",
    "inputs other than the exported ones? --inputs FILE; other sizes? --dynamic-sweep",
    "its settings? --inductor-config KEY=VALUE, --env KEY=VALUE",
    "lowerings or passes of its own? --preload FILE",
)

_WHERE_ELSE = (
    "on CUDA only? --device cuda --backend interpreter checks each access of a kernel",
    "now and then, on a busy machine? keep this one busy, with --baseline-runs 1000",
)
