"""First phase: reproduce the failure, then find a graph form and build to cut.

Restore the baseline of an earlier session, without reproducing the failure again.

Choose the build that shows the failure, and the build step that suffices for it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shrinkfx.check.baseline.attempt import BaselineRequest, Packages
from shrinkfx.check.baseline.on_interpreter import probe_baseline
from shrinkfx.check.baseline.stock import (
    Baseline,
    WholeCandidate,
    find_baseline,
    find_whole_candidate_baseline,
    prepend_advice,
    require_failure,
)
from shrinkfx.check.baseline.with_caching import (
    baseline_with_either,
    is_allocator_chosen,
)
from shrinkfx.check.baseline.with_guard_pages import (
    ON_CPU,
    ON_GPU,
    Guarding,
    find_guarded_baseline,
    find_guarding,
    sanitizer_settings,
)
from shrinkfx.check.command import RUNS, Command, require_command_failure
from shrinkfx.check.limits import AdaptiveTimeLimit, time_limit
from shrinkfx.check.localise import collect_evidence
from shrinkfx.check.oracle import Builds, CheckClient, Limits
from shrinkfx.errors import (
    BudgetExhausted,
    LoadError,
    NotCuttable,
    NotReproducible,
    UsageError,
)
from shrinkfx.failure.blame import Evidence, Suspect, group_ties, rank_suspects
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.readers.script import frames_of_death
from shrinkfx.failure.signature import (
    ANY,
    Kind,
    Signature,
    Stage,
    explain_other_kind,
    looks_alike,
)
from shrinkfx.failure.verdict import Outcome, Verdict
from shrinkfx.journal.journal import Journal
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.display_text import cut_text, first_line, printable, short_kernels
from shrinkfx.program.skeleton import FEEDS, Role, Skeleton
from shrinkfx.protocol.answers import Description, Ending, Examined
from shrinkfx.protocol.choices import (
    MANY_BYTES,
    Backend,
    Build,
    GraphForm,
    Guard,
    Probe,
    Step,
    Weights,
)
from shrinkfx.protocol.files import Traces
from shrinkfx.protocol.operators import FakeMismatch, Misbehavior, OperatorFinding
from shrinkfx.protocol.record import read_older
from shrinkfx.protocol.requests import CheckOptions, Describe, Examine, SaveCandidate
from shrinkfx.report.record import (
    EAGER_ALSO_FAILS,
    OtherCauses,
    ProgramSize,
    find_eager_error,
    format_finding,
    merge_mismatch_lines,
)
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.folder import PROGRAM
from shrinkfx.run.known_bugs import leave_out_known_bugs
from shrinkfx.run.reduction import oracle_for
from shrinkfx.system import scratch


def wants_guard_pages(options: Options) -> bool:
    """Return whether a run uses guard pages, unless it runs on the interpreter."""
    if options.guard_pages == "auto":
        return options.until in (Kind.IMA, Kind.CRASH)
    return options.guard_pages == "on"


def choose_guard_pages(context: RunContext) -> Sequence[Guarding]:
    """Return the guard pages to try for the failure; none where none are available."""
    options, ready = context.options, context.ready
    if context.interprets:
        return ()
    if options.sanitizer and ready.for_cuda:
        return sanitizer_settings(Guard(options.sanitizer))
    if options.sanitizer:
        context.note("--sanitizer only works on a GPU: continuing without it")
    if not wants_guard_pages(options):
        return ()
    if ready.no_guard_pages:
        context.note(f"guard pages are not available: {ready.no_guard_pages}")
        return ()
    return ON_GPU if ready.for_cuda else ON_CPU


@dataclass(frozen=True)
class Described:
    """The input program after its run in eager: its graph and its description."""

    skeleton: Skeleton
    description: Description

    @property
    def eager_error(self) -> str:
        """The error that eager raises, in one line, or ''."""
        return first_line(self.description.eager_error)

    @property
    def other_causes(self) -> OtherCauses:
        """Other possible causes of the failure, which the run in eager has shown."""
        warnings = (
            (f"{EAGER_ALSO_FAILS}{self.eager_error}",) if self.eager_error else ()
        )
        return OtherCauses(self.description.mismatches, warnings=warnings)


def describe_program(
    context: RunContext, client: CheckClient, shown: Collection[FakeMismatch] = ()
) -> tuple[CheckClient, Described]:
    """Run the input program in eager, and return its description.

    Args:
        shown: fake-kernel mismatches that were already shown for another graph form.

    Returns:
        The client, without a reference result if eager fails, and the description.

    Raises:
        LoadError: eager did not get far enough to describe the program.
    """
    ending = client.ask(Describe())
    description = ending.answer
    if not isinstance(description, Description):
        path = context.options.inputs or context.options.model
        why = _why_undescribed(ending, client.limits.timeout_s)
        raise LoadError(str(path), *why)
    with open(description.skeleton, encoding="utf-8") as file:
        described = Described(Skeleton.from_json(json.load(file)), description)
    for line in merge_mismatch_lines(
        each for each in description.mismatches if each not in shown
    ):
        context.note(line)
    if line := described.eager_error:
        context.note(f"eager also fails ({line}): continuing without comparing results")
        client = client.with_options(reference=False)
    return client, described


def _why_undescribed(ending: Ending, timeout_s: float) -> tuple[str, str]:
    """Return the reason why there is no description, and advice."""
    error = ending.raised
    if error and error.type == LoadError.__name__:
        return error.message.partition(": ")[2], ""
    if error:
        reason = f"eager could not be run ({first_line(error.message)})"
        return reason, "check that the inputs fit the program's signature and ranges"
    place = f" in {ending.operator}" if ending.operator else ""
    if ending.how not in ("signal", "timeout"):
        reason = f"eager ended with {ending.how} {ending.code}{place}"
        return reason, f"its last lines:\n{ending.log[-1500:]}"
    frames = "\n  ".join(frames_of_death(ending.log))
    where = f"its innermost frames:\n  {frames}\n" if frames else ""
    if ending.how == "timeout":
        event = f"eager did not end in {timeout_s:.0f} s"
        verb = "hangs"
        hint = "if it is only slow: --timeout SECONDS"
    else:
        event = f"eager died of {signal.Signals(ending.code).name}"
        verb, hint = "dies", "check that the script runs without AOTInductor"
    message = _NOT_COMPILED.format(does=verb, what=ending.operator or "the program")
    advice = f"{where}{message}; {hint}"
    return f"{event}{place}, before anything was compiled", advice


_NOT_COMPILED = (
    "the program {does} without AOTInductor, too, so there is nothing to reduce: fix "
    "{what} or its inputs"
)


SECONDS = 10.0
"""Seconds that all runs in eager may take together; most programs need a few."""

_HANG_FACTOR = 3.0
"""Factor on ``SECONDS`` after which an operator that hangs is killed."""

_CLOCK = 10.0
"""Factor on ``SECONDS`` for the wall time, which is longer on a busy machine."""


def examine_operators(
    context: RunContext, client: CheckClient, described: Described
) -> tuple[OperatorFinding, ...]:
    """Test whether custom operators do what they declare, and note those that do not.

    The tests run in a process of their own, because an operator may crash or hang at
    sizes other than the program's.

    Returns:
        The new findings, which were shown to the user.
    """
    if not described.description.custom or described.description.stopped:
        return ()
    if context.budget.share() < SECONDS:
        context.note("not enough time left: skipping the tests of custom operators")
        return ()
    limits = Limits(SECONDS * _HANG_FACTOR, client.limits.max_rss_bytes)
    most_s = min(context.budget.share(), _CLOCK * SECONDS)
    bounded = client.with_limits(limits, client.meter).with_clock_limit(most_s)
    with scratch.make_scratch_folder("operators") as folder:
        path = Path(folder).resolve() / "findings"
        ending = bounded.ask(Examine(str(path), SECONDS))
        findings = _list_reportable(_read(path), described.description.mismatches)
    findings += [died] if (died := _how_it_died(ending)) else []
    for each in findings:
        context.note(format_finding(each))
    if why := _cut_short(ending):
        context.note(f"custom operators: only partly tested, {why}")
    return tuple(findings)


def _list_reportable(
    findings: Sequence[OperatorFinding], mismatches: Sequence[FakeMismatch]
) -> list[OperatorFinding]:
    """Remove findings that repeat what is known of an operator.

    A finding about the fault in a fake kernel, or a mismatch in the described run,
    implies that the fake kernel is wrong. An operator that leaves part of its result
    unfilled also returns other values each time.
    """
    faulty = {mismatch.operator for mismatch in mismatches}
    faulty |= {each.operator for each in findings if each.what is Misbehavior.FIXES}
    unfilled = {each.operator for each in findings if each.what is Misbehavior.UNFILLED}
    known = {Misbehavior.FAKE: faulty, Misbehavior.UNSTEADY: unfilled}
    return [f for f in findings if f.operator not in known.get(f.what, ())]


def _cut_short(ending: Ending) -> str:
    """Return why the tests ended early, if that is not a finding; else ''."""
    answer = ending.answer
    over = isinstance(answer, Examined) and answer.over
    if ending.how in ("timeout", "late") or over:
        return f"for {SECONDS:.0f} s"
    if error := ending.raised:
        return f"up to {error.type}: {first_line(error.message)}"
    if ending.how == "signal" and not ending.operator:
        return f"up to {signal.Signals(ending.code).name} in another operator"
    return "up to the memory limit" if ending.how == "memory" else ""


def _read(path: Path) -> list[OperatorFinding]:
    """Return the findings of all complete lines in a file."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    return [OperatorFinding.from_line(line) for line in lines if line.endswith("}")]


