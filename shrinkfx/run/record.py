"""Fill the record of a run phase by phase, and conclude the run from it.

Also the result and its repro in the output folder, and their replacement by others.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

from shrinkfx.check.client.server import Server
from shrinkfx.check.fast_builds import Builds
from shrinkfx.check.oracle import runs_to_be_sure
from shrinkfx.failure.signature import ANY, Signature
from shrinkfx.options.options import Options, Reduction
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.descriptions import Printed
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.report.issue.plain import strip_values
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
from shrinkfx.report.repro_files import NoSource, VerifiedRepro
from shrinkfx.report.summary import summarise, write_summary
from shrinkfx.run.context import RunContext
from shrinkfx.run.recorded_options import inherited_variables
from shrinkfx.run.reduction import SearchResult
from shrinkfx.run.subject import Subject
from shrinkfx.system.atomic_files import draft_of, publish_draft


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
    failure, verified = record.failure, record.verified
    return Reduction(
        status=record.status,
        candidate=reduced,
        signature=failure.target,
        seen=failure.seen,
        minimal=record.search.minimal,
        operators=record.operators,
        checks=len(record.spent.outcomes),
        seconds=record.spent.seconds,
        verified=(verified.runs, verified.failed),
        repro=verified.written.files[0],
        summary=summary,
        left_of_model=record.remains.in_words(),
        shows_alone=not (record.guarded or record.conditions.interpreted_for),
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
