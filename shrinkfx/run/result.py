"""Third phase: write a result and its repro, and run it in a clean environment."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from shrinkfx.check.baseline.with_guard_pages import (
    describe_runs,
    seen_without_guard_pages,
)
from shrinkfx.check.client.server import GUARDED_WORKER, WORKER, Server
from shrinkfx.check.command import Command, runs_of
from shrinkfx.check.oracle import Builds, CheckClient, runs_to_be_sure
from shrinkfx.check.script import ScriptRunner, needs_local_files
from shrinkfx.errors import BudgetExhausted, ShrinkfxError, WorkerError
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.readers import memory
from shrinkfx.failure.readers.memory import RACE, UNINITIALIZED, MemoryReport
from shrinkfx.failure.signature import ANY, MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.options.options import Options
from shrinkfx.preloads.preload_bundle import PreloadBundle
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.names import rename_values, short_names
from shrinkfx.protocol.answers import NotSanitized, Printed
from shrinkfx.protocol.choices import Backend, CandidateForm, Guard, Probe, Weights
from shrinkfx.protocol.requests import (
    CheckCandidate,
    CheckOptions,
    RunScript,
    SaveCandidate,
    WriteCandidate,
)
from shrinkfx.report.header import set_failure_rate
from shrinkfx.report.issue.code import lines_left_out
from shrinkfx.report.issue.plain import strip_values
from shrinkfx.report.output import write_smallest_repro, write_surest
from shrinkfx.report.record import (
    BuildCounts,
    Conditions,
    Failure,
    GuardPages,
    Memory,
    Programs,
    ProgramSize,
    RunRecord,
    Search,
    Spent,
)
from shrinkfx.report.repro_files import EMBEDDED, NoSource, ReproFiles, VerifiedRepro
from shrinkfx.report.running import SAVED
from shrinkfx.report.summary import summarise, write_summary
from shrinkfx.report.tensors import DATA
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.folder import (
    Reduction,
    inherited_variables,
    reduction_from_summary,
    variables_to_test,
)
from shrinkfx.run.observe import is_on_gpu
from shrinkfx.run.preloading import ways_to_carry
from shrinkfx.run.reduction import (
    SearchResult,
    calls_and_rate,
    confirm_without_guard_pages,
    measure_result,
    run_search_stages,
    seen_to_fail_without_guard_pages,
    stop_on_errors,
)
from shrinkfx.search.asker import Asker, Budget, Confirmation
from shrinkfx.search.staged import select_steps_back
from shrinkfx.system import scratch
from shrinkfx.system.atomic_files import DRAFT, draft_of, publish_draft
from shrinkfx.system.output_folder import MINIMAL, MINIMAL_AS_SOURCE


@dataclass(frozen=True)
class Result:
    """The program to report.

    Attributes:
        form: the form that failed: the program, or its printed source.
        seen: the failure that the candidate showed; None if it passes.
        no_source: why it is not to be tried as source; None if it is.
        rate: the fraction of its runs that fail.
        memory: the facts about a memory error.
        stopped: why the search ended early, or ''.
        at_passing: it fails on the inputs on which it must pass, and only they count.
    """

    candidate: Candidate
    form: str
    seen: Signature | None
    no_source: NoSource | None = None
    rate: float = 1.0
    memory: Memory = field(default_factory=Memory)
    stopped: str = ""
    at_passing: bool = False


def with_baseline(context: RunContext, server: Server, program: Subject) -> RunRecord:
    """Return a new record with the facts of the baseline."""
    options, checks = context.options, program.client.options
    interpreted = server.ready.backend == Backend.INTERPRETER
    until, rate = options.until or ANY, program.rate
    target, guarding = program.target, program.guarding
    return RunRecord(
        Failure(target, target, until, rate, rate, program.calls),
        Programs(program.before, program.before, cut=program.whole.cost[0]),
        command=_command(options),
        versions=server.ready.versions,
        missing_features=server.ready.missing_features,
        conditions=Conditions(
            environment=_environment(server, options, checks),
            inductor={**options.inductor, **checks.inductor},
            reference=checks.reference,
            strict=options.strict,
            interpreted_for=options.arch if interpreted else "",
            short_results=program.short_results,
        ),
        other_causes=program.other_causes,
        suspects=program.suspects,
        guard_pages=GuardPages(guarding.name, guarding.without_guards),
    )


def _environment(
    server: Server, options: Options, checks: CheckOptions
) -> dict[str, str]:
    """Return the environment variables of the failing run, without empty ones."""
    merged = {
        **inherited_variables(),
        **server.ready.environment,
        **options.environment,
        **checks.environment,
    }
    return {name: value for name, value in merged.items() if value}


def _command(options: Options) -> str:
    """Return the command that started the run; with ``--anonymous``, without names."""
    command = options.command or f"shrinkfx.minify({options.model.name!r})"
    return strip_values(command) if options.anonymous else command


def with_result(record: RunRecord, result: Result) -> RunRecord:
    """Add the facts about the program that is to be reported."""
    failure, after = record.failure, ProgramSize(result.candidate.cost[0])
    seen = result.seen or failure.target
    return replace(
        record,
        failure=replace(failure, seen=seen, rate_after=result.rate),
        programs=replace(record.programs, after=after),
        conditions=replace(
            record.conditions,
            runs=1 if result.memory.loop > 1 else runs_to_be_sure(result.rate),
            at_passing=result.at_passing,
        ),
        memory=result.memory,
        search=replace(record.search, stopped=result.stopped),
    )


def with_printed(record: RunRecord, program: Subject, printed: Printed) -> RunRecord:
    """Add the worker's description of the printed program."""
    conditions, inductor = record.conditions, dict(record.conditions.inductor)
    if printed.random and program.client.options.fallback_random:
        inductor["fallback_random"] = True
    return replace(
        record,
        programs=replace(
            record.programs,
            after=ProgramSize(
                printed.operators, printed.nodes, printed.inputs, printed.dynamic_dims
            ),
            targets=printed.targets,
            renamed=printed.renamed,
        ),
        conditions=replace(
            conditions,
            inductor=inductor,
            random=printed.random,
            limits=tuple((rtol, atol) for rtol, atol in printed.limits),
            keeps_state=printed.mutates,
            passes=printed.passes,
            gpu=printed.gpu,
        ),
    )


