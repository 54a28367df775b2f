"""Third phase: write a result and its repro, and run it in a clean environment."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from shrinkfx.check.baseline.with_guard_pages import (
    describe_runs,
    seen_without_guard_pages,
)
from shrinkfx.check.client.server import GUARDED_WORKER, WORKER
from shrinkfx.check.command import Command, runs_of
from shrinkfx.check.oracle import CheckClient, runs_to_be_sure
from shrinkfx.check.script import ScriptRunner, SingleRun, needs_local_files
from shrinkfx.errors import BudgetExhausted, ShrinkfxError, WorkerError
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.readers import memory
from shrinkfx.failure.readers.memory import RACE, UNINITIALIZED, MemoryReport
from shrinkfx.failure.signature import ANY, MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.findings.pattern import Pattern
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
from shrinkfx.report.anonymous import strip_values
from shrinkfx.report.header import set_failure_rate
from shrinkfx.report.issue.script import lines_left_out
from shrinkfx.report.output import write_smallest_repro, write_surest
from shrinkfx.report.record import (
    EMBEDDED,
    BuildCounts,
    Conditions,
    Failure,
    GuardPages,
    Memory,
    NoSource,
    Programs,
    ProgramSize,
    ReproFiles,
    RunRecord,
    Search,
    Spent,
    VerifiedRepro,
)
from shrinkfx.report.repro import DATA, SAVED
from shrinkfx.report.summary import summarise, write_summary
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.folder import (
    Reduction,
    inherited_variables,
    reduction_from_summary,
    variables_to_test,
)
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
from shrinkfx.system.folders import (
    DRAFT,
    MINIMAL,
    MINIMAL_AS_SOURCE,
    draft_of,
    publish_draft,
)


@dataclass(frozen=True)
class Result:
    """The program to report.

    Attributes:
        program: the input program, with the number of calls that the result needs.
        form: the form that failed: the program, or its printed source.
        seen: the failure that the candidate showed; None if it passes.
        no_source: why it is not to be tried as source; None if it is.
        rate: the fraction of its runs that fail.
        memory: the facts about a memory error.
        stopped: why the search ended early, or ''.
        at_passing: it fails on the inputs on which it must pass, and only they count.
    """

    program: Subject = field(repr=False, compare=False)
    candidate: Candidate
    form: str
    seen: Signature | None
    no_source: NoSource | None = None
    rate: float = 1.0
    memory: Memory = field(default_factory=Memory)
    stopped: str = ""
    at_passing: bool = False

    @property
    def context(self) -> RunContext:
        """The context of its run."""
        return self.program.context

    @property
    def client(self) -> CheckClient:
        """A client for its form whose checks count as verification."""
        client = self.program.client.with_options(form=CandidateForm(self.form))
        return client.with_limits(client.limits, self.context.meters["verify"])


def make_record(result: Result, printed: Printed | None = None) -> RunRecord:
    """Return a record with all facts about a result that is not verified yet.

    Args:
        printed: the worker's description of the printed program, if there is one.
    """
    context, program = result.context, result.program
    options, checks = context.options, program.client.options
    ready, guarding = context.ready, program.guarding
    inductor = {**options.inductor, **checks.inductor}
    if printed and printed.random and checks.fallback_random:
        inductor["fallback_random"] = True
    record = RunRecord(
        Failure(
            target=program.target,
            seen=result.seen or program.target,
            until=options.until or ANY,
            rate_before=program.rate,
            rate_after=result.rate,
            calls=program.calls,
        ),
        Programs(
            before=program.before,
            after=ProgramSize(result.candidate.cost[0]),
            cut=program.whole.cost[0],
            pattern=Pattern.of_candidate(result.candidate),
        ),
        command=_command(options),
        versions=ready.versions,
        missing_features=ready.missing_features,
        conditions=Conditions(
            environment=_environment(context, checks),
            inductor=inductor,
            reference=checks.reference,
            runs=1 if result.memory.loop > 1 else runs_to_be_sure(result.rate),
            strict=options.strict,
            at_passing=result.at_passing,
            backend=Backend(ready.backend),
            interpreted_for=options.arch if context.interprets else "",
            short_results=program.short_results,
        ),
        other_causes=program.other_causes,
        suspects=program.suspects,
        guard_pages=GuardPages(guarding.name, guarding.without_guards),
        memory=result.memory,
        search=Search(stopped=result.stopped),
    )
    return record if printed is None else _with_printed(record, printed)


def _environment(context: RunContext, checks: CheckOptions) -> dict[str, str]:
    """Return the environment variables of the failing run, without empty ones."""
    merged = {
        **inherited_variables(),
        **context.ready.environment,
        **context.options.environment,
        **checks.environment,
    }
    return {name: value for name, value in merged.items() if value}


def _command(options: Options) -> str:
    """Return the command that started the run; with ``--anonymous``, without names."""
    command = options.command or f"shrinkfx.minify({options.model.name!r})"
    return strip_values(command) if options.anonymous else command


def _with_printed(record: RunRecord, printed: Printed) -> RunRecord:
    """Add the worker's description of the printed program."""
    after = ProgramSize(
        printed.operators, printed.nodes, printed.inputs, printed.dynamic_dims
    )
    conditions = replace(
        record.conditions,
        random=printed.random,
        limits=tuple((rtol, atol) for rtol, atol in printed.limits),
        keeps_state=printed.mutates,
        passes=printed.passes,
        gpu=printed.gpu,
        depends_on_data=printed.depends_on_data,
    )
    programs = replace(
        record.programs,
        after=after,
        targets=printed.targets,
        renamed=printed.renamed,
    )
    return replace(record, programs=programs, conditions=conditions)