def _how_it_died(ending: Ending) -> OperatorFinding | None:
    if ending.how != "signal" or not ending.operator:
        return None
    target, node, call = printable(ending.operator).split(" ", 2)
    name = signal.Signals(ending.code).name
    return OperatorFinding(target, Misbehavior.DIES, node.strip("()"), call, error=name)


SCHEMA = 8
"""Schema of the journal's facts about the input program; no other schema is read."""

_INPUT_FACT = "unchanged"

MAX_CALLS = 10
"""Maximum number of calls in a run of a program that mutates its buffers."""


@dataclass(frozen=True)
class InputFailure:
    """The failure of the input program, and the guard pages that show it."""

    base: Baseline
    guarding: Guarding

    def with_failure_shown(self, checks: CheckOptions) -> CheckOptions:
        """Return check options with which the failure shows."""
        return replace(
            self.guarding.apply_to(checks),
            fallback_random=self.base.fallback_random,
            calls=self.base.calls,
            # Seek by kind: in a candidate, another output may be the first to differ.
            sought=self.base.target.kind,
            probe=self.base.probe,
            environment={**checks.environment, **self.base.environment},
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> InputFailure:
        base = Baseline.from_json(data["base"])
        return cls(base, Guarding.from_json(data["guarding"]))


@dataclass(frozen=True)
class InputProgram:
    """The program as its file holds it, and the means to show its failure.

    Attributes:
        described: its graph and description.
        command: the user's own test, or None.
        build: the build of the runs that look for other causes.
        in_one: the whole candidate, if it is tested before the file's program; or None.
    """

    context: RunContext
    client: CheckClient
    described: Described
    command: Command | None
    build: Build
    in_one: WholeCandidate | None = None

    def with_options(self, options: CheckOptions) -> InputProgram:
        """Return this program with the options of the worker."""
        return replace(self, client=replace(self.client, options=options))


def find_input_failure(
    original: InputProgram, advice: Sequence[str] = ()
) -> InputFailure:
    """Reproduce the failure, or return what an earlier session has recorded.

    Args:
        advice: what comes first in the advice if the program does not fail.

    Raises:
        NotReproducible: the program does not fail as asked, or as in its script.
        BudgetExhausted: the time ended before that.
    """
    context = original.context
    known = context.journal.fact(_INPUT_FACT)
    if known is None:
        with prepend_advice([*advice, *context.options.lacking]):
            failure = _reproduce_kind_or_alike(original)
        _require_same_as_script(original, failure.base.target)
        wanted, seen = context.options.until or "", failure.base.target.kind
        if why := explain_other_kind(wanted, seen):
            context.note(f"note: {why}")
        recorded = {
            **asdict(failure),
            "schema": SCHEMA,
            "versions": dict(context.ready.versions),
            "peak_rss_bytes": context.meters["baseline"].peak_rss_bytes,
            "check_s": max(context.budget.check_s, failure.base.seconds),
        }
        context.journal.note(_INPUT_FACT, recorded)
    else:
        require_same_versions(context, known)
        failure = InputFailure.from_json(known)
        meter = context.meters["baseline"]
        meter.peak_rss_bytes = known.get("peak_rss_bytes", 0)
        context.note(f"baseline: {failure.base.target} (from the journal)")
    context.budget.keep(known["check_s"] if known else failure.base.seconds)
    return failure


def _require_same_as_script(original: InputProgram, seen: Signature) -> None:
    """Refuse a failure other than the script's, if no option names a failure.

    Raises:
        FailsDifferently: the failure is another one.
    """
    options = original.context.options
    is_open = not (options.until or options.match or original.command)
    if options.in_script is not None and is_open:
        options.in_script.require(seen, options.lacking)


def has_recorded_failure(journal: Journal) -> bool:
    """Return whether recorded facts depend on the program and its inputs."""
    return any(journal.fact(name) for name in (_INPUT_FACT, "baseline"))


def require_schema(flag: str, known: Mapping[str, Any]) -> None:
    """Refuse facts that another version of shrinkfx has recorded.

    Raises:
        UsageError: another version recorded them.
    """
    if known.get("schema") != SCHEMA:
        raise UsageError(
            f"{flag}: another version of shrinkfx wrote the journal: start a new run "
            "with another --out"
        )


def require_same_versions(context: RunContext, known: Mapping[str, Any]) -> None:
    """Refuse to resume with verdicts that other versions of the software gave.

    Raises:
        UsageError: the earlier session used another machine or another torch.
    """
    flag = f"--resume {context.out}"
    require_schema(flag, known)
    if known["versions"] == dict(context.ready.versions):
        return
    then = ", ".join(f"{k} {v}" for k, v in known["versions"].items())
    raise UsageError(
        f"{flag}: that run used {then}, and its checks do not apply to the versions "
        "installed now: start a new run with another --out"
    )


def _reproduce_kind_or_alike(original: InputProgram) -> InputFailure:
    """Reproduce the failure as asked, or one of a kind that users may mean by it.

    Raises:
        NotReproducible: neither failure occurs.
    """
    context, options = original.context, original.context.options
    try:
        return _reproduce(original)
    except NotReproducible as error:
        wanted, kind = options.until or "", error.kind
        if options.strict_kind or kind == wanted or not looks_alike(wanted, kind):
            raise
        context.note(_ANOTHER_KIND.format(kind, wanted))
        other = context.with_options(replace(options, until=kind))
        return _reproduce(replace(original, context=other))


_ANOTHER_KIND = (
    "every run of the program fails with kind {}, not {}: reducing that failure "
    "(--strict-kind refuses it)"
)


def _reproduce(original: InputProgram) -> InputFailure:
    context, options = original.context, original.context.options
    settings: Sequence[Guarding] = ()
    checks = options.compared(original.client.options)
    original = original.with_options(replace(checks, sought=options.until or ""))
    if original.command is None:
        settings = choose_guard_pages(context)
    if not settings:
        _require_failure(original)
        return InputFailure(_run_unchanged(original), Guarding())
    client, request = original.client, _request(original)
    if original.in_one is not None:
        guarded = find_guarded_baseline(original.in_one, client, request, settings)
        if guarded is not None:
            return InputFailure(*guarded)
        original = replace(original, in_one=None)
    with scratch.make_scratch_folder("package") as folder:
        packages = Packages(folder, on_gpu=settings is ON_GPU)
        guarding = find_guarding(client, request, settings, packages)
        original = original.with_options(guarding.apply_to(original.client.options))
        return InputFailure(_run_unchanged(original, packages), guarding)


def _request(original: InputProgram) -> BaselineRequest:
    context, options = original.context, original.context.options
    return BaselineRequest(
        options.until,
        options.match,
        context.note,
        options.baseline_runs,
        MAX_CALLS if original.described.description.keeps_state else 1,
        context.budget,
        has_guards=context.makes_packages,
    )


def _require_failure(original: InputProgram) -> None:
    """Run once in the cheapest build, if the program may not fail outside its script.

    The user's number of baseline runs takes precedence.
    """
    options, client = original.context.options, original.client
    plain = original.command is None and not options.baseline_runs
    if not options.lacking or not plain or original.context.interprets:
        return
    if original.in_one is not None:
        client = replace(client, input_program=original.in_one.whole)
        client = client.with_options(build=original.in_one.build)
    original.context.note(
        "baseline: running the program once, because it may not fail outside the script"
    )
    require_failure(client, options.until or ANY)


_INTERPRETED = (
    "no CUDA here: Inductor's kernels for {} run on Triton's interpreter, which "
    "checks each access"
)


def _run_unchanged(
    original: InputProgram, packages: Packages | None = None
) -> Baseline:
    """Reproduce the failure of the program as the file holds it.

    Args:
        packages: its compiled packages, with and without guard pages.
    """
    context, client, command = original.context, original.client, original.command
    options = context.options
    if command is None and context.interprets:
        context.note(_INTERPRETED.format(options.arch))
        probes = [Probe(options.probe)] if options.probe else list(Probe)
        request = _request(original)
        return probe_baseline(client, request, probes, ask_all=options.all_probes)
    if command is None:
        return _run_compiled(original, packages)
    context.note(f"baseline: running --check on the input program {RUNS} times")
    if command.takes_inputs:
        seconds = _see_it_fail_flat(original, command)
    else:
        model = options.model.resolve()
        seconds = require_command_failure(command, client, model, None, context.budget)
    return Baseline(command.target, 1.0, False, seconds)


def _run_compiled(original: InputProgram, packages: Packages | None) -> Baseline:
    """Reproduce the failure with AOTInductor.

    On a GPU, that uses the allocator that shows the failure.
    """
    context, options = original.context, original.context.options
    request = _request(original)

    def see(client: CheckClient, packages: Packages | None = None) -> Baseline:
        whole = original.in_one
        if whole and (found := find_whole_candidate_baseline(whole, client, request)):
            return found
        passed = bool(whole and whole.seen and whole.seen.passed)
        return find_baseline(client, request, original.build, packages, passed=passed)

    chosen = is_allocator_chosen(options.environment, os.environ)
    between_zones = original.client.options.guard_pages.has_pages
    if chosen or between_zones or not context.ready.for_cuda:
        return see(original.client, packages)
    return baseline_with_either(see, original.client, context.note, context.budget)


def _see_it_fail_flat(original: InputProgram, command: Command) -> float:
    """Run the command on the program with flat inputs, as candidates take them.

    The user's file may nest them. If the command does not fail, its files remain in the
    folder.
    """
    context, mismatches = original.context, original.described.description.mismatches
    as_exported = original.client.with_options(graph=GraphForm.IN_PLACE)
    client, described = describe_program(context, as_exported, mismatches)
    folder = context.out.resolve()
    program, inputs = folder / "original.pt2", folder / "original_inputs.pt"
    candidate = Candidate.from_skeleton(described.skeleton)
    saved = classify_ending(
        client.ask(SaveCandidate(candidate.to_json(), str(program), str(inputs)))
    )
    if not inputs.exists():
        known = "the program may fail (--check has not run)"
        raise NotCuttable(command.target.kind, known, [saved.in_words])
    seconds = require_command_failure(command, client, program, inputs, context.budget)
    program.unlink()
    inputs.unlink()
    return seconds


_FACT = "baseline"


def load_or_find_subject(context: RunContext) -> Subject:
    """Return the failing program: from the journal, or by reproducing the failure.

    Eager runs once in both cases, because cut values come from its run.

    Raises:
        LoadError: eager cannot run the program.
        NotReproducible: the program does not fail as asked.
        UsageError: the earlier session used another machine or another torch.
    """
    known = context.journal.fact(_FACT)
    if known is None:
        program = reproduce_failure(context)
        if not program.not_tested:  # else a session with more time tests the forms
            context.journal.note(_FACT, _to_json(program))
    else:
        require_same_versions(context, known)
        context.note(f"baseline: {known['target']['text']} (from the journal)")
        context.budget.keep(known["check_s"])
        program = _from_json(context, known)
    # If a session could not test all forms, the last form that was found is cut.
    context.journal.note(PROGRAM, program.whole.skeleton.to_json())
    if context.options.timeout_s is not None:
        return program
    patience = AdaptiveTimeLimit(program.client.limits.timeout_s)
    return replace(program, client=replace(program.client, patience=patience))


def _to_json(program: Subject) -> dict[str, Any]:
    context, client = program.context, program.client
    return {
        "schema": SCHEMA,
        "versions": dict(context.ready.versions),
        "options": asdict(client.options),
        "timeout_s": client.limits.timeout_s,
        "builds": client.builds.to_json(),
        "before": asdict(program.before),
        "target": asdict(program.target),
        "rate": program.rate,
        "guarding": asdict(program.guarding),
        "suspects": [asdict(suspect) for suspect in program.suspects],
        "warnings": program.other_causes.warnings,
        "examined": [asdict(each) for each in program.other_causes.examined],
        "by_what_is_behind": program.short_results,
        "check_s": context.budget.check_s,
        "peak_rss_bytes": context.meters["baseline"].peak_rss_bytes,
    }


def _from_json(context: RunContext, known: Mapping[str, Any]) -> Subject:
    meter = context.meters["baseline"]
    meter.peak_rss_bytes = known.get("peak_rss_bytes", 0)  # unknown to older versions
    builds = dict(known["builds"])
    builds["fallbacks"] = Counter(builds["fallbacks"])
    limits = context.limits(known["timeout_s"])
    options = read_older(CheckOptions, known["options"])
    client = CheckClient(context.worker, limits, options, meter, Builds(**builds))
    client, described = describe_program(context, client)
    causes = OtherCauses(
        mismatches=described.description.mismatches,
        examined=tuple(map(OperatorFinding.from_json, known["examined"])),
        warnings=tuple(known["warnings"]),
    )
    command, cwd = context.options.check, context.options.cwd
    return Subject(
        context=context,
        whole=Candidate.from_skeleton(described.skeleton),
        before=ProgramSize.from_json(known["before"]),
        client=client.with_limits(limits, context.meters["search"]),
        target=Signature.from_json(known["target"]),
        rate=known["rate"],
        command=Command.parse(command, cwd) if command else None,
        guarding=Guarding.from_json(known["guarding"]),
        suspects=tuple(Suspect(**suspect) for suspect in known["suspects"]),
        other_causes=causes,
        short_results=tuple(known["by_what_is_behind"]),
    )


BASELINE_TIMEOUT_S = 600.0
"""Default time limit for a run of the input program, in seconds."""


def reproduce_failure(context: RunContext) -> Subject:
    """Reproduce the failure, and find a graph form that fails and can be cut.

    Raises:
        LoadError: eager cannot run the program.
        NotReproducible: the program does not fail as asked.
        UsageError: the backend does not support an option.
    """
    if not context.interprets:
        _refuse_probes(context.options)
    is_load_error = context.options.until == Kind.LOAD_ERROR
    if is_load_error and context.ready.backend == Backend.INDUCTOR:
        raise UsageError(
            f"--until {Kind.LOAD_ERROR}: torch.compile makes no package, so none can "
            "fail to load: use --backend aoti"
        )
    if context.ready.gpu:
        context.note(f"running on {context.ready.gpu}")
    with _note_missing_failure():
        original, causes = _describe_original(context)
        faults = merge_mismatch_lines(causes.mismatches)
        faults += map(format_finding, causes.examined)
        advice = [_FAULT.format(text) for text in faults]
        unchanged = find_input_failure(original, advice)
    program = _subject(original, unchanged, causes)
    program = _in_a_form_that_fails(program, original)
    in_file, cut = original.described.description.operators, program.before.operators
    if in_file not in (0, cut):
        context.note(_OTHER_COUNT.format(in_file, cut))
    if not context.interprets:
        program = require_any_adjacent_memory(program)
    client = program.client
    client = client.with_limits(client.limits, context.meters["search"])
    return replace(program, client=client)


_FAULT = "correct this first, because it may be the cause: {}"


def _describe_original(context: RunContext) -> tuple[InputProgram, OtherCauses]:
    """Run the input program in eager, and collect causes other than the compiler."""
    limits = context.limits(BASELINE_TIMEOUT_S)
    client = CheckClient(context.worker, limits, meter=context.meters["baseline"])
    check, cwd = context.options.check, context.options.cwd
    command = Command.parse(check, cwd) if check else None
    build = Build.FAST if can_build_fast(context) else Build.STOCK
    client, described = describe_program(context, client)
    examined = examine_operators(context, client, described)
    causes = replace(described.other_causes, examined=examined)
    weights = place_of_weights(build, described.skeleton)
    client = client.with_options(weights=weights)
    for name, reason in context.ready.missing_features.items():
        context.note(f"{name}: {reason}")
    if ignored := context.ready.ignored_options:
        causes = causes.with_warning(_IGNORED.format(", ".join(ignored)))
        context.note(causes.warnings[-1])
    in_one = _choose_whole_candidate(context, described, build)
    return InputProgram(context, client, described, command, build, in_one), causes


def _choose_whole_candidate(
    context: RunContext, described: Described, build: Build
) -> WholeCandidate | None:
    """Return the whole candidate, if it should be tested before the file's program.

    That needs a functional program, and the fast build or torch.compile. If only one
    run is allowed, it is one of the file's program in a fresh process.
    """
    options = context.options
    alone = options.baseline_runs == 1 or options.until == Kind.HANG
    is_jit = context.on_cpu and context.ready.backend == Backend.INDUCTOR
    is_direct = described.description.functional and (build is Build.FAST or is_jit)
    if alone or options.check or not is_direct:
        return None
    return WholeCandidate(Candidate.from_skeleton(described.skeleton), build)


def _subject(
    original: InputProgram, unchanged: InputFailure, causes: OtherCauses
) -> Subject:
    """Combine the program, options that show its failure, and other causes."""
    context, base, described = original.context, unchanged.base, original.described
    limits = context.limits(time_limit(base.seconds))
    shown = context.options.compared(
        unchanged.with_failure_shown(original.client.options)
    )
    client = replace(original.client, options=replace(shown, build=original.build))
    skeleton = described.skeleton
    candidate = Candidate.from_skeleton(skeleton)
    return Subject(
        context=context,
        whole=candidate,
        before=ProgramSize(
            operators=candidate.cost[0],
            nodes=skeleton.original_nodes,
            inputs=described.description.inputs,
            dynamic_dims=described.description.dynamic_dims,
        ),
        client=client.with_limits(limits, context.meters["baseline"]),
        target=base.target,
        rate=base.rate,
        command=original.command,
        guarding=unchanged.guarding,
        other_causes=causes.with_warning(base.warning),
    )


def _in_a_form_that_fails(program: Subject, original: InputProgram) -> Subject:
    """Find a graph form that can be cut, if there is time for that."""
    budget = program.context.budget
    if budget.has(budget.check_s * _FAST):
        with contextlib.suppress(BudgetExhausted):
            return choose_graph_form(program, original.described, original.in_one)
    return replace(program, not_tested=_NO_SEARCH.format(budget.seconds / 60))


_FAST = 0.5
"""Least time of the fast build, as a fraction of the first check's."""

_OTHER_COUNT = (
    "the program has {} operators; shrinkfx reduces an equivalent form with {}"
)
_NO_SEARCH = "the baseline took {:.1f} minutes and left no time for a search"


@contextlib.contextmanager
def _note_missing_failure() -> Iterator[None]:
    """Add to a BudgetExhausted error that the failure was not reproduced yet."""
    try:
        yield
    except BudgetExhausted as spent:
        raise BudgetExhausted(
            f"{spent}\nthe program had not failed by then, so there is no result"
        ) from spent


def _refuse_probes(options: Options) -> None:
    """Refuse options that only the interpreter supports.

    Raises:
        UsageError: such an option is set.
    """
    probes = {"--probe": options.probe, "--all-probes": options.all_probes}
    for name in filter(probes.get, probes):
        raise UsageError(f"{name} only works for CUDA without a GPU: add --device cuda")


_IGNORED = (
    "the interpreter overrides the settings {}: a failure that needs your values does "
    "not show"
)


# Test whether a failure depends on the memory after a storage that is too small.
#
# An operator may return a storage that is smaller than its fake kernel declares.
# Compiled code reads up to the declared end, so it reads adjacent memory, whose
# content differs between processes. A failure that does not depend on that memory
# must not be reduced to one that does, because its repro would pass where the memory
# happens to hold zeros. So checks fill the adjacent memory with known values
# (``checking/check.py`` of the worker). Programs without such operators are not
# tested.


def require_any_adjacent_memory(program: Subject) -> Subject:
    """Require candidates to fail for any adjacent memory, if the input program does.

    Returns:
        The subject with that option; if the input program fails only by chance, the
        subject with the names of the operators.
    """
    context, short = program.context, program.other_causes.short
    if not short or not _may_read_adjacent_memory(program):
        return program
    named = ", ".join(short)
    if context.budget.check_s > context.budget.share():
        context.note(
            "not enough time left: not testing whether the failure depends "
            f"on the memory after the results of {named}"
        )
        return program
    with_tails = program.with_options(tails=short)
    try:
        verdict = oracle_for(with_tails).check(program.whole)
    except BudgetExhausted:
        return program
    if verdict.reproduced:
        context.note(_ANY_MEMORY.format(named))
        return with_tails
    if verdict.outcome is Outcome.UNRESOLVED:
        return program
    context.note(_CHANCE.format(named, cut_text(verdict.observation.in_words, 200)))
    return replace(program, short_results=short)


def _may_read_adjacent_memory(program: Subject) -> bool:
    """Return whether the failure may depend on adjacent memory, and checks can tell.

    With guard pages, an access there would end the process.
    """
    options = program.client.options
    ran = program.target.stage in (Stage.RUN, Stage.COMPARE)
    ours = program.command is None and not program.not_tested
    return ran and ours and options.guard_pages is Guard.OFF


_ANY_MEMORY = (
    "{}: the result's storage is smaller than declared. The program fails with two "
    "contents of the memory after it, so each candidate must fail with both"
)
_CHANCE = (
    "{}: the result's storage is smaller than declared. The failure depends on the "
    "adjacent memory. The result of a run with known values in that memory: {}"
)


logger = logging.getLogger(__name__)


def choose_graph_form(
    program: Subject,
    described: Described,
    in_one: WholeCandidate | None = None,
) -> Subject:
    """Choose the functional form if it fails, else the form with in-place operators.

    The form with inlined ``cond`` comes first, because a ``cond`` counts as one
    operator, whatever its branches hold. Suspects are computed in the chosen form, and
    facts about the other forms are dropped.

    Args:
        in_one: the failure of the whole candidate in the functional form, if it is
            known.

    Raises:
        NotCuttable: the program fails in no form.
    """
    runs = []
    for tried in _attempts(program, described, in_one):
        if tried.subject is not None:
            return tried.subject
        if tried.form is not GraphForm.INLINED_COND:  # that form may pass
            runs += [verdict.observation.in_words for verdict in tried.seen]
    fails = f"the program fails ({program.target})"
    raise NotCuttable(program.target.kind, fails, runs)


def _attempts(
    program: Subject, described: Described, in_one: WholeCandidate | None
) -> Iterator[Attempt]:
    """Try one form after the other, the form that is best to cut first."""
    yield from _attempt_inlined_cond(program, described)
    yield attempt(program, described, in_one)
    program.context.note(
        "the program does not fail without in-place operators: keeping them"
    )
    yield attempt(*_convert_to_form(program, GraphForm.IN_PLACE))


def _attempt_inlined_cond(program: Subject, described: Described) -> Iterator[Attempt]:
    """Try the program with each ``cond`` replaced by the branch that it takes."""
    context, skeleton = program.context, described.skeleton
    if all(skeleton.node(name).target != "cond" for name in skeleton.operators):
        return
    if context.budget.check_s > context.budget.share():
        return  # this form is better to cut, but the others work, too
    try:
        program, inlined = _convert_to_form(program, GraphForm.INLINED_COND)
    except LoadError as error:
        # A program that cannot be written without cond can still be cut with it.
        logger.debug("no form without cond: %s", error)
        return
    if inlined.skeleton.operators == skeleton.operators:
        return  # no cond was inlined, because its branch differs between runs
    tried = attempt(program, inlined)
    if tried.subject is not None:
        context.note(
            "the program also fails without cond: continuing with the branches that "
            "it takes"
        )
    yield tried


def _convert_to_form(program: Subject, form: GraphForm) -> tuple[Subject, Described]:
    """Return the program in another graph form, and the description of that form."""
    known = program.other_causes
    client = program.client.with_options(graph=form)
    client, described = describe_program(program.context, client, known.mismatches)
    here = described.other_causes
    retained = [text for text in known.warnings if not find_eager_error(text)]
    warnings = [*here.warnings, *retained]
    causes = replace(here, examined=known.examined, warnings=tuple(warnings))
    candidate = Candidate.from_skeleton(described.skeleton)
    before = replace(program.before, operators=candidate.cost[0])  # counts of one form
    converted = replace(
        program, client=client, whole=candidate, before=before, other_causes=causes
    )
    return converted, described


_SHOWN = 2
"""Number of suspects, or groups of equally likely ones, that are noted."""


def attempt(
    program: Subject, described: Described, in_one: WholeCandidate | None = None
) -> Attempt:
    """Choose the build in which a graph form fails, and rank its suspects.

    Args:
        described: the description of this form.
        in_one: the known failure of the whole candidate in this form, or None.

    Raises:
        KnownFailure: the program fails because of a bug in ``options.known``.
    """
    checks = program.client.options
    known = in_one.verdict(program.target, checks) if in_one else None
    with scratch.make_scratch_folder("evidence") as folder:
        path = Path(folder) / "evidence.json"
        tried = choose_build(program, evidence=str(path), known=known)
        if tried.subject is None:
            return tried
        traces = Traces.from_line(path.read_text()) if path.exists() else Traces()
    if in_one and known:
        traces = in_one.traces
    leave_out_known_bugs(tried.subject)  # before further checks, for the suspects
    evidence = Evidence.from_traces(traces)
    suspects = _suspects(tried.subject, described, evidence, tried.seen[-1])
    ties = [tie for tie in group_ties(suspects)[:_SHOWN] if tie.is_explained]
    shown = (short_kernels(str(tie)) for tie in ties)
    # Calls in one line of the model read alike.
    for number, line in enumerate(dict.fromkeys(shown)):
        program.context.note(f"further {line}" if number else line)
    return replace(tried, subject=replace(tried.subject, suspects=suspects))


def _suspects(
    program: Subject, described: Described, known: Evidence, seen: Verdict
) -> tuple[Suspect, ...]:
    """Rank operators; run further checks if the evidence does not suffice.

    Args:
        known: the evidence that the failing run has left.
        seen: the verdict of that run.
    """
    input_program, target, failed = program.whole, program.target, seen.observation
    mismatches = described.description.mismatches
    known = replace(
        known,
        text=known.text or failed.log,
        mismatched=tuple(dict.fromkeys(mismatch.within for mismatch in mismatches)),
        stopped=described.description.stopped,
    )
    if program.command is None:
        seconds = failed.seconds / failed.runs
        context = program.context
        arguments = program.client, input_program, target, known, context.note
        known = collect_evidence(*arguments, seconds, context.budget)
    return rank_suspects(known, input_program.skeleton, target)


def can_build_fast(context: RunContext) -> bool:
    """Return whether the options and the device allow the fast build, for CPUs only."""
    options = context.options
    fast = options.build == Build.FAST and options.check is None
    return fast and context.on_cpu and context.makes_packages


def place_of_weights(build: Build, program: Skeleton) -> Weights:
    """Return where a compiled program stores its weights.

    Large weights are stored next to the fast build, which would write them for each
    candidate. The stock build confirms each result with its weights inside.
    """
    nodes = map(program.node, program.graph)
    many = sum(n.nbytes for n in nodes if n.role in FEEDS - {Role.INPUT}) >= MANY_BYTES
    return Weights.BESIDE if many and build is Build.FAST else Weights.INSIDE


def choose_build(
    program: Subject, evidence: str | None = None, known: Verdict | None = None
) -> Attempt:
    """Choose the fast build if it fails, else the stock build if that fails.

    Args:
        evidence: a file for evidence about the culprit operators, or None.
        known: the verdict of the subject's build if it is known; None to run a check.
    """
    form = program.client.options.graph
    with_evidence = program.with_options(evidence=evidence)
    first = known or oracle_for(with_evidence).check(program.whole)
    if first.reproduced:
        chosen = _limit_to_failing_step(program, first)
        return Attempt(form, chosen, (first,))
    if form is GraphForm.INLINED_COND or program.build is Build.STOCK:
        return Attempt(form, None, (first,))  # the inlined form is tried only once
    stock = program.built_stock()
    second = oracle_for(stock.with_options(evidence=evidence)).check(stock.whole)
    if not second.reproduced:
        return Attempt(form, None, (first, second))
    program.context.note(
        "the program does not fail in the fast build: continuing with --build stock"
    )
    return Attempt(form, stock, (first, second))


def _limit_to_failing_step(program: Subject, verdict: Verdict) -> Subject:
    """Build candidates only up to the step that fails, if that step fails alone.

    A failure before the compiler call does not need the compiler. If the compiler
    rejects one file, candidates compile that file alone, provided this shows the
    failure of the input program.
    """
    step = verdict.observation.step
    alone = (Step.LOWERING, Step.WRAPPER, Step.KERNEL)
    if program.build is Build.STOCK or step not in alone:
        return program
    if program.target.kind is not Kind.COMPILE_ERROR:
        return program  # a timeout or a signal may occur at another step
    only = program.with_options(only=step)
    if step == Step.LOWERING:
        return only
    if verdict.observation.seconds > program.context.budget.share():
        return program  # the test may take more time than it saves
    return only if oracle_for(only).check(program.whole).reproduced else program


@dataclass(frozen=True)
class Attempt:
    """The result of testing the program in one graph form.

    Attributes:
        subject: the program in this form and in the build that fails, with the facts
            about this form; None if it fails in no build.
        seen: the verdicts of the builds that were tested, in their order.
    """

    form: GraphForm
    subject: Subject | None
    seen: tuple[Verdict, ...]