def before_verifying(
    context: RunContext,
    server: Server,
    program: Subject,
    result: Result,
    printed: Printed,
) -> RunRecord:
    """Return a record with all facts that a repro is written from."""
    record = with_result(with_baseline(context, server, program), result)
    return with_printed(record, program, printed)


def with_end(
    record: RunRecord, context: RunContext, state: SearchResult, builds: Builds
) -> RunRecord:
    """Add the end of the search, and the cost of the run so far."""
    searches, target = [each.search for each in state.all], record.failure.target
    facts = state.minimal, state.rest, state.collect_other_failures(target), state.kinds
    return replace(
        record,
        search=Search(state.stopped, *facts),
        spent=Spent(
            outcomes=[str(v.outcome) for search in searches for v in search.verdicts()],
            cached=sum(search.cached for search in searches),
            seconds=context.budget.seconds,
            cpu_seconds=context.cpu_seconds(),
            builds=BuildCounts(**builds.to_json()),
            jobs=context.jobs,
        ),
    )


def conclude(context: RunContext, record: RunRecord, reduced: Candidate) -> Reduction:
    """Write ``summary.json``, and return the result of the run."""
    summary = summarise(record)
    write_summary(context.out, summary)
    failure = record.failure
    return reduction_from_summary(
        context.out, summary, reduced, failure.target, failure.seen
    )


@dataclass(frozen=True)
class VerifiedResult:
    """The result in the output folder, with its verified repro.

    Attributes:
        subject: the input program, with the number of calls that the result needs.
        record: the record of the run, with the verified repro.
    """

    subject: Subject
    result: Result
    record: RunRecord

    @property
    def verified(self) -> VerifiedRepro:
        """The repro, and the counts of its runs."""
        return self.record.verified


def move_result(
    result: VerifiedResult, folder: Path, out: Path, before: VerifiedResult | None
) -> VerifiedResult:
    """Replace the files in the output folder by those that were verified in another.

    Args:
        before: the result in the output folder, if there is one.
    """
    files = sorted(folder.iterdir(), key=lambda file: file.name == "repro.py")
    for file in files:
        shutil.copyfile(file, draft_of(out / file.name))
    (out / "repro.py").unlink(missing_ok=True)  # it needs the files replaced below
    for file in files:
        publish_draft(out / file.name)
    if before is not None:
        old = before.verified.written
        user_files = {file.resolve() for file in old.carried.files.values()}
        obsolete = {file.name for file in old.files} - {file.name for file in files}
        for name in obsolete:
            if (out / name).resolve() not in user_files:  # keep the user's preloads
                (out / name).unlink(missing_ok=True)
    written = result.verified.written
    written = replace(written, files=tuple(out / file.name for file in written.files))
    verified = replace(result.verified, written=written)
    return replace(result, record=replace(result.record, verified=verified))


def result_of(
    program: Subject, state: SearchResult, candidate: Candidate, rate: float
) -> Result:
    """Return the facts about a program that is to be reported."""
    reducer = state.reducer
    of_result = candidate is reducer.best
    return Result(
        candidate=candidate,
        form=reducer.asker.form,
        seen=reducer.asker.find_signature(candidate) or program.target,
        no_source=NoSource.PASSES if of_result and not state.printable else None,
        rate=rate,
        stopped=state.stopped,
    )


_SANITIZE_TIMEOUT_S = 600.0

_CHECKS = 4
"""Minimum time for an optional check, as a number of checks."""

_SHORT = "not run: not enough time was left"


def analyze_memory_error(
    context: RunContext,
    client: CheckClient,
    target: Signature,
    candidate: Candidate,
    form: str,
    known: str = "",
    *,
    on_gpu: bool = False,
) -> Memory:
    """Find out whether a result fails without guard pages, and in which kernel.

    Args:
        known: how it fails without guard pages in every run, if that is known.
        on_gpu: it runs on a GPU, where a sanitizer reports any illegal access.
    """
    memory = _without_guard_pages(context, client, target, candidate, form, known)
    memory = replace(memory, on_gpu=on_gpu)
    if not (memory.without_guards or (on_gpu and _is_of_the_run(target))):
        return memory
    if not context.budget.has(_CHECKS * context.budget.pace_s):
        return replace(memory, no_report=_SHORT)
    client = for_verifying(context, client, form)
    context.note(f"running the reduced program under {memory.sanitizer}")
    report, why = _sanitized(client, candidate, on_gpu=on_gpu)
    context.note(f"{memory.sanitizer}: {report or why}")
    return replace(memory, report=report, no_report=why)


