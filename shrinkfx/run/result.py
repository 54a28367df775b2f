"""Third phase: write a result and its repro, and run it in a clean environment."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from shrinkfx.check.client.server import GUARDED_WORKER, WORKER, Server
from shrinkfx.check.command import Command, runs_of
from shrinkfx.check.oracle import CheckClient, runs_to_be_sure
from shrinkfx.check.script import ScriptRunner, needs_local_files
from shrinkfx.errors import BudgetExhausted, WorkerError
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import MEMORY_FAULT, Signature, Stage
from shrinkfx.preloads.preload_bundle import PreloadBundle
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.names import rename_values, short_names
from shrinkfx.protocol.choices import Backend, Guard, Probe
from shrinkfx.protocol.descriptions import Printed
from shrinkfx.protocol.tasks import (
    CheckCandidate,
    RunScript,
    SaveCandidate,
    WriteCandidate,
)
from shrinkfx.report.header import set_failure_rate
from shrinkfx.report.issue.code import lines_left_out
from shrinkfx.report.output import write_smallest_repro, write_surest
from shrinkfx.report.record import Memory, RunRecord
from shrinkfx.report.repro_files import EMBEDDED, NoSource, ReproFiles, VerifiedRepro
from shrinkfx.report.running import SAVED
from shrinkfx.report.tensors import DATA
from shrinkfx.run.context import RunContext
from shrinkfx.run.memory_error import analyze_memory_error, for_verifying, is_on_gpu
from shrinkfx.run.oracles import seen_to_fail_without_guard_pages
from shrinkfx.run.preloading import ways_to_carry
from shrinkfx.run.record import Result, VerifiedResult, before_verifying, result_of
from shrinkfx.run.recorded_options import variables_to_test
from shrinkfx.run.reduction import SearchResult, calls_and_rate
from shrinkfx.run.subject import Subject
from shrinkfx.search.budget import Budget
from shrinkfx.system import scratch
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