def with_end(record: RunRecord, program: Subject, state: SearchResult) -> RunRecord:
    """Add the end of the search, and the cost of the run so far."""
    context, target = program.context, record.failure.target
    searches = [each.search for each in state.all]
    facts = state.minimal, state.rest, state.collect_other_failures(target), state.kinds
    return replace(
        record,
        search=Search(state.stopped, *facts),
        spent=Spent(
            outcomes=[str(v.outcome) for search in searches for v in search.verdicts()],
            cached=sum(search.cached for search in searches),
            seconds=context.budget.seconds,
            cpu_seconds=context.cpu_seconds(),
            builds=BuildCounts(**program.client.builds.to_json()),
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
        record: the record of the run, with the verified repro.
    """

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
        program=program,
        candidate=candidate,
        form=reducer.asker.form,
        seen=reducer.asker.find_signature(candidate) or program.target,
        no_source=NoSource.PASSES if of_result and not state.printable else None,
        rate=rate,
        stopped=state.stopped,
    )


_CHECKS = 4
"""Minimum time for an optional check, as a number of checks."""

_SHORT = "not run: not enough time was left"

_NO_SANITIZER = "not run: shrinkfx builds programs for it with --backend aoti only"


def analyze_memory_error(result: Result, known: str = "") -> Memory:
    """Find out whether a result fails without guard pages, and in which kernel.

    On a GPU, a sanitizer reports any illegal access.

    Args:
        known: how it fails without guard pages in every run, if that is known.
    """
    context, on_gpu = result.context, result.context.on_gpu
    memory = replace(_without_guard_pages(result, known), on_gpu=on_gpu)
    if not (memory.without_guards or (on_gpu and _is_of_the_run(result))):
        return memory
    if not context.makes_packages:
        return replace(memory, no_report=_NO_SANITIZER)
    if not context.budget.has(_CHECKS * context.budget.pace_s):
        return replace(memory, no_report=_SHORT)
    context.note(f"running the reduced program under {memory.sanitizer}")
    report, why = _sanitized(result, on_gpu=on_gpu)
    context.note(f"{memory.sanitizer}: {report or why}")
    return replace(memory, report=report, no_report=why)


def _without_guard_pages(result: Result, known: str) -> Memory:
    """Find out whether a result fails without guard pages, if they may matter."""
    context, target = result.context, result.program.target
    pages = result.client.options.guard_pages
    if pages is Guard.OFF or not _is_of_the_run(result):
        return Memory()
    if known:
        return Memory(Guard.OFF, known)
    if not context.budget.has(_CHECKS * context.budget.pace_s):
        return Memory(pages, no_report=_SHORT)
    seen = seen_without_guard_pages(result.client, target, result.candidate)
    plain = describe_runs(seen)
    if target.admits(seen[-1].signature):
        return Memory(Guard.OFF, plain)
    silent = "does not fail" if seen[-1].is_conclusive else "is inconclusive"
    context.note(f"without guard pages the reduced program {silent}: {plain}")
    return Memory(pages, plain)


def _is_of_the_run(result: Result) -> bool:
    """Return whether the failure is a memory error of the compiled program's run."""
    target = result.program.target
    is_error = target.detail in (MEMORY_FAULT, UNINITIALIZED, RACE)
    dies = target.kind in (Kind.IMA, Kind.CRASH)
    return dies and is_error and target.stage is Stage.RUN


def _sanitized(result: Result, *, on_gpu: bool) -> tuple[MemoryReport | None, str]:
    """Run a result once under AddressSanitizer, or a tool for GPUs.

    Returns:
        The report, or None and the reason.
    """
    client = replace(result.client, patience=None)
    # AddressSanitizer takes longer than a check; compute-sanitizer may not end.
    limits = client.limits if on_gpu else replace(client.limits, timeout_s=600.0)
    client = client.with_limits(limits, client.meter)
    guard = client.options.guard_pages
    tool = guard if guard.is_sanitizer else Guard.MEMCHECK
    client = client.with_options(
        only=None,
        weights=Weights.INSIDE,
        guard_pages=tool if on_gpu else Guard.OFF,
        sanitize=not on_gpu,
    )
    try:
        ending = client.ask(CheckCandidate(result.candidate.to_json()), fresh=True)
    except WorkerError as error:
        return None, str(error.reason)
    except BudgetExhausted:
        return None, _SHORT
    if isinstance(ending.answer, NotSanitized):
        return None, ending.answer.why
    parse = memory.parse_sanitizer_report if on_gpu else memory.parse_asan_report
    if report := parse(ending.log):
        return report, ""
    seen = classify_ending(ending)
    return None, seen.unresolved or f"no report; outcome of the run: {seen.in_words}"


class NotWritten(WorkerError):
    """The worker lives, but cannot write this result; it may write another one."""


def write_result(result: Result) -> Printed:
    """Save and print the result in the output folder.

    Raises:
        NotWritten: the worker cannot save or print it.
        WorkerError: no process could be started for this.
    """
    context = result.context
    program, data = (context.out / name for name in (MINIMAL, DATA))
    saved, values = (str(draft_of(path).resolve()) for path in (program, data))
    task = WriteCandidate(
        *(with_short_names(result.candidate).to_json(), saved, values),
        anonymous=context.options.anonymous,
        at_passing=result.at_passing,
    )
    ending = result.client.ask(task)
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


def verify_result(result: Result, printed: Printed) -> RunRecord:
    """Write the simplest repro that fails, and run it in empty folders.

    If the repro of a memory error does not fail in every run, write forms that are more
    likely to fail. A repro gets guard pages only if no other form fails in every run.
    """
    record = verify_as_is(result, printed)
    unguarded, script = record.verified, record.verified.written.files[0]
    if _is_of_layout(result) and not needs_local_files(script):
        record = _made_surer(result, record)
    verified, pages = record.verified, result.program.client.options.guard_pages
    if verified.always_fails or not verified.runs:
        return record  # all runs were inconclusive
    if pages == result.memory.guard:
        return record
    # Whether a heap overflow is noticed depends on the layout of the whole heap.
    result.context.note(
        "the repro does not fail in every run: writing and running a repro with guard "
        "pages"
    )
    known = filter(None, [result.memory.without_guards, _describe_runs(unguarded)])
    memory = replace(result.memory, guard=pages, without_guards="; ".join(known))
    result = replace(result, memory=memory)
    return verify_as_is(result, write_result(result))  # its data may be removed


def _made_surer(result: Result, record: RunRecord) -> RunRecord:
    """Write repros of a memory error that are more likely to fail in a process.

    The last form states its rate, and is written only if no guard pages follow.
    """
    context, pages = result.context, result.program.client.options.guard_pages
    for form in _surer(result, may_be_unsure=pages == result.memory.guard):
        if record.verified.always_fails or not record.verified.runs:
            break
        if not context.budget.has(INDEPENDENT_RUNS * context.budget.pace_s):
            break
        context.note(_MAKING_SURER.format(_describe_runs(record.verified)))
        variant = replace(result, memory=form)
        try:  # its data may be removed
            record = verify_as_is(variant, write_result(variant))
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


def _independent_runs(result: Result) -> int:
    """Return how many runs need a new interpreter; 0 if forks suffice."""
    if _is_of_layout(result):
        return INDEPENDENT_RUNS
    return _FLAKY_RUNS if result.rate < 1.0 and result.context.on_cpu else 0


_FLAKY_RUNS = 3


def _is_of_layout(result: Result) -> bool:
    """Return whether the memory layout of a process may decide if a repro fails.

    It does not on a GPU, which has its own memory, nor for a null pointer, because
    nothing is ever mapped near address 0.
    """
    memory, failure = result.memory, result.seen or result.program.target
    ran = failure.stage in (Stage.RUN, Stage.COMPARE, Stage.DONE)
    is_null = memory.report is not None and memory.report.is_of_null
    of_heap = failure.detail == MEMORY_FAULT and memory.guard is Guard.OFF
    return of_heap and ran and not is_null and result.context.on_cpu


def _describe_runs(verified: VerifiedRepro) -> str:
    counts = f"{verified.failed} of {verified.runs}"
    return f"run as a script it fails in {counts} runs"


def verify_as_is(result: Result, printed: Printed) -> RunRecord:
    """Write the simplest repro that fails, with the result's guard pages, and run it.

    The repro runs three times: once when it is written, and twice more. One of the
    three runs in a fresh process, the first one if later ones can reuse what it
    compiles. If the memory layout may decide, there are ten runs, each in a fresh
    process. For a flaky failure on the CPU, each of the three runs is in a fresh
    process. With little time left there are fewer runs, but at least one. If eager
    fails on the exported program, one more run may tell whether it runs the source.
    """
    context = result.context
    context.note("writing repro.py and running it in an empty folder")
    record = make_record(result, printed)
    runner = _script_runner(result, record)

    def fails(choice: PreloadBundle, record: RunRecord = record) -> bool | None:
        """Return whether the result fails with preloads carried in this way."""
        with tempfile.TemporaryDirectory(prefix=DRAFT, dir=context.out) as draft:
            script = Path(draft) / "repro.py"
            program = script, context.out, printed, record, choice
            surest = write_surest(*program, result.no_source)
            return runner.seems_to_fail(surest.files, record.signature)

    # A printed program is not embedded: the search has an earlier one to verify.
    as_source = not printed.unprintable and result.no_source is None
    listed = result.candidate.listing is not None and as_source
    settings = _variables_to_test(context, record.signature)
    settings += _options_to_test(context, record.signature)
    pace = context.budget.pace_s
    if not context.budget.has((len(settings) + 2) * pace):
        settings = []
    server, bare = context.worker, runner.client
    ways = ways_to_carry(context, server, bare, printed, record, fails)
    if as_source and _may_run_in_eager(record) and context.budget.has(_CHECKS * pace):
        conditions = replace(record.conditions, reference=True)
        compared = replace(record, conditions=conditions)
        with contextlib.suppress(BudgetExhausted):
            record = compared if fails(ways[-1], compared) else record
    written = write_smallest_repro(
        *(context.out, printed, record, ways, runner, settings),
        embedded=() if listed else None,
        no_source=result.no_source,
    )
    again = runner.run_again(written.files, record.signature, context.budget)
    counts = count_runs(context, [written.fails, *again])
    script = written.files[0]
    if _is_of_layout(result) and counts[0] and not needs_local_files(script):
        text = script.read_text(encoding="utf-8")
        text = set_failure_rate(text, counts[1], counts[0])
        draft_of(script).write_text(text, encoding="utf-8")
        publish_draft(script)
    log = runner.logs[-1] if runner.logs else ""
    above = lines_left_out(script.read_text(encoding="utf-8"))
    logs = runner.logs[len(runner.logs) - counts[1] :]
    varies = len({tuple(_DIFFERENCE.findall(each)) for each in logs}) > 1
    verified = VerifiedRepro(written, *counts, log, above, varies)
    return replace(record, verified=verified)


_DIFFERENCE = re.compile(
    r"^(?:Expected .* but got .*|Greatest absolute difference: .*)$", re.MULTILINE
)
"""What ``torch.testing.assert_close`` prints about values."""


def _may_run_in_eager(record: RunRecord) -> bool:
    """Return whether eager may fail only because of the checks that export adds.

    The compiled program must fail after eager has run, and not because of the layout of
    memory, which a run of eager changes.
    """
    failure, compares = record.signature, record.conditions.reference
    is_raised = failure.kind in (Kind.ASSERT, Kind.EXCEPTION)
    return is_raised and failure.stage is Stage.RUN and not compares


def _script_runner(result: Result, record: RunRecord) -> ScriptRunner:
    """Return a runner of scripts in processes without this run's settings.

    In such a clean environment, the script itself must set what matters.
    """
    context, client = result.context, result.program.client
    side, ready = result.memory.guard, context.ready
    worker = WORKER if side == Guard.OFF else GUARDED_WORKER
    device = ("cuda",) if side != Guard.OFF and ready.for_cuda else ()
    bare = context.bare_server(ready.backend, worker, *device)
    probe = client.options.probe or Probe.REAL
    return ScriptRunner(
        *(bare, client.limits, context.meters["verify"], probe, side, context.note),
        afresh_first=_is_compiled(record.signature, ready.backend),
        build=result.program.build,
        independent=_independent_runs(result),
        measures_rate=result.memory.unsure,
    )


def write_first_repro(program: Subject, state: SearchResult) -> None:
    """Write a repro of the reduced program before its simplification, and run it once.

    The user gets a repro early. It is kept only if it fails in this run and needs no
    other file; the verified repro replaces it. Nothing is written if the failure needs
    several runs or the user's command, or if an earlier session has left a repro.
    """
    context = program.context
    if program.command or state.stopped or (context.out / "repro.py").exists():
        return
    program = program.with_options(calls=state.calls)
    result = result_of(program, state, state.reducer.best, state.rate)
    has_time = context.budget.has(_CHECKS_BEFORE_END * context.budget.pace_s)
    if result.no_source or _independent_runs(result) or not has_time:
        return
    with contextlib.suppress(NotWritten):  # the verification tries it again
        printed = write_result(result)
        record = make_record(result, printed)
        runner = _script_runner(result, record)
        ways = ways_to_carry(context, context.worker, runner.client, printed, record)
        # Whether the failure needs the user's code is left to the verification.
        ways = [way for way in ways if not way.bare]
        once = SingleRun(runner)
        written = write_smallest_repro(context.out, printed, record, ways, once)
        if written.fails and len(written.files) == 1:
            context.note(_FIRST.format(written.files[0]))
        else:
            written.files[0].unlink()


_CHECKS_BEFORE_END = 20
"""Minimum time left for the first repro, as a number of checks. It takes 3 s, and the
simplification and the verified repro are more important.
"""

_FIRST = "a first repro is written and fails in one run: {}"


def _variables_to_test(context: RunContext, failure: Signature) -> list[str]:
    """Return the environment variables without which the repro may still fail.

    On a GPU, the worker sets some that make memory faults deterministic.
    """
    fault = failure.kind in (Kind.IMA, Kind.CRASH)
    ours = {} if fault or not context.on_gpu else context.ready.environment
    return variables_to_test({**context.options.environment, **ours})


def _options_to_test(context: RunContext, failure: Signature) -> list[str]:
    """Return the options of Inductor without which the repro may still fail.

    Without an option that makes results comparable, rounding or random numbers would
    look like a wrong result. The number of threads is no such option.
    """
    is_compared = failure.stage is Stage.COMPARE
    names = context.options.inductor
    return [name for name in names if not is_compared or name == "cpp.threads"]


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


_CHECKS_TO_RUN, _TO_WRITE_S = 2, 30.0
"""Time to write a program, start a process and run the repro there: a number of checks
of the input program, plus seconds.
"""

_CHECKS_FOR_SOURCE = 3
"""Maximum number of runs of a repro that is source: with seeded inputs, and with saved
inputs if those do not fail. A repro that embeds the program takes one run.
"""


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


def verify_by_command(result: Result, printed: Printed) -> RunRecord:
    """Run the command on ``minimal.pt2``, and write a repro that creates that program.

    A repro is removed if the command does not fail on its program.
    """
    context, program, client = result.context, result.program, result.client
    command, limits = program.command, client.limits
    assert command is not None
    context.note("writing repro.py and running --check on the program that it saves")
    with scratch.make_scratch_folder("inputs") as folder:
        place = context.out if command.takes_inputs else Path(folder)
        inputs = place.resolve() / INPUTS
        saved = f"{folder}/model.pt2", str(inputs)
        client.ask(SaveCandidate(result.candidate.to_json(), *saved))
        bare = context.bare_server(Backend.AUTO)
        stranger = CheckClient(bare, limits, meter=client.meter)
        runner = CommandRunner(command, stranger, client, inputs)
        record = make_record(result, printed)
        if command.takes_inputs:
            conditions = replace(record.conditions, inputs=INPUTS)
            record = replace(record, conditions=conditions)
        ways = ways_to_carry(context, context.worker, stranger, printed, record)
        variables = _variables_to_test(context, record.signature)
        written = write_smallest_repro(
            *(context.out, printed, record, ways, runner, variables),
            no_source=result.no_source,
        )
        path = (context.out / "minimal.pt2").resolve()
        if not written.fails:
            written.files[0].unlink()
            written = ReproFiles((context.out / "minimal.pt2",), EMBEDDED)
        runs = runs_of(command, client, path, inputs, context.budget)
    if command.takes_inputs:
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

    def __init__(self, program: Subject, state: SearchResult, reserve_s: float) -> None:
        self._context, self._program = program.context, program
        self._state, self._reserve_s = state, reserve_s
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
        result = saved.result
        self._state.calls, self._state.rate = result.program.calls, result.rate
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
            build = _NORMAL_BUILD if context.makes_packages else ""
            context.note(f"{_OPEN_STAGES}{build}")
        context.budget.reserve_s, context.budget.overtime_s = self._reserve_s, 0.0
        with stop_on_errors(context, state):
            run_search_stages(self._program, state)
            if state.without_guard_pages:
                self._confirm_plainly()
        if state.reducer is not before or state.reducer.best is not reduced:
            (context.out / "repro.py").unlink(missing_ok=True)  # of another result
            self._first, self._saved = state.reducer.best, None
        reserve_time_for_repro(context.budget)

    def _confirm_plainly(self) -> None:
        """Continue with the step that fails without guard pages, if there is one."""
        program, state = self._program, self._state
        reduced = state.reducer.best
        confirmed = confirm_without_guard_pages(program, state.search)
        state.without_guard_pages = confirmed
        if state.reducer.best is not reduced:
            state.forget(program)
            measure_result(program, state)

    def _shows_all(self, candidate: Candidate) -> bool:
        """Return whether the result's repro fails, in the form and build of each stage.

        A repro that is not source for lack of time counts, because the stages would
        lack time, too.
        """
        if not self._make_confirmation().confirms(candidate):
            return False
        verified = self._verify_in_place().verified
        printable = self._state.printable
        is_source = printable and verified.written.is_source
        can_be = printable and self._has_time_for_source(candidate)
        return verified.always_fails and (is_source or not can_be)

    def _check_s(self, candidate: Candidate) -> float:
        """Return the expected seconds of a check of a candidate."""
        budget = self._context.budget
        is_full = candidate.cost >= self._program.whole.cost
        return budget.check_s if is_full else budget.pace_s

    def _has_time_for_source(self, candidate: Candidate) -> bool:
        """Return whether there is time to try the repro as source."""
        needed_s = _CHECKS_FOR_SOURCE * self._check_s(candidate)
        return self._context.budget.has(needed_s)

    def _make(self, context: RunContext, candidate: Candidate) -> VerifiedResult:
        """Write a candidate and its repro, and verify that the repro fails.

        If there is no verified result yet, and the time limit ends the runs as source,
        run a repro that embeds the program instead, beyond the limit.
        """
        state, must = self._state, self._saved is None
        program = replace(self._program, context=context)
        calls, rate = calls_and_rate(program, state, candidate)
        program = program.with_options(calls=calls)
        result = result_of(program, state, candidate, rate)
        known = seen_to_fail_without_guard_pages(context, candidate, result.form)
        as_found = program.built_as(state.reducer.asker.build)
        memory = analyze_memory_error(replace(result, program=as_found), known)
        if state.without_guard_pages:
            memory = replace(memory, guard=Guard.OFF)
        result = replace(result, memory=memory)
        printed = write_result(result)
        if not result.no_source and not self._has_time_for_source(candidate):
            context.note(
                "not enough time left: repro.py will embed the program "
                "instead of its source"
            )
            result = replace(result, no_source=NoSource.NO_TIME)
        try:
            record = self._run(result, printed)
        except BudgetExhausted:
            if result.no_source or printed.unprintable or not must:
                raise
            reserve_time_for_repro(context.budget)
            result = replace(result, no_source=NoSource.NO_TIME)
            record = self._run(result, printed)
        program = replace(program, context=self._context)
        return VerifiedResult(replace(result, program=program), record)

    def _run(self, result: Result, printed: Printed) -> RunRecord:
        """Write the repro of a result that is saved and printed, and run the repro."""
        if self._program.command:
            return verify_by_command(result, printed)
        without = self._state.without_guard_pages
        return (verify_as_is if without else verify_result)(result, printed)

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
            self._saved = self._make(self._context, reduced)
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
            measure_result(self._program, self._state)
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
        if candidate is self._first and not self._first_done:
            trial = self._made_in_place(candidate)
        elif not self._context.budget.has(self._check_s(candidate)):
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
            self._saved = self._make(self._context, candidate)
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
            trial = self._make(
                self._context.with_output_folder(Path(folder)), candidate
            )
            if trial.verified.always_fails:
                trial = self._saved = move_result(
                    trial, Path(folder), self._context.out, self._saved
                )
            return trial
        return None


_OPEN_STAGES = (
    "this repro.py does not fail: testing which candidates fail as source code"
)
_NORMAL_BUILD = " and with a normal AOTInductor build"
_REFUSAL = "its repro does not fail in every run"
_STEP = "verifying an earlier step ({} operators)"
_CANDIDATE = "verifying a candidate ({} operators)"
_BACKTRACKING = (
    "some runs of the repro do not fail, or fail in another way: going back to a "
    "larger step whose repro fails in the same way in every run"
)
_PAGES = "no repro fails in every run without guard pages: verifying with guard pages"