def _without_guard_pages(
    context: RunContext,
    client: CheckClient,
    target: Signature,
    candidate: Candidate,
    form: str,
    known: str,
) -> Memory:
    """Find out whether a result fails without guard pages, if they may matter."""
    if client.options.guard_pages is Guard.OFF or not _is_of_the_run(target):
        return Memory()
    if known:
        return Memory(Guard.OFF, known)
    pages = client.options.guard_pages
    if not context.budget.has(_CHECKS * context.budget.pace_s):
        return Memory(pages, no_report=_SHORT)
    client = for_verifying(context, client, form)
    seen = seen_without_guard_pages(client, target, candidate)
    plain = describe_runs(seen)
    if target.admits(seen[-1].signature):
        return Memory(Guard.OFF, plain)
    silent = "does not fail" if seen[-1].is_conclusive else "is inconclusive"
    context.note(f"without guard pages the reduced program {silent}: {plain}")
    return Memory(pages, plain)


def _is_of_the_run(target: Signature) -> bool:
    return target.kind in (Kind.IMA, Kind.CRASH) and (
        target.detail in (MEMORY_FAULT, UNINITIALIZED, RACE)
        and target.stage is Stage.RUN
    )


def for_verifying(context: RunContext, client: CheckClient, form: str) -> CheckClient:
    """Return a client for this form whose checks count as verification."""
    client = client.with_options(form=CandidateForm(form))
    return client.with_limits(client.limits, context.meters["verify"])


def _sanitized(
    client: CheckClient, candidate: Candidate, *, on_gpu: bool
) -> tuple[MemoryReport | None, str]:
    """Run a candidate once under AddressSanitizer, or a tool for GPUs.

    Returns:
        The report, or None and the reason.
    """
    limits = replace(client.limits, timeout_s=_SANITIZE_TIMEOUT_S)
    client = replace(client, patience=None).with_limits(limits, client.meter)
    client = client.with_options(only=None, weights=Weights.INSIDE)
    guard = client.options.guard_pages
    tool = guard if guard.is_sanitizer else Guard.MEMCHECK
    pages = tool if on_gpu else Guard.OFF
    try:
        ending = client.with_options(guard_pages=pages, sanitize=not on_gpu).ask(
            CheckCandidate(candidate.to_json()), fresh=True
        )
    except WorkerError as error:
        return None, str(error.reason)
    except BudgetExhausted:
        return None, _SHORT
    if isinstance(ending.answer, NotSanitized):
        return None, ending.answer.why
    report = (memory.parse_sanitizer_report if on_gpu else memory.parse_asan_report)(
        ending.log
    )
    seen = classify_ending(ending)
    no_report = seen.unresolved or f"no report; outcome of the run: {seen.in_words}"
    return report, "" if report else no_report


class NotWritten(WorkerError):
    """The worker lives, but cannot write this result; it may write another one."""


def write_result(context: RunContext, client: CheckClient, result: Result) -> Printed:
    """Save and print the result in the output folder.

    Raises:
        NotWritten: the worker cannot save or print it.
        WorkerError: no process could be started for this.
    """
    client = for_verifying(context, client, result.form)
    program, data = (context.out / name for name in (MINIMAL, DATA))
    saved, values = (str(draft_of(path).resolve()) for path in (program, data))
    renamed = with_short_names(result.candidate)
    anonymous = context.options.anonymous
    task = WriteCandidate(
        *(renamed.to_json(), saved, values),
        anonymous=anonymous,
        at_passing=result.at_passing,
    )
    ending = client.ask(task)
    printed = ending.answer
    if not isinstance(printed, Printed):
        raise NotWritten("the result could not be written", ending.log[-2000:])
    if printed.is_source_archive:
        if printed.source is None:
            raise NotWritten("the result has no source code", ending.log[-2000:])
        as_saved, program = program, context.out / MINIMAL_AS_SOURCE
        draft_of(as_saved).replace(draft_of(program))
        context.note(
            "torch.export.save cannot save the reduced program: "
            f"{program.name} holds its source code and tensors"
        )
    for path in (program, data):
        publish_draft(path)
    other = MINIMAL if printed.is_source_archive else MINIMAL_AS_SOURCE
    (context.out / other).unlink(missing_ok=True)
    return replace(printed, renamed=by_first_names(result.candidate, printed))


def by_first_names(candidate: Candidate, printed: Printed) -> Mapping[str, str]:
    """Map the names before ``with_short_names`` to those that the repro uses."""
    if candidate.listing is None:
        return printed.renamed
    short = short_names(candidate.listing).values[candidate.listing.main.name]
    names = {
        each.name: short[each.spelling].removeprefix("self.")
        for each in candidate.listing.given
    }
    return {old: printed.renamed.get(new, new) for old, new in names.items()}


def with_short_names(candidate: Candidate) -> Candidate:
    """Give a printed program short names for readers; the search keeps its own."""
    if candidate.listing is None:
        return candidate
    listing = rename_values(candidate.listing, short_names(candidate.listing))
    return replace(candidate, listing=listing)


