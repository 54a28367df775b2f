"""Write a candidate and its repro, and run the repro, within the time limit."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shrinkfx.check.client.server import Server
from shrinkfx.check.command import Command, runs_of
from shrinkfx.check.oracle import CheckClient
from shrinkfx.errors import BudgetExhausted, WorkerError
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import Signature, Stage
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import Backend, CandidateForm, Guard
from shrinkfx.protocol.descriptions import Printed
from shrinkfx.protocol.tasks import CheckCandidate, RunScript, SaveCandidate
from shrinkfx.report.output import write_smallest_repro
from shrinkfx.report.record import RunRecord
from shrinkfx.report.repro_files import EMBEDDED, NoSource, ReproFiles, VerifiedRepro
from shrinkfx.report.running import SAVED
from shrinkfx.run.context import RunContext
from shrinkfx.run.judging import seen_to_fail_without_guard_pages
from shrinkfx.run.memory_error import analyze_memory_error, is_on_gpu
from shrinkfx.run.preloading import ways_to_carry
from shrinkfx.run.record import Result, before_verifying
from shrinkfx.run.reduction import SearchResult, calls_and_rate
from shrinkfx.run.result import count_runs, verify_as_is, verify_result, write_result
from shrinkfx.run.settings import variables_to_test
from shrinkfx.run.subject import Subject
from shrinkfx.run.verified_result import VerifiedResult, result_of
from shrinkfx.search.budget import Budget
from shrinkfx.system import scratch


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
    client = client.with_stock_build().with_options(
        form=CandidateForm(form),
        guard_pages=pages,
        environment={**options.environment, **core_dump_variables(folder)},
    )
    client = client.with_limits(client.limits, context.meters["verify"])
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
        client = program.client.with_options(form=CandidateForm(result.form))
        client = client.with_limits(limits, context.meters["verify"])
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
