"""Reproduce the failure of the program as its file holds it, once for all sessions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from shrinkfx.check.baseline.guarded_in_one import find_guarded_baseline
from shrinkfx.check.baseline.missing_state import (
    add_missing_state_advice,
    require_failure,
)
from shrinkfx.check.baseline.on_interpreter import probe_baseline
from shrinkfx.check.baseline.recompile import seeds_to_try
from shrinkfx.check.baseline.runs import Packages
from shrinkfx.check.baseline.stock import Baseline, find_baseline
from shrinkfx.check.baseline.whole_candidate import (
    WholeCandidate,
    find_whole_candidate_baseline,
)
from shrinkfx.check.baseline.with_caching import (
    baseline_with_either,
    is_allocator_chosen,
)
from shrinkfx.check.baseline.with_guard_pages import (
    ON_GPU,
    Guarding,
    find_guarding,
)
from shrinkfx.check.client.server import Server
from shrinkfx.check.command import RUNS, Command, require_command_failure
from shrinkfx.check.oracle import CheckClient
from shrinkfx.errors import NotCuttable, NotReproducible, UsageError
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import (
    ANY,
    Signature,
    explain_other_kind,
    looks_alike,
)
from shrinkfx.journal.journal import Journal
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import Backend, Build, GraphForm, Guard, Probe
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.protocol.tasks import SaveCandidate
from shrinkfx.run.context import RunContext
from shrinkfx.run.describing import Described, describe_program
from shrinkfx.run.memory_error import choose_guard_pages
from shrinkfx.system import scratch
from shrinkfx.wording import Flag

SCHEMA = 8
"""Schema of the journal's facts about the input program; no other schema is read."""

_FACT = "unchanged"

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
    server: Server
    client: CheckClient
    described: Described
    command: Command | None
    build: Build
    in_one: WholeCandidate | None = None

    def with_options(self, options: CheckOptions) -> InputProgram:
        """Return this program with the options of the worker."""
        return replace(self, client=replace(self.client, options=options))


def find_input_failure(original: InputProgram) -> InputFailure:
    """Reproduce the failure, or return what an earlier session has recorded.

    Raises:
        NotReproducible: the program does not fail as asked, or as in its script.
        BudgetExhausted: the time ended before that.
    """
    context, server = original.context, original.server
    known = context.journal.fact(_FACT)
    if known is None:
        with add_missing_state_advice(context.options.lacking):
            failure = _reproduce_kind_or_alike(original)
        _require_same_as_script(original, failure.base.target)
        wanted, seen = context.options.until or "", failure.base.target.kind
        if why := explain_other_kind(wanted, seen):
            context.note(f"note: {why}")
        versions = dict(server.ready.versions)
        recorded = {
            **asdict(failure),
            "schema": SCHEMA,
            "versions": versions,
            "peak_rss_bytes": context.meters["baseline"].peak_rss_bytes,
            "check_s": max(context.budget.check_s, failure.base.seconds),
        }
        context.journal.note(_FACT, recorded)
    else:
        require_same_versions(context, server, known)
        failure = InputFailure.from_json(known)
        meter = context.meters["baseline"]
        meter.peak_rss_bytes = known.get("peak_rss_bytes", 0)
        context.note(f"baseline: {failure.base.target} (from the journal)")
    context.budget.keep(known["check_s"] if known else failure.base.seconds)
    return failure


def _require_same_as_script(original: InputProgram, seen: Signature) -> None:
    """Refuse a failure other than the script's, if no option names a failure.

    Raises:
        FailsOtherwise: the failure is another one.
    """
    options = original.context.options
    is_open = not (options.until or options.match or original.command)
    if options.in_script is not None and is_open:
        options.in_script.require(seen, options.lacking)


def has_recorded_failure(journal: Journal) -> bool:
    """Return whether recorded facts depend on the program and its inputs."""
    return any(journal.fact(name) for name in (_FACT, "baseline"))


def require_schema(flag: Flag, known: Mapping[str, Any]) -> None:
    """Refuse facts that another version of shrinkfx has recorded.

    Raises:
        UsageError: another version recorded them.
    """
    if known.get("schema") != SCHEMA:
        raise UsageError(
            flag,
            ": another version of shrinkfx wrote the journal: start a new run with "
            "another ",
            Flag("--out"),
        )


def require_same_versions(
    context: RunContext, server: Server, known: Mapping[str, Any]
) -> None:
    """Refuse to resume with verdicts that other versions of the software gave.

    Raises:
        UsageError: the earlier session used another machine or another torch.
    """
    flag = Flag("--resume", str(context.out))
    require_schema(flag, known)
    if known["versions"] == dict(server.ready.versions):
        return
    then = ", ".join(f"{k} {v}" for k, v in known["versions"].items())
    raise UsageError(
        flag,
        f": that run used {then}, and its checks do not apply to the versions "
        "installed now: start a new run with another ",
        Flag("--out"),
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
        settings = choose_guard_pages(context, original.server.ready)
    if not settings:
        _require_failure(original)
        return InputFailure(_run_unchanged(original), Guarding())
    request = original.client, options.until, options.match
    if original.in_one is not None:
        bounds = options.baseline_runs, context.note, context.budget
        guarded = find_guarded_baseline(original.in_one, *request, *bounds, settings)
        if guarded is not None:
            return InputFailure(*guarded)
        original = replace(original, in_one=None)
    with scratch.make_scratch_folder("package") as folder:
        packages = Packages(folder, on_gpu=settings is ON_GPU)
        note_budget = context.note, context.budget
        guarding = find_guarding(*request, *note_budget, settings, packages)
        original = original.with_options(guarding.apply_to(original.client.options))
        return InputFailure(_run_unchanged(original, packages), guarding)


def _require_failure(original: InputProgram) -> None:
    """Run once in the cheapest build, if a part of the failing script is missing.

    The user's number of baseline runs takes precedence.
    """
    options, client = original.context.options, original.client
    plain = original.command is None and not options.baseline_runs
    on_interpreter = original.server.ready.backend == Backend.INTERPRETER
    if not options.lacking or not plain or on_interpreter:
        return
    if original.in_one is not None:
        client = replace(client, input_program=original.in_one.whole)
        client = client.with_options(build=Build.FAST)
    original.context.note(
        "baseline: running the program once, because something from "
        "the script is missing"
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
    max_calls = MAX_CALLS if original.described.description.keeps_state else 1
    if command is None and original.server.ready.backend == Backend.INTERPRETER:
        context.note(_INTERPRETED.format(options.arch))
        probes = [Probe(options.probe)] if options.probe else list(Probe)
        return probe_baseline(
            client,
            options.until,
            options.match,
            probes,
            context.note,
            ask_all=options.all_probes,
            max_calls=max_calls,
            budget=context.budget,
        )
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
    max_calls = MAX_CALLS if original.described.description.keeps_state else 1
    request = options.until, options.match, options.baseline_runs, context.note
    has_failed = options.in_script is not None
    seeds = seeds_to_try(options.environment, has_failed=has_failed)

    def see(client: CheckClient, packages: Packages | None = None) -> Baseline:
        if original.in_one is not None:
            baseline = find_whole_candidate_baseline(
                original.in_one, client, *request, context.budget
            )
            if baseline is not None:
                return baseline
        extra = max_calls, original.build, context.budget, packages
        return find_baseline(client, *request, *extra, seeds)

    chosen = is_allocator_chosen(options.environment, os.environ)
    between_zones = original.client.options.guard_pages in (Guard.AFTER, Guard.BEFORE)
    if chosen or between_zones or not original.server.ready.for_cuda:
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