def verify_result(
    context: RunContext,
    server: Server,
    program: Subject,
    result: Result,
    printed: Printed,
) -> RunRecord:
    """Write the simplest repro that fails, and run it in empty folders.

    If the repro of a memory error does not fail in every run, write forms that are more
    likely to fail. A repro gets guard pages only if no other form fails in every run.
    """
    record = verify_as_is(context, server, program, result, printed)
    unguarded, script = record.verified, record.verified.written.files[0]
    is_of_layout = _is_of_layout(record, server) and not needs_local_files(script)
    if is_of_layout:
        record = _made_surer(context, server, program, result, record)
    verified, pages = record.verified, program.client.options.guard_pages
    if verified.always_fails or not verified.runs:
        return record  # all runs were inconclusive
    if pages == result.memory.guard:
        return record
    # Whether a heap overflow is noticed depends on the layout of the whole heap.
    context.note(
        "the repro does not fail in every run: writing and running a repro with guard "
        "pages"
    )
    known = filter(None, [result.memory.without_guards, _describe_runs(unguarded)])
    memory = replace(result.memory, guard=pages, without_guards="; ".join(known))
    result = replace(result, memory=memory)
    printed = write_result(context, program.client, result)  # its data may be removed
    return verify_as_is(context, server, program, result, printed)


def _made_surer(
    context: RunContext,
    server: Server,
    program: Subject,
    result: Result,
    record: RunRecord,
) -> RunRecord:
    """Write repros of a memory error that are more likely to fail in a process.

    The last form states its rate, and is written only if no guard pages follow.
    """
    pages = program.client.options.guard_pages
    for form in _surer(result, may_be_unsure=pages == result.memory.guard):
        if record.verified.always_fails or not record.verified.runs:
            break
        if not context.budget.has(INDEPENDENT_RUNS * context.budget.pace_s):
            break
        context.note(_MAKING_SURER.format(_describe_runs(record.verified)))
        variant = replace(result, memory=form)
        try:
            printed = write_result(
                context, program.client, variant
            )  # its data may be removed
            record = verify_as_is(context, server, program, variant, printed)
        except BudgetExhausted:
            break
    return record


def _surer(result: Result, *, may_be_unsure: bool) -> list[Memory]:
    """Return settings that make a memory error more likely, the simplest first."""
    calls = max(_CALLS, runs_to_be_sure(result.rate))
    looped = replace(result.memory, loop=calls)
    unsure = [replace(looped, unsure=True)] if may_be_unsure else []
    return [looped, replace(looped, heap_checked=True), *unsure]


_CALLS = 100

_MAKING_SURER = (
    "the repro of this memory error does not fail in every process ({}): writing a "
    "repro that is more likely to fail"
)

INDEPENDENT_RUNS = 10
"""A repro that fails in half of all processes would fail in three of three runs with a
probability of 1/8, and in ten of ten with 1/1024.
"""


def _independent_runs(record: RunRecord, server: Server) -> int:
    """Return how many runs need a new interpreter; 0 if forks suffice."""
    if _is_of_layout(record, server):
        return INDEPENDENT_RUNS
    is_flaky = record.failure.rate_after < 1.0
    return _FLAKY_RUNS if is_flaky and _is_on_cpu(server) else 0


_FLAKY_RUNS = 3


def _is_on_cpu(server: Server) -> bool:
    return server.ready.backend == Backend.AOTI and not server.ready.for_cuda


def _is_of_layout(record: RunRecord, server: Server) -> bool:
    """Return whether the memory layout of a process may decide if a repro fails.

    It does not on a GPU, which has its own memory, nor for a null pointer, because
    nothing is ever mapped near address 0.
    """
    memory, failure = record.memory, record.signature
    ran = failure.stage in (Stage.RUN, Stage.COMPARE, Stage.DONE)
    is_null = memory.report is not None and memory.report.is_of_null
    of_heap = failure.detail == MEMORY_FAULT and memory.guard is Guard.OFF
    return of_heap and ran and not is_null and _is_on_cpu(server)


def _describe_runs(verified: VerifiedRepro) -> str:
    counts = f"{verified.failed} of {verified.runs}"
    return f"run as a script it fails in {counts} runs"


