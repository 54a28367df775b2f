"""What the unchanged program does, before anything is cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from shrinkfx import scratch
from shrinkfx.check.allowance import UNLIMITED, Allowance
from shrinkfx.check.baseline.anew import compile_anew, leaves_out_weights
from shrinkfx.check.baseline.not_seen import not_seen
from shrinkfx.check.baseline.other_causes import may_be_the_inputs, other_cause
from shrinkfx.check.baseline.runs import (
    MAX_SILENT_RUNS,
    Bounds,
    Packages,
    Runs,
    is_in_words,
)
from shrinkfx.check.oracle import (
    ENOUGH,
    RUNS_PER_CHILD,
    CheckClient,
    runs_to_be_sure,
)
from shrinkfx.errors import BudgetExhausted
from shrinkfx.failure.signature import ANY, MEMORY, Kind, Signature, Stage
from shrinkfx.protocol.answers import Checked
from shrinkfx.protocol.choices import Build, Guard, Probe
from shrinkfx.protocol.record import Message
from shrinkfx.protocol.requests import CheckOptions


@dataclass(frozen=True)
class Baseline(Message):
    """The failure to look for.

    Attributes:
        rate: the part of the runs that failed so.
        fallback_random: random numbers are eager's, so that values compare.
        seconds: the longest run, of its own time.
        calls: how often a run must call the program before it fails.
        probe: what shows it on the interpreter; None elsewhere.
        warning: what else may be the cause, or what was not looked at; or ''.
        environment: variables that checks need for it; an empty one is taken away.
    """

    target: Signature
    rate: float
    fallback_random: bool
    seconds: float
    calls: int = 1
    probe: Probe | None = None
    warning: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def baseline(
    client: CheckClient,
    until: str | None,
    match: str,
    max_runs: int | None,
    note: Callable[[str], None],
    max_calls: int = 1,
    build: Build = Build.STOCK,
    budget: Allowance = UNLIMITED,
    packages: Packages | None = None,
    seeds: tuple[str, ...] = (),
) -> Baseline:
    """Run the program in a fork, then on in forks, and in a fresh interpreter.

    That interpreter is asked where a fork may be why: where the program passes, and
    where it dies without a word. What an exception or a wrong result says is the
    program's; and the repro's fresh run has the last word on it.

    A failure to compile is steady if a second process shows it. Of anything else
    there are more runs, which cost little since they compile nothing: until what is
    asked for has shown ``ENOUGH`` times. What fails in nine runs of ten would pass
    for steady else, and a loud failure would hide the one that was asked for.
    What does not show it is compiled again; where that passes too, a program that
    changes its buffers is called several times in each run.

    Args:
        match: a regular expression that the failure's text must hold.
        max_runs: how often it may run before it is said not to fail; None means
            ``MAX_RUNS`` times, and no longer than it took to compile.
        max_calls: how often it may be called in one run.
        build: of the run that looks for other causes, if it takes one of its own.
        budget: where it is short, what need not be known is not asked.
        packages: what was compiled of it already, which is run on; or None.
        seeds: hash seeds with which it is compiled again where it passes.

    Raises:
        NotReproducible: it passes, or fails in another way than asked.
        BudgetExhausted: the first run has not come to its end.
    """
    wanted = until or ANY
    note("baseline: running the input program")
    tried: list[tuple[Runs, Bounds]] = []
    with scratch.folder("package") as folder:
        packages = packages or Packages(folder)
        kept = client.with_options(package=packages.place(client.options))
        alone = max_runs == 1 or wanted == Kind.HANG  # there may be no second run
        first, ending = kept.original(fresh=alone)
        ways = [kept]
        said = ending.answer
        skipped = isinstance(said, Checked) and said.values_skipped > 0
        skipped = skipped and first.signature is None
        if skipped and wanted in (ANY, Kind.MISMATCH, Kind.NAN):
            note(
                "the program draws random numbers: comparing it with eager on "
                "eager's random numbers"
            )
            own = kept.with_options(package=f"{folder}/random.pt2")
            ways.insert(0, own.with_options(fallback_random=True))
        for way in ways:
            bounds = Bounds.after(packages.first or first, max_runs, budget, seeds)
            if tried:
                often = f"up to {bounds.max_runs} more runs"
                note(f"the program does not fail this way: {often}, {_OWN_RANDOM}")
            begun = first if way is kept else bounds.compiled(way)
            if begun is None:
                continue
            runs = Runs(wanted, match, [begun])
            tried.append((runs, bounds))
            way = run_often(way, runs, bounds, max_calls, note)
            if runs.target:
                return concluded(way, runs, bounds, build, note)
    raise not_seen(wanted, tried)


_OWN_RANDOM = "with its own random numbers"


def run_often(
    kept: CheckClient,
    runs: Runs,
    bounds: Bounds,
    max_calls: int,
    note: Callable[[str], None],
) -> CheckClient:
    """Add runs to the first one until they are enough; return what has made them.

    Compiled again, it may fail where it did not, and must fail where it did not
    compile.
    """
    calls = 1
    in_vain = runs.target is None and (bounds.max_runs > 1 or leaves_out_weights(kept))
    fails_to_compile = runs.target and runs.target.stage is Stage.COMPILE
    if (in_vain or fails_to_compile) and bounds.allow_compiling(runs):
        kept = compile_anew(kept, runs, bounds)
    max_calls = min(max_calls, 1 + bounds.max_runs - runs.made)  # the first one is made
    if max_calls > 1 and all(s.passed for s in runs.seen):
        calls = _calls_needed(kept, runs, bounds, max_calls, note)
    kept = kept.with_options(calls=calls)
    _go_on(kept, runs, bounds, note)
    return kept


def _is_told(target: Signature | None, options: CheckOptions) -> bool:
    """Tell whether it is known what has failed: that it was in a fork is not why.

    Guard pages tell which tensor was overrun, and by how much.
    """
    beside_pages = options.guard_pages in (Guard.AFTER, Guard.BEFORE)
    overruns = target is not None and target.kind is Kind.IMA and beside_pages
    return overruns or is_in_words(target)


def concluded(
    client: CheckClient,
    runs: Runs,
    bounds: Bounds,
    build: Build,
    note: Callable[[str], None],
) -> Baseline:
    """Say what has been found, and what else may matter."""
    target = runs.target
    assert target is not None
    note(f"baseline: {target}")
    rate = runs.failed / runs.told
    if rate < 1.0:
        note(
            f"flaky: {runs.failed} of {runs.told} runs fail; a candidate counts as "
            f"passing after {runs_to_be_sure(rate)} passing runs"
        )
        if target.detail == MEMORY and client.options.guard_pages is Guard.OFF:
            note("with guard pages the program may fail in every run: --until ima")
    seconds = max(bounds.compile_own_s, *(s.own_seconds for s in runs.seen))
    bounds.budget.keep(max(bounds.compile_s, *(s.seconds for s in runs.seen)))
    few = bounds.out_of_minutes and runs.failed < ENOUGH
    warnings = [_FEW_RUNS.format(runs.failed, runs.told)] if few else []
    warnings += _other_causes(client.with_options(build=build), runs, bounds, note)
    for warning in warnings:
        note(f"warning: {warning}")
    options = client.options
    random, calls = options.fallback_random, options.calls
    return Baseline(target, rate, random, seconds, calls, warning="; ".join(warnings))


def _other_causes(
    client: CheckClient, runs: Runs, bounds: Bounds, note: Callable[[str], None]
) -> list[str]:
    """Look for other causes if there is time to compile it once more."""
    share = bounds.budget.share()
    if not (runs.target and may_be_the_inputs(runs.target)):
        return []
    if bounds.compile_s > share:
        note(
            "not enough time left: not running the program with checks of its "
            "inputs and values"
        )
        return []
    try:
        found = other_cause(client.within(share), runs.target, runs.have_shown)
    except BudgetExhausted:
        return []
    return [found] if found else []


_FEW_RUNS = (
    "not enough time was left: the program failed in {} of {} runs, which does not "
    "show whether it always fails"
)


def _calls_needed(
    kept: CheckClient,
    runs: Runs,
    bounds: Bounds,
    max_calls: int,
    note: Callable[[str], None],
) -> int:
    """Find the fewest calls after which the program fails; 1 if it never does.

    What runs of fewer calls showed is forgotten then.
    """
    note(
        f"the program changes its buffers: calling it up to {max_calls} times in "
        "one run"
    )
    for calls in range(2, max_calls + 1):
        if not bounds.have_minutes():  # a call more is no repetition
            break
        seen = bounds.run(kept.with_options(calls=calls))
        if seen is None:
            break
        if replace(runs, seen=[seen]).target:
            note(f"the failure shows in call {calls} of a run")
            runs.seen[:] = [seen]
            return calls
        runs.later.append(seen)
    return 1


def _go_on(
    kept: CheckClient, runs: Runs, bounds: Bounds, note: Callable[[str], None]
) -> None:
    """Run what the last run has compiled until there are runs enough."""
    max_runs = bounds.max_runs
    if not runs.are_enough(max_runs):
        until = f"whether the failure is deterministic (up to {ENOUGH} failing runs)"
        often = f"whether the program fails (up to {max_runs} runs{bounds.in_words})"
        note(f"checking {(often if runs.target is None else until)}")
    while not runs.are_enough(max_runs) and not bounds.ends(runs):
        # Each in a process of its own at first: one may see what another left.
        left = max_runs * (ENOUGH if runs.target else 1) - runs.made
        batch = 1 if len(runs.seen) < ENOUGH else min(RUNS_PER_CHILD, left)
        compiles = runs.target and runs.target.stage is Stage.COMPILE
        if compiles:
            again = kept.with_options(package=None)
        else:
            again = kept.with_options(runs=batch)
        fresh = len(runs.seen) == 1 and not _is_told(runs.target, kept.options)
        if seen := bounds.run(again, fresh=fresh):
            runs.seen.append(seen)
    silent = [s.unresolved for s in runs.seen if s.unresolved]
    if len(silent) >= MAX_SILENT_RUNS:
        note(f"{len(silent)} runs were inconclusive ({silent[-1]}): stopping the runs")
