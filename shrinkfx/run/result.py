"""Third phase: write the result, and run its repro in a clean environment."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from shrinkfx.check.client.server import GUARDED_WORKER, WORKER, Server
from shrinkfx.check.oracle import CheckClient, runs_to_be_sure
from shrinkfx.check.script import ScriptRunner, needs_local_files
from shrinkfx.errors import BudgetExhausted, WorkerError
from shrinkfx.failure.signature import MEMORY_FAULT, Signature, Stage
from shrinkfx.preloads.preload_bundle import PreloadBundle
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.names import rename_values, short_names
from shrinkfx.protocol.choices import Backend, CandidateForm, Guard, Probe
from shrinkfx.protocol.descriptions import Printed
from shrinkfx.protocol.tasks import WriteCandidate
from shrinkfx.report.header import set_failure_rate
from shrinkfx.report.issue.code import lines_left_out
from shrinkfx.report.output import write_smallest_repro, write_surest
from shrinkfx.report.record import Memory, RunRecord
from shrinkfx.report.repro_files import VerifiedRepro
from shrinkfx.report.tensors import DATA
from shrinkfx.run.context import RunContext
from shrinkfx.run.preloading import ways_to_carry
from shrinkfx.run.record import Result, before_verifying
from shrinkfx.run.settings import variables_to_test
from shrinkfx.run.subject import Subject
from shrinkfx.system.atomic_files import DRAFT, draft_of, publish_draft
from shrinkfx.system.output_folder import MINIMAL, MINIMAL_AS_SOURCE


class NotWritten(WorkerError):
    """The worker lives, but cannot write this result; it may write another one."""


def write_result(context: RunContext, client: CheckClient, result: Result) -> Printed:
    """Save and print the result in the output folder.

    Raises:
        NotWritten: the worker cannot save or print it.
        WorkerError: no process could be started for this.
    """
    client = client.with_options(form=CandidateForm(result.form)).with_limits(
        client.limits, context.meters["verify"]
    )
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
    for memory in _surer(result, may_be_unsure=pages == result.memory.guard):
        if record.verified.always_fails or not record.verified.runs:
            break
        if not context.budget.has(INDEPENDENT_RUNS * context.budget.pace_s):
            break
        context.note(_MAKING_SURER.format(_describe_runs(record.verified)))
        variant = replace(result, memory=memory)
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