def verify_as_is(
    context: RunContext,
    server: Server,
    program: Subject,
    result: Result,
    printed: Printed,
) -> RunRecord:
    """Write the simplest repro that fails, with the result's guard pages, and run it.

    The repro runs three times: once when it is written, and twice more. One of the
    three runs in a fresh process, the first one if later ones can reuse what it
    compiles. If the memory layout may decide, there are ten runs, each in a fresh
    process. For a flaky failure on the CPU, each of the three runs is in a fresh
    process. With little time left there are fewer runs, but at least one.
    """
    context.note("writing repro.py and running it in an empty folder")
    record = before_verifying(context, server, program, result, printed)
    # In a clean environment, the script itself must set what matters.
    side = result.memory.guard
    worker = WORKER if side == Guard.OFF else GUARDED_WORKER
    guarded_gpu = side != Guard.OFF and server.ready.for_cuda
    device = ("cuda",) if guarded_gpu else ()
    with context.bare_server(server.ready.backend, worker, *device) as bare:
        meter = context.meters["verify"]
        probe = program.client.options.probe or Probe.REAL
        is_of_layout = _is_of_layout(record, server)
        runner = ScriptRunner(
            *(bare, program.client.limits, meter, probe, side, context.note),
            afresh_first=_is_compiled(record.signature, server.ready.backend),
            build=program.build,
            independent=_independent_runs(record, server),
            measures_rate=result.memory.unsure,
        )
        limits = program.client.limits
        fails = partial(_seems_to_fail, runner, context.out, printed, record, result)
        ways = ways_to_carry(context, server, bare, limits, printed, record, fails)
        variables = variables_to_test(context.options.environment)
        if not context.budget.has((len(variables) + 2) * context.budget.pace_s):
            variables = []
        # A printed program is not embedded: the search has an earlier one to verify.
        as_source = not printed.unprintable and result.no_source is None
        listed = result.candidate.listing is not None and as_source
        written = write_smallest_repro(
            *(context.out, printed, record, ways, runner, variables),
            embedded=() if listed else None,
            no_source=result.no_source,
        )
        again = runner.run_again(written.files, record.signature, context.budget)
    counts = count_runs(context, [written.fails, *again])
    script = written.files[0]
    if is_of_layout and counts[0] and not needs_local_files(script):
        text = set_failure_rate(
            script.read_text(encoding="utf-8"), counts[1], counts[0]
        )
        draft_of(script).write_text(text, encoding="utf-8")
        publish_draft(script)
    log = runner.logs[-1] if runner.logs else ""
    above = lines_left_out(written.files[0].read_text(encoding="utf-8"))
    verified = VerifiedRepro(written, *counts, log, above)
    return replace(record, verified=verified)


def _seems_to_fail(
    runner: ScriptRunner,
    folder: Path,
    printed: Printed,
    record: RunRecord,
    result: Result,
    choice: PreloadBundle,
) -> bool | None:
    """Return whether the result fails with preloads that are carried in some way."""
    with tempfile.TemporaryDirectory(prefix=DRAFT, dir=folder) as draft:
        path = Path(draft) / "repro.py"
        program = path, folder, printed, record, choice
        written = write_surest(*program, result.no_source)
        return runner.seems_to_fail(written.files, record.signature)


def _is_compiled(failure: Signature, backend: str) -> bool:
    """Return whether a script compiles its whole program before it fails this way."""
    before = (Stage.REBUILD, Stage.EAGER, Stage.COMPILE)
    return backend == Backend.AOTI and failure.stage not in before


def count_runs(
    context: RunContext, failed: Sequence[bool | None], what: str = "the repro"
) -> tuple[int, int]:
    """Return the number of conclusive runs, and the number of those that failed."""
    answered = [each for each in failed if each is not None]
    if silent := len(failed) - len(answered):
        context.note(
            f"{silent} of {len(failed)} runs of {what} were inconclusive and are not "
            "counted"
        )
    return len(answered), sum(answered)


def reserve_time_for_repro(budget: Budget) -> None:
    """Reserve time to write a program and run its repro, even beyond the limit."""
    budget.guarantee_seconds(_CHECKS_TO_RUN * budget.check_s + _TO_WRITE_S)


@dataclass(frozen=True)
class ReproMaker:
    """Writes a candidate and its repro, and verifies that the repro fails."""

    server: Server
    subject: Subject
    found: SearchResult

    def check_s(self, budget: Budget, candidate: Candidate) -> float:
        """Return the expected seconds of a check of a candidate."""
        is_full = candidate.cost >= self.subject.whole.cost
        return budget.check_s if is_full else budget.pace_s

    def has_time_for_source(self, budget: Budget, candidate: Candidate) -> bool:
        """Return whether there is time to try the repro as source."""
        return budget.has(_CHECKS_FOR_SOURCE * self.check_s(budget, candidate))

    def make(
        self, context: RunContext, candidate: Candidate, *, must: bool
    ) -> VerifiedResult:
        """Write a candidate and its repro, and verify that the repro fails.

        Args:
            must: if the time limit ends the runs as source, run a repro that embeds the
                program instead, beyond the limit.
        """
        state, budget = self.found, context.budget
        calls, rate = calls_and_rate(context, self.subject, state, candidate)
        program = self.subject.with_options(calls=calls)
        result = result_of(program, state, candidate, rate)
        known = seen_to_fail_without_guard_pages(context, candidate, result.form)
        details = program.target, candidate, result.form, known
        on_gpu = is_on_gpu(self.server.ready)
        client = program.built_as(state.reducer.asker.build).client
        memory = analyze_memory_error(context, client, *details, on_gpu=on_gpu)
        at_run_time = program.target.stage is Stage.RUN and not program.command
        if context.options.cuda_coredump and on_gpu and at_run_time:
            leave_core_dump(context, program.client, candidate, result.form)
        if state.without_guard_pages:
            memory = replace(memory, guard=Guard.OFF)
        result = replace(result, memory=memory)
        printed = write_result(context, program.client, result)
        if not result.no_source and not self.has_time_for_source(budget, candidate):
            context.note(
                "not enough time left: repro.py will embed the program "
                "instead of its source"
            )
            result = replace(result, no_source=NoSource.NO_TIME)
        try:
            return self._run(context, program, result, printed)
        except BudgetExhausted:
            if result.no_source or printed.unprintable or not must:
                raise
            reserve_time_for_repro(budget)
            result = replace(result, no_source=NoSource.NO_TIME)
            return self._run(context, program, result, printed)

    def _run(
        self, context: RunContext, program: Subject, result: Result, printed: Printed
    ) -> VerifiedResult:
        """Write the repro of a result that is saved and printed, and run the repro."""
        arguments = context, self.server, program, result, printed
        if program.command:
            record = verify_by_command(*arguments)
        elif self.found.without_guard_pages:
            record = verify_as_is(*arguments)
        else:
            record = verify_result(*arguments)
        return VerifiedResult(program, result, record)


