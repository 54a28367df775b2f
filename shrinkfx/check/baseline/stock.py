"""Run the input program, and find the failure to search for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from shrinkfx.check.baseline.recompile import (
    advise_other_hash_seed,
    leaves_out_weights,
    recompile_program,
)
from shrinkfx.check.baseline.runs import (
    MAX_SILENT_RUNS,
    Bounds,
    Packages,
    Runs,
    is_self_explanatory,
)
from shrinkfx.check.limits import UNLIMITED, Allowance
from shrinkfx.check.oracle import (
    ENOUGH,
    RUNS_PER_CHILD,
    CheckClient,
    runs_to_be_sure,
)
from shrinkfx.errors import BudgetExhausted, Flag, MessageText, NotReproducible
from shrinkfx.failure.signature import ANY, MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation
from shrinkfx.protocol.answers import Checked
from shrinkfx.protocol.choices import Build, Guard, Probe
from shrinkfx.protocol.record import Message
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.system import scratch


@dataclass(frozen=True)
class Baseline(Message):
    """The failure to search for.

    Attributes:
        rate: the fraction of the runs that showed it.
        fallback_random: random numbers are eager's, so that values compare.
        seconds: the longest run, without waiting for a core.
        calls: how often a run must call the program before it fails.
        probe: the interpreter's probe that shows it; None on other backends.
        warning: another possible cause, or what was not checked; or ''.
        environment: variables that checks need to show it; an empty one is removed.
    """

    target: Signature
    rate: float
    fallback_random: bool
    seconds: float
    calls: int = 1
    probe: Probe | None = None
    warning: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def find_baseline(
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
    """Run the program in forks and, if necessary, in a fresh interpreter.

    A fresh interpreter is used where the fork may be the cause: if the program passes,
    or dies without a message. An exception or a wrong result is the program's own, and
    the repro's fresh run verifies it.

    A failure to compile is deterministic if a second process shows it. For any other
    failure there are more runs, until the requested failure has shown ``ENOUGH`` times;
    they are cheap because they compile nothing. Otherwise a failure of nine runs in ten
    would count as deterministic, and a frequent failure would hide the requested one.
    If the program does not fail, it is recompiled; if it passes again and changes its
    buffers, it is called several times in each run.

    Args:
        match: a regular expression that must match the failure's text.
        max_runs: the number of runs after which the program counts as passing. None
            means ``MAX_RUNS``, and no longer than the compilation took.
        max_calls: the highest number of calls in one run.
        build: the build of the run that looks for other causes, if it needs one.
        budget: if it is short, optional runs are skipped.
        packages: packages of the program that exist already; or None.
        seeds: the hash seeds to recompile a passing program with.

    Raises:
        NotReproducible: the program passes, or fails in another way than requested.
        BudgetExhausted: the first run did not end in time.
    """
    wanted = until or ANY
    note("baseline: running the input program")
    tried: list[tuple[Runs, Bounds]] = []
    with scratch.make_scratch_folder("package") as folder:
        packages = packages or Packages(folder)
        packaged = client.with_options(package=packages.path_for(client.options))
        alone = max_runs == 1 or wanted == Kind.HANG  # there may be no second run
        first, ending = packaged.run_input_program(fresh=alone)
        ways = [packaged]
        answer = ending.answer
        skipped = isinstance(answer, Checked) and answer.values_skipped > 0
        skipped = skipped and first.signature is None
        if skipped and wanted in (ANY, Kind.MISMATCH, Kind.NAN):
            note(
                "the program draws random numbers: comparing it with eager on "
                "eager's random numbers"
            )
            with_random = packaged.with_options(package=f"{folder}/random.pt2")
            ways.insert(0, with_random.with_options(fallback_random=True))
        for way in ways:
            bounds = Bounds.after_first_run(
                packages.first or first, max_runs, budget, seeds
            )
            if tried:
                often = f"up to {bounds.max_runs} more runs"
                note(f"the program does not fail this way: {often}, {_INDUCTOR_RANDOM}")
            first_run = first if way is packaged else bounds.compile_and_run(way)
            if first_run is None:
                continue
            runs = Runs(wanted, match, [first_run])
            tried.append((runs, bounds))
            way = run_until_enough(way, runs, bounds, max_calls, note)
            if runs.target:
                return make_baseline(way, runs, bounds, build, note)
    raise make_not_reproducible(wanted, tried)


_INDUCTOR_RANDOM = "with its own random numbers"


def run_until_enough(
    client: CheckClient,
    runs: Runs,
    bounds: Bounds,
    max_calls: int,
    note: Callable[[str], None],
) -> CheckClient:
    """Add runs to the first one until they are enough.

    A program that did not fail is compiled again, because it may fail then. So is one
    that did not compile, because it must fail again.

    Returns:
        The client with which the last runs were made.
    """
    calls = 1
    may_retry = runs.target is None and (
        bounds.max_runs > 1 or leaves_out_weights(client)
    )
    fails_to_compile = runs.target and runs.target.stage is Stage.COMPILE
    if (may_retry or fails_to_compile) and bounds.allow_compiling(runs):
        client = recompile_program(client, runs, bounds)
    max_calls = min(
        max_calls, 1 + bounds.max_runs - runs.made_count
    )  # the first run is made
    if max_calls > 1 and all(s.passed for s in runs.seen):
        calls = _calls_needed(client, runs, bounds, max_calls, note)
    client = client.with_options(calls=calls)
    _go_on(client, runs, bounds, note)
    return client


def _explains_failure(target: Signature | None, options: CheckOptions) -> bool:
    """Tell whether the failure says what is wrong, so that the fork is not its cause.

    Guard pages tell which tensor was overrun, and by how much.
    """
    has_pages = options.guard_pages in (Guard.AFTER, Guard.BEFORE)
    overruns = target is not None and target.kind is Kind.IMA and has_pages
    return overruns or is_self_explanatory(target)


def make_baseline(
    client: CheckClient,
    runs: Runs,
    bounds: Bounds,
    build: Build,
    note: Callable[[str], None],
) -> Baseline:
    """Create the baseline from the runs, report it, and look for other causes."""
    target = runs.target
    assert target is not None
    note(f"baseline: {target}")
    rate = runs.failed_count / runs.answered_count
    if rate < 1.0:
        note(
            f"flaky: {runs.failed_count} of {runs.answered_count} runs fail; a "
            f"candidate counts as passing after {runs_to_be_sure(rate)} passing runs"
        )
        if target.detail == MEMORY_FAULT and client.options.guard_pages is Guard.OFF:
            note("with guard pages the program may fail in every run: --until ima")
    seconds = max(bounds.compile_own_s, *(s.own_seconds for s in runs.seen))
    bounds.budget.keep(max(bounds.compile_s, *(s.seconds for s in runs.seen)))
    few = bounds.out_of_minutes and runs.failed_count < ENOUGH
    warnings = [_FEW_RUNS.format(runs.failed_count, runs.answered_count)] if few else []
    warnings += _other_causes(client.with_options(build=build), runs, bounds, note)
    for warning in warnings:
        note(f"warning: {warning}")
    options = client.options
    random, calls = options.fallback_random, options.calls
    return Baseline(target, rate, random, seconds, calls, warning="; ".join(warnings))


def _other_causes(
    client: CheckClient, runs: Runs, bounds: Bounds, note: Callable[[str], None]
) -> list[str]:
    """Look for other causes if there is time to compile the program again."""
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
        cause = other_cause(
            client.with_clock_limit(share), runs.target, runs.have_shown
        )
    except BudgetExhausted:
        return []
    return [cause] if cause else []


_FEW_RUNS = (
    "not enough time was left: the program failed in {} of {} runs, which does not "
    "show whether it always fails"
)


def _calls_needed(
    client: CheckClient,
    runs: Runs,
    bounds: Bounds,
    max_calls: int,
    note: Callable[[str], None],
) -> int:
    """Find the fewest calls after which the program fails; 1 if it never does.

    If it fails, the results of the runs with fewer calls are discarded.
    """
    note(
        f"the program changes its buffers: calling it up to {max_calls} times in "
        "one run"
    )
    for calls in range(2, max_calls + 1):
        if not bounds.have_minutes():  # another call is not a repetition
            break
        seen = bounds.run(client.with_options(calls=calls))
        if seen is None:
            break
        if replace(runs, seen=[seen]).target:
            note(f"the failure shows in call {calls} of a run")
            runs.seen[:] = [seen]
            return calls
        runs.later.append(seen)
    return 1


def _go_on(
    client: CheckClient, runs: Runs, bounds: Bounds, note: Callable[[str], None]
) -> None:
    """Run the compiled program until the runs are enough."""
    max_runs = bounds.max_runs
    if not runs.are_enough(max_runs):
        until = f"whether the failure is deterministic (at most {ENOUGH} failing runs)"
        often = (
            f"whether the program fails (up to {max_runs} runs{bounds.limit_phrase})"
        )
        note(f"checking {(often if runs.target is None else until)}")
    while not runs.are_enough(max_runs) and not bounds.is_exhausted(runs):
        # At first, each run has its own process: a run may see another one's state.
        remaining = max_runs * (ENOUGH if runs.target else 1) - runs.made_count
        batch = 1 if len(runs.seen) < ENOUGH else min(RUNS_PER_CHILD, remaining)
        compiles = runs.target and runs.target.stage is Stage.COMPILE
        if compiles:
            again = client.with_options(package=None)
        else:
            again = client.with_options(runs=batch)
        fresh = len(runs.seen) == 1 and not _explains_failure(
            runs.target, client.options
        )
        if seen := bounds.run(again, fresh=fresh):
            runs.seen.append(seen)
    silent = [s.unresolved for s in runs.seen if s.unresolved]
    if len(silent) >= MAX_SILENT_RUNS:
        note(f"{len(silent)} runs were inconclusive ({silent[-1]}): stopping the runs")


def other_cause(
    client: CheckClient, target: Signature, is_known: Callable[[Signature], bool]
) -> str:
    """Run the program with input guards and, for a NaN, with checks of all values.

    Every package has the guards, and a variable enables them at run time, so a kept
    package is run again. Checks of values need a build of their own.

    Args:
        is_known: tells whether a failure also shows without the checks.

    Returns:
        A description of the possible cause, or ''. A check that fails where the program
        passes is no cause.
    """
    if not may_be_the_inputs(target):
        return ""
    client, under, again = client.with_options(sanity=True), _GUARDS, f"--env {_GUARDS}"
    checks = "sizes and strides"
    if target.kind is Kind.NAN:
        inductor = {**client.options.inductor, "nan_asserts": True}
        client = client.with_options(package=None, inductor=inductor)
        under, checks = f"{_GUARDS} and nan_asserts", f"{checks}, and values"
        again += " --inductor-config nan_asserts=True"
    seen = client.run_input_program()[0]
    shown = seen.signature
    if seen.unresolved or shown is None or is_known(shown):
        return ""
    if shown.stage is Stage.PASSING:
        return ""
    if shown.kind is Kind.CHECK_INPUTS:
        specialised = _SPECIALISED if _SIZE_OF_ONE.search(shown.text) else ""
        return (
            f"with {under} the program refuses its inputs ({shown.text}); the inputs "
            f"may be at fault. {specialised}To use other inputs: --inputs FILE; to "
            "reduce the refusal: --until check-inputs"
        )
    return (
        f"with {under} (checks {checks}) the program fails differently: {shown}; that "
        f"may be the cause. To reduce that failure instead: --until {shown.kind} "
        f"{again}"
    )


_SIZE_OF_ONE = re.compile(r"expected it to be >= 2, but got: 1\b")
"""The message in ``torch/_inductor/codegen/cpp_wrapper_cpu.py``."""

_SPECIALISED = (
    "torch.export specializes sizes 0 and 1: a dynamic dim covers sizes from 2 up. "
    "Export the program separately for size 1. "
)

_GUARDS = "AOTI_RUNTIME_CHECK_INPUTS=1"


def may_be_the_inputs(target: Signature) -> bool:
    """Tell whether the inputs may cause a failure of this kind."""
    ran = target.stage in (Stage.RUN, Stage.COMPARE)
    return ran and target.kind not in (Kind.CHECK_INPUTS, Kind.HANG, Kind.OOM)


def make_not_reproducible(
    wanted: str, tried: list[tuple[Runs, Bounds]]
) -> NotReproducible:
    """Create the error, with the number of runs, and their time if that ended them."""
    seen = [s for runs, _ in tried for s in (*runs.seen, *runs.later)]
    texts = list(dict.fromkeys(s.in_words for s in seen))
    made = sum(runs.made_count for runs, _ in tried)
    why = [bounds.explain_end(runs) for runs, bounds in tried]
    compiled = sum(bounds.compilations for _, bounds in tried)
    advice = MessageText.lines(dict.fromkeys([_advice(seen, wanted, compiled), *why]))
    spent_s = sum(bounds.spent_s for _, bounds in tried)
    seconds = spent_s if any(why) and spent_s else None
    return NotReproducible(wanted, made, texts, advice, seconds, _only_kind(seen))


def _only_kind(seen: list[Observation]) -> str:
    kinds = {str(s.signature.kind) if s.signature else "" for s in seen}
    return kinds.pop() if len(kinds) == 1 else ""


def _advice(seen: list[Observation], wanted: str, compiled: int) -> MessageText:
    kinds = {s.signature.kind.value for s in seen if s.signature}
    if kinds:
        return MessageText(
            "to reduce the failure seen here: ", Flag("--until", sorted(kinds)[0])
        )
    if all(s.passed for s in seen):
        silent = [_SILENT] if wanted != Kind.IMA else []
        otherwise = advise_other_hash_seed(compiled)
        return MessageText.lines([*_WHAT_DIFFERS, otherwise, *silent, *_WHERE_ELSE])
    return MessageText("see above")


_WHAT_DIFFERS = (
    "possible differences from the failing run:",
    MessageText(
        "inputs other than the exported inputs: ",
        Flag("--inputs", stands="FILE"),
        "; other sizes: ",
        Flag("--dynamic-sweep"),
    ),
    MessageText(
        "settings: ",
        Flag("--inductor-config", stands="KEY=VALUE"),
        ", ",
        Flag("--env", stands="KEY=VALUE"),
    ),
    MessageText("custom lowerings or passes: ", Flag("--preload", stands="FILE")),
)

_SILENT = MessageText("a memory error that went unnoticed: ", Flag("--until", "ima"))

_WHERE_ELSE = (
    MessageText(
        "CUDA instead of the CPU: ",
        Flag("--device", "cuda"),
        " with ",
        Flag("--backend", "interpreter"),
        " checks each access of a kernel",
    ),
    MessageText(
        "a busy machine: keep this machine busy, and run with ",
        Flag("--baseline-runs", 1000),
    ),
)
