"""Run the input program, and find the failure to search for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from shrinkfx.check.baseline.attempt import (
    Attempt,
    BaselineRequest,
    Packages,
    is_self_explanatory,
)
from shrinkfx.check.oracle import ENOUGH, CheckClient, runs_to_be_sure
from shrinkfx.errors import BudgetExhausted, NotCuttable, NotReproducible, join_lines
from shrinkfx.failure.signature import ANY, MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Checked
from shrinkfx.protocol.choices import Build, Guard, Probe, Weights
from shrinkfx.protocol.files import Traces
from shrinkfx.protocol.record import Message
from shrinkfx.protocol.requests import HASH_SEED, CheckOptions
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
    request: BaselineRequest,
    build: Build = Build.STOCK,
    packages: Packages | None = None,
    *,
    passed: bool = False,
) -> Baseline:
    """Run the program in forks and, if necessary, in a fresh interpreter.

    A fresh interpreter is used where the fork may be the cause: if the program passes,
    or dies without a message. An exception or a wrong result is the program's own, and
    the repro's fresh run verifies it.

    A failure to compile is deterministic if a second process shows it, or if Inductor
    raises it in the lowering. For any other failure there are more runs, until the
    requested failure has shown ``ENOUGH`` times; they are cheap because they compile
    nothing. Otherwise a failure of nine runs in ten would count as deterministic, and a
    frequent failure would hide the requested one. Three slow runs are enough if their
    wrong results are the same.
    If the program does not fail, it is recompiled, unless ``passed``; if it passes
    again and changes its buffers, it is called several times in each run.

    Args:
        build: the build of the run that looks for other causes, if it needs one.
        packages: packages of the program that exist already; or None.
        passed: whether the whole candidate has passed in a fork; then the program is
            compiled once, in a fresh interpreter.

    Raises:
        NotReproducible: the program passes, or fails in another way than requested.
        BudgetExhausted: the first run did not end in time.
    """
    wanted, note = request.wanted, request.note
    note("baseline: running the input program")
    tried: list[Attempt] = []
    with scratch.make_scratch_folder("package") as folder:
        packages = packages or Packages(folder)
        packaged = client.with_options(package=packages.path_for(client.options))
        # There may be no second run.
        alone = request.max_runs == 1 or wanted == Kind.HANG
        passed = passed and client.options.weights is Weights.INSIDE
        first, ending = packaged.run_input_program(fresh=alone or passed)
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
            attempt = Attempt(way, request, packages.first or first)
            if passed and way is packaged:
                attempt.began_fresh, attempt.compilations = True, 2
            if tried:
                often = f"up to {attempt.max_runs} more runs"
                note(f"the program does not fail this way: {often}, {_INDUCTOR_RANDOM}")
            first_run = first if way is packaged else attempt.ask(way)
            if first_run is None:
                continue
            attempt.seen.append(first_run)
            tried.append(attempt)
            attempt.run_until_enough()
            if attempt.target:
                return make_baseline(attempt, build)
    raise _not_reproducible(wanted, tried)


_INDUCTOR_RANDOM = "with its own random numbers"


def make_baseline(attempt: Attempt, build: Build) -> Baseline:
    """Create the baseline from the runs, report it, and look for other causes."""
    target, options, note = attempt.target, attempt.client.options, attempt.request.note
    failed, answered = attempt.failed_count, attempt.answered_count
    assert target is not None
    note(f"baseline: {target}")
    rate = failed / answered
    if rate < 1.0:
        note(
            f"flaky: {failed} of {answered} runs fail; a "
            f"candidate counts as passing after {runs_to_be_sure(rate)} passing runs"
        )
        if target.detail == MEMORY_FAULT and options.guard_pages is Guard.OFF:
            note("with guard pages the program may fail in every run: --until ima")
    compiled = attempt.compiled
    seconds = max(compiled.own_seconds, *(s.own_seconds for s in attempt.seen))
    longest_s = max(compiled.seconds, *(s.seconds for s in attempt.seen))
    attempt.request.budget.keep(longest_s)
    few = attempt.out_of_minutes and failed < ENOUGH
    warnings = [_FEW_RUNS.format(failed, answered)] if few else []
    if cause := _find_other_cause(attempt, build):
        warnings.append(cause)
    for warning in warnings:
        note(f"warning: {warning}")
    random, calls = options.fallback_random, options.calls
    return Baseline(target, rate, random, seconds, calls, warning="; ".join(warnings))


_FEW_RUNS = (
    "not enough time was left: the program failed in {} of {} runs, which does not "
    "show whether it always fails"
)


def _find_other_cause(attempt: Attempt, build: Build) -> str:
    """Look for another cause if there is time to compile the program again.

    The program runs with input guards and, for a NaN, with checks of all values. Every
    package has the guards, and a variable enables them at run time, so a kept package
    is run again. Checks of values need a build of their own.

    Returns:
        A description of the possible cause, or ''. A check that fails where the program
        passes is no cause.
    """
    target, share = attempt.target, attempt.request.budget.share()
    assert target is not None
    ran = target.stage in (Stage.RUN, Stage.COMPARE)
    known = (Kind.CHECK_INPUTS, Kind.HANG, Kind.OOM)
    if not ran or target.kind in known or not attempt.request.has_guards:
        return ""
    if attempt.compiled.seconds > share:
        attempt.request.note(
            "not enough time left: not running the program with checks of its "
            "inputs and values"
        )
        return ""
    client = attempt.client.with_options(build=build, sanity=True)
    under, again, checks = _GUARDS, f"--env {_GUARDS}", "sizes and strides"
    if target.kind is Kind.NAN:
        inductor = {**client.options.inductor, "nan_asserts": True}
        client = client.with_options(package=None, inductor=inductor)
        under, checks = f"{_GUARDS} and nan_asserts", f"{checks}, and values"
        again += " --inductor-config nan_asserts=True"
    try:
        seen = client.with_clock_limit(share).run_input_program()[0]
    except BudgetExhausted:
        return ""
    shown = seen.signature
    if seen.unresolved or shown is None or attempt.has_shown(shown):
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
        f"with {under} (checks {checks}) the program fails differently: {shown}. This "
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


def _not_reproducible(wanted: str, tried: list[Attempt]) -> NotReproducible:
    """Create the error, with the number of runs, and their time if that ended them."""
    seen = [s for attempt in tried for s in (*attempt.seen, *attempt.later)]
    compares = all(attempt.client.options.reference for attempt in tried)
    words = (s.in_words if compares or not s.passed else _NOT_COMPARED for s in seen)
    texts = list(dict.fromkeys(words))
    made = sum(attempt.made_count for attempt in tried)
    why = [attempt.explain_end() for attempt in tried]
    compiled = sum(attempt.compilations for attempt in tried)
    with_guards = any(attempt.request.has_guards for attempt in tried)
    first = () if with_guards or not all(s.passed for s in seen) else (_ONLY_AOTI,)
    advice = join_lines(dict.fromkeys([*first, _advice(seen, wanted, compiled), *why]))
    spent_s = sum(attempt.spent_s for attempt in tried)
    seconds = spent_s if any(why) and spent_s else None
    kinds = {str(s.signature.kind) if s.signature else "" for s in seen}
    kind = kinds.pop() if len(kinds) == 1 else ""
    return NotReproducible(wanted, made, texts, advice, seconds, kind)


_NOT_COMPARED = "passes; the results are not compared, because eager fails"


def _advice(seen: list[Observation], wanted: str, compiled: int) -> str:
    kinds = {s.signature.kind.value for s in seen if s.signature}
    if kinds:
        return f"to reduce the failure seen here: --until {sorted(kinds)[0]}"
    if all(s.passed for s in seen):
        silent = [_SILENT] if wanted != Kind.IMA else []
        often = "once" if compiled == 1 else f"{compiled} times"
        otherwise = (
            "compilation that depends on the order of a set: several values of "
            f"--env {HASH_SEED}=N (this run compiled the program {often})"
        )
        return join_lines([*_WHAT_DIFFERS, otherwise, *silent, *_WHERE_ELSE])
    return "see above"


_WHAT_DIFFERS = (
    "possible differences from the failing run:",
    (
        "inputs other than the exported inputs: --inputs FILE; other "
        "sizes: --dynamic-sweep"
    ),
    "settings: --inductor-config KEY=VALUE, --env KEY=VALUE",
    (
        "custom lowerings, printers or passes: --preload a FILE that installs them "
        "when it is imported"
    ),
)

_ONLY_AOTI = (
    "this run used torch.compile: a failure of AOTInductor's wrapper, package or input "
    "checks only shows with --backend aoti"
)

_SILENT = "a memory error that went unnoticed: --until ima"

_WHERE_ELSE = (
    "the compiler: torch.compile is --backend inductor, AOTInductor is --backend aoti",
    (
        "CUDA instead of the CPU: --device cuda with --backend interpreter "
        "checks each access of a kernel"
    ),
    "the load of the machine: start other work here, and add --baseline-runs 1000",
)


# The whole candidate: baseline and evidence from one compilation.
#
# If the file's program is functional already, candidates are cut from it directly. So
# the candidate that holds the whole program is checked first, in the build of the
# search and with evidence for suspects. If it fails in every run by an exception or a
# wrong result, that is the baseline, and the search does not check this candidate
# again. In any other case the file's own program is run in the stock build.


@dataclass
class WholeCandidate:
    """The candidate that holds the whole program, and its first run.

    Attributes:
        build: the build of the search.
        seen: the observation of that run, or None.
        traces: the evidence of that run.
    """

    whole: Candidate
    build: Build
    seen: Observation | None = None
    traces: Traces = field(default_factory=Traces)

    def verdict(self, target: Signature, checks: CheckOptions) -> Verdict | None:
        """Return the run as a verdict on the candidate, or None if it does not apply.

        It applies if it shows the target.

        Args:
            checks: the options for candidates; that run was a single call.
        """
        plain = checks.calls == 1 and not checks.fallback_random
        if self.seen is None or not plain or not target.admits(self.seen.signature):
            return None
        return Verdict(Outcome.REPRODUCED, self.seen)

    def run(self, client: CheckClient, evidence: Path) -> Observation:
        """Run the candidate, and record that run with its evidence."""
        self.seen, _ = client.with_options(evidence=str(evidence)).run_input_program()
        if evidence.exists():
            self.traces = Traces.from_line(evidence.read_text())
        return self.seen


def find_whole_candidate_baseline(
    in_one: WholeCandidate, client: CheckClient, request: BaselineRequest
) -> Baseline | None:
    """Run the whole candidate, as ``find_baseline`` runs the program.

    It does not test whether the file's own program fails too, with its inputs nested as
    they were, and in the stock build; the repro of the reduced program does.

    Args:
        in_one: records the first run, also if there is no baseline.

    Returns:
        None if the candidate does not fail as requested, not in every run, or not by an
        exception or a wrong result.

    Raises:
        BudgetExhausted: the first run did not end in time.
    """
    request.note("baseline: running the input program")
    with scratch.make_scratch_folder("package") as folder:
        packaged = replace(client, input_program=in_one.whole)
        packaged = packaged.with_options(
            build=in_one.build, package=f"{folder}/whole.pt2"
        )
        first = in_one.run(packaged, Path(folder, "evidence.json"))
        attempt = Attempt(packaged, replace(request, max_calls=1), first, [first])
        if is_self_explanatory(attempt.target):
            attempt.run_until_enough()
            if attempt.always_fails:
                return make_baseline(attempt, in_one.build)
    request.note(REPEATED)
    return None


REPEATED = "repeating the baseline with the input program in its original form"
"""The message before the program in the file is run instead of the whole candidate."""


# Errors for a program whose failing run had state that no other process has.


@contextmanager
def prepend_advice(sentences: Sequence[str]) -> Iterator[None]:
    """Put sentences first in the advice of a ``NotReproducible`` error."""
    try:
        yield
    except NotCuttable:
        raise
    except NotReproducible as error:
        advice = join_lines([*sentences, error.advice])
        so = error.wanted, error.runs, error.seen, advice, error.seconds, error.kind
        raise NotReproducible(*so) from error


def require_failure(client: CheckClient, wanted: str) -> None:
    """Stop after one run if the program passes: more runs would not restore the state.

    Args:
        wanted: the kind of failure that the user asked for.

    Raises:
        NotReproducible: the program passes.
        BudgetExhausted: the run did not end in time.
    """
    seen, _ = client.run_input_program()
    if seen.passed:
        raise NotReproducible(wanted, seen.runs, [seen.in_words], _MORE_RUNS)


_MORE_RUNS = "to run the program more often anyway: --baseline-runs 100"
"""This flag skips ``require_failure``."""