_CHECKS_TO_RUN, _TO_WRITE_S = 2, 30.0
"""Time to write a program, start a process and run the repro there: a number of checks
of the input program, plus seconds.
"""

_CHECKS_FOR_SOURCE = 3
"""Maximum number of runs of a repro that is source: with seeded inputs, and with saved
inputs if those do not fail. A repro that embeds the program takes one run.
"""


FOLDER = "cuda-core"
"""A subfolder of the output folder."""

_OMITTED = "nonrelocated_elf_images global_memory shared_memory local_memory"
"""Parts that are not dumped: they take gigabytes. The host process is not dumped
either, because its own exit is known.
"""


def core_dump_variables(folder: Path) -> dict[str, str]:
    """Return the environment variables that make CUDA write core dumps to a folder.

    CUDA reads them when it starts.
    """
    omitted = [*_OMITTED.split(), "constbank_memory", "abort"]
    return {
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1",
        "CUDA_COREDUMP_FILE": f"{folder}/core.%p",
        "CUDA_COREDUMP_GENERATION_FLAGS": ",".join(f"skip_{name}" for name in omitted),
    }


def leave_core_dump(
    context: RunContext, client: CheckClient, candidate: Candidate, form: str
) -> Path | None:
    """Run a result once with CUDA core dumps, and return the path of the dump.

    Returns:
        The dump; None if CUDA wrote none, with a note that says why.
    """
    folder = context.out.resolve() / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    options = client.options
    # A sanitizer is a debugger of its own, and takes the faults.
    pages = Guard.OFF if options.guard_pages.is_sanitizer else options.guard_pages
    client = for_verifying(context, client.with_stock_build(), form).with_options(
        guard_pages=pages,
        environment={**options.environment, **core_dump_variables(folder)},
    )
    context.note("running the reduced program for a CUDA core dump")
    try:
        seen = classify_ending(client.ask(CheckCandidate(candidate.to_json()))).in_words
    except (WorkerError, BudgetExhausted) as error:
        seen = str(error)
    dumps = sorted(folder.iterdir())
    if not dumps:
        folder.rmdir()
        context.note(f"CUDA wrote no core dump; the reduced program: {seen}")
        return None
    context.note(
        f"CUDA core dump; to open it: cuda-gdb -ex 'target cudacore {dumps[0]}'"
    )
    return dumps[0]


INPUTS = "minimal_inputs.pt"
"""The file that replaces ``{inputs}`` in the command after the run."""


@dataclass(frozen=True)
class CommandRunner:
    """Runs a repro, which writes a ``.pt2`` file, and then the command on that file.

    Attributes:
        stranger: runs the repro in an environment without shrinkfx's settings.
        client: runs the command as the search did.
    """

    command: Command
    stranger: CheckClient
    client: CheckClient
    inputs: Path

    def fails(
        self, files: Sequence[Path], target: Signature, *, is_likely: bool = True
    ) -> bool | None:
        """Return whether the command fails on the repro's program; None if unknown.

        Args:
            is_likely: ignored, because the command runs in any case.
        """
        with scratch.make_scratch_folder("repro") as folder:
            for file in files:
                shutil.copy(file, folder)
            script, program = Path(folder) / files[0].name, Path(folder) / SAVED
            ran = classify_ending(self.stranger.ask(RunScript(str(script), folder)))
            if not program.exists():
                return False if ran.is_conclusive else None
            seen = self.command.run(self.client, program, self.inputs)
        return target.admits(seen.signature) if seen.is_conclusive else None


def verify_by_command(
    context: RunContext,
    server: Server,
    program: Subject,
    result: Result,
    printed: Printed,
) -> RunRecord:
    """Run the command on ``minimal.pt2``, and write a repro that creates that program.

    A repro is removed if the command does not fail on its program.
    """
    assert program.command is not None
    context.note("writing repro.py and running --check on the program that it saves")
    limits = program.client.limits
    takes_inputs = program.command.takes_inputs
    with scratch.make_scratch_folder("inputs") as folder:
        inputs = (context.out if takes_inputs else Path(folder)).resolve() / INPUTS
        client = for_verifying(context, program.client, result.form)
        saved = f"{folder}/model.pt2", str(inputs)
        client.ask(SaveCandidate(result.candidate.to_json(), *saved))
        with context.bare_server(Backend.AUTO) as bare:
            meter = context.meters["verify"]
            stranger = CheckClient(bare, limits, meter=meter)
            runner = CommandRunner(program.command, stranger, client, inputs)
            record = before_verifying(context, server, program, result, printed)
            inputs_name = INPUTS if takes_inputs else ""
            conditions = replace(record.conditions, inputs=inputs_name)
            record = replace(record, conditions=conditions)
            ways = ways_to_carry(context, server, bare, limits, printed, record)
            variables = variables_to_test(context.options.environment)
            written = write_smallest_repro(
                *(context.out, printed, record, ways, runner, variables),
                no_source=result.no_source,
            )
            if not written.fails:
                written.files[0].unlink()
                written = ReproFiles((context.out / "minimal.pt2",), EMBEDDED)
        path = (context.out / "minimal.pt2").resolve()
        runs = runs_of(program.command, client, path, inputs, context.budget)
    if takes_inputs:
        written = replace(written, files=(*written.files, context.out / INPUTS))
    failed = [
        program.target.admits(s.signature) if s.is_conclusive else None for s in runs
    ]
    verified = VerifiedRepro(written, *count_runs(context, failed, "--check"))
    return replace(record, verified=verified)


class Verification:
    """Finds the smallest program whose repro fails in every run, as far as time allows.

    Args:
        reserve_s: seconds that the search must leave for what follows.
    """

    def __init__(
        self,
        context: RunContext,
        server: Server,
        program: Subject,
        state: SearchResult,
        reserve_s: float,
    ) -> None:
        self._context, self._program = context, program
        self._state, self._reserve_s = state, reserve_s
        self._maker = ReproMaker(server, program, state)
        self._first = state.reducer.best
        self._first_done = False
        self._backtracked = self._cut_short = False
        self._saved: VerifiedResult | None = None

    def run(self) -> VerifiedResult:
        """Write and verify the result, or an earlier step if that does not succeed."""
        reserve_time_for_repro(self._context.budget)
        is_open = self._state.search.is_open or self._state.without_guard_pages
        if is_open and not self._state.stopped:
            self._run_open_stages()
        confirmed = self._confirm()
        if not confirmed and self._state.without_guard_pages:
            self._context.note(_PAGES)
            self._state.without_guard_pages = False
            reserve_time_for_repro(self._context.budget)
            confirmed = self._confirm()
        saved = self._verify_in_place()
        if confirmed and not saved.verified.always_fails:
            with self._stop_at_budget():
                saved = self._find_earlier_step(saved)
        elif confirmed and self._state.stopped != saved.result.stopped:
            saved = self._rewrite_as_stopped(saved)
        elif self._cut_short and not saved.verified.always_fails:
            saved = self._verify_input_program(saved)
        self._state.calls, self._state.rate = saved.subject.calls, saved.result.rate
        return saved

    def _run_open_stages(self) -> None:
        """Run the remaining search stages, unless the result's repro covers them.

        If candidates must fail without guard pages, test that as well: the repro has
        none.
        """
        context, state, before = self._context, self._state, self._state.reducer
        reduced = before.best
        is_shown = False
        with self._stop_at_budget():
            is_shown = self._shows_all(reduced)
        if is_shown or state.stopped:
            return
        if state.search.is_open:
            context.note(_OPEN_STAGES)
        context.budget.reserve_s, context.budget.overtime_s = self._reserve_s, 0.0
        with stop_on_errors(context, state):
            run_search_stages(context, self._program, state)
            if state.without_guard_pages:
                self._confirm_plainly()
        if state.reducer is not before or state.reducer.best is not reduced:
            (context.out / "repro.py").unlink(missing_ok=True)  # of another result
            self._first, self._saved = state.reducer.best, None
        reserve_time_for_repro(context.budget)

    def _confirm_plainly(self) -> None:
        """Continue with the step that fails without guard pages, if there is one."""
        context, program, state = self._context, self._program, self._state
        reduced = state.reducer.best
        state.without_guard_pages = confirm_without_guard_pages(
            context, program, state.search
        )
        if state.reducer.best is not reduced:
            state.forget(program)
            measure_result(context, program, state)

    def _shows_all(self, candidate: Candidate) -> bool:
        """Return whether the result's repro fails, in the form and build of each stage.

        A repro that is not source for lack of time counts, because the stages would
        lack time, too.
        """
        if not self._make_confirmation().confirms(candidate):
            return False
        verified, budget = self._verify_in_place().verified, self._context.budget
        is_source = verified.written.is_source and self._state.printable
        can_be = self._state.printable and self._maker.has_time_for_source(
            budget, candidate
        )
        return verified.always_fails and (is_source or not can_be)

    def _made(self, context: RunContext, candidate: Candidate) -> VerifiedResult:
        return self._maker.make(context, candidate, must=self._saved is None)

    def _verify_input_program(self, saved: VerifiedResult) -> VerifiedResult:
        """Verify the input program's repro, if time was short for earlier steps."""
        reducer, input_program = self._state.reducer, self._state.search.history[0]
        if reducer.best is input_program:
            return saved
        reserve_time_for_repro(self._context.budget)
        with contextlib.suppress(BudgetExhausted):
            return self._restart_if_verified(input_program) or saved
        return saved

    def _verify_in_place(self) -> VerifiedResult:
        """Verify the result in the output folder, unless that has been done."""
        reduced = self._state.reducer.best
        if self._saved is None or self._saved.result.candidate != reduced:
            self._saved = self._made(self._context, reduced)
        return self._saved

    def _find_earlier_step(self, saved: VerifiedResult) -> VerifiedResult:
        """Find an earlier step whose repro always fails, because the result's does not.

        The search confirmed the result in an earlier session. If no step does better,
        the result remains.
        """
        for larger in select_steps_back(self._state.reducer.history)[1:]:
            if (other := self._restart_if_verified(larger)) is not None:
                return other
        return saved

    def _restart_if_verified(self, step: Candidate) -> VerifiedResult | None:
        """Make a step the result if its repro always fails; else return None."""
        other = self._made_elsewhere(step)
        if other is None or not other.verified.always_fails:
            return None
        self._state.reducer.restart(step)
        self._state.forget(self._program)
        return other

    def _rewrite_as_stopped(self, saved: VerifiedResult) -> VerifiedResult:
        """Write a verified repro again, so that it says that the search was stopped."""
        with contextlib.suppress(ShrinkfxError, OSError):  # may occur once more
            again = self._made_elsewhere(saved.result.candidate)
            if again is not None and again.verified.always_fails:
                return again
        return saved

    def _confirm(self) -> bool:
        """Backtrack until a repro fails in every run, and continue the search there.

        A search that was stopped is not continued.
        """
        context, search, self._first_done = self._context, self._state.search, False
        confirmed = False
        with self._stop_at_budget():
            confirmed = search.confirm(self._make_confirmation())
        if not confirmed:
            return False
        if search.reducer.best is self._first:
            return True
        self._state.forget(self._program)
        if self._state.stopped:
            return True
        context.note(_BACKTRACKING)
        self._backtracked = True
        if self._saved is None or self._saved.result.candidate != search.reducer.best:
            (context.out / "repro.py").unlink(missing_ok=True)  # it did not verify
        context.budget.reserve_s, context.budget.overtime_s = self._reserve_s, 0.0
        with stop_on_errors(context, self._state):
            search.continue_search()
            measure_result(context, self._program, self._state)
        return True

    @contextlib.contextmanager
    def _stop_at_budget(self) -> Iterator[None]:
        """Stop backtracking when the budget is exhausted; keep the repro so far."""
        try:
            yield
        except BudgetExhausted as reason:
            self._state.stopped, self._context.out_of_budget = str(reason), True
            self._cut_short = True
            if self._saved is None:
                reserve_time_for_repro(
                    self._context.budget
                )  # the caller writes it after this

    def _make_confirmation(self) -> Confirmation:
        """Return a confirmation that verifies repros, the first one in place."""
        reducer = self._state.reducer
        pages = " without guard pages" if self._state.without_guard_pages else ""
        build = f"{reducer.asker.build}, repro{pages}"
        journal, form = self._context.journal, reducer.asker.form
        cache = Asker(self, journal=journal, form=form, build=build, again=True)
        return Confirmation("verification", cache, _REFUSAL)

    def check(self, candidate: Candidate) -> Verdict:
        """Return whether a candidate's repro fails in every run, as a verdict."""
        trial: VerifiedResult | None
        budget = self._context.budget
        if candidate is self._first and not self._first_done:
            trial = self._made_in_place(candidate)
        elif not budget.has(self._maker.check_s(budget, candidate)):
            raise BudgetExhausted("time limit reached")
        else:
            trial = self._made_elsewhere(candidate)
        if trial is None:
            unresolved = "the repro could not be written"
            return Verdict(Outcome.UNRESOLVED, Observation(unresolved=unresolved))
        verified = trial.verified
        if not verified.runs:
            unresolved = "all runs of the repro were inconclusive"
            return Verdict(Outcome.UNRESOLVED, Observation(unresolved=unresolved))
        if not verified.always_fails:
            return Verdict(Outcome.PASSED, Observation(runs=verified.runs))
        seen = Observation(trial.result.seen, runs=verified.runs)
        return Verdict(Outcome.REPRODUCED, seen)

    def _made_in_place(self, candidate: Candidate) -> VerifiedResult | None:
        """Verify a candidate in the output folder; None if it cannot be written."""
        self._first_done = True
        with contextlib.suppress(NotWritten):
            self._saved = self._made(self._context, candidate)
            return self._saved
        return None

    def _made_elsewhere(self, candidate: Candidate) -> VerifiedResult | None:
        """Verify a candidate in a scratch folder; None if it cannot be written.

        If its repro always fails, it replaces the files in the output folder.
        """
        note = _CANDIDATE if self._backtracked else _STEP
        self._context.note(note.format(candidate.cost[0]))
        with (
            contextlib.suppress(NotWritten),
            scratch.make_scratch_folder("verification") as folder,
        ):
            trial = self._made(
                self._context.with_output_folder(Path(folder)), candidate
            )
            if trial.verified.always_fails:
                trial = self._saved = move_result(
                    trial, Path(folder), self._context.out, self._saved
                )
            return trial
        return None


_OPEN_STAGES = (
    "this repro.py does not fail: testing which candidates fail as source code and "
    "with a normal AOTInductor build"
)
_REFUSAL = "its repro does not fail in every run"
_STEP = "verifying an earlier step ({} operators)"
_CANDIDATE = "verifying a candidate ({} operators)"
_BACKTRACKING = (
    "the repro of the reduced program does not fail in every run: backtracking to a "
    "step whose repro does"
)
_PAGES = "no repro fails in every run without guard pages: verifying with guard pages"
