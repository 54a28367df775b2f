"""Third phase: write the result, run it as a stranger would, and sum up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from shrinkfx.check.baseline.with_guard_pages import Guarding
from shrinkfx.check.client.server import GUARDED_WORKER, WORKER, Server
from shrinkfx.check.oracle import Compiler, runs_to_be_sure
from shrinkfx.check.script import ScriptRunner
from shrinkfx.errors import WorkerError
from shrinkfx.failure.signature import ANY, Signature, Stage
from shrinkfx.options import Reduction
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Printed
from shrinkfx.protocol.choices import Backend, CandidateForm, Guard, Probe
from shrinkfx.protocol.tasks import WriteCandidate
from shrinkfx.report.atomic_files import draft_of, publish
from shrinkfx.report.header import About
from shrinkfx.report.output import Written, write_smallest_repro
from shrinkfx.report.repro import DATA
from shrinkfx.report.summary import (
    Sizes,
    Spent,
    summarise,
    write_summary,
)
from shrinkfx.run.context import Job
from shrinkfx.run.memory_error import Memory
from shrinkfx.run.preloading import ways_to_carry
from shrinkfx.run.reduction import Found
from shrinkfx.run.settings import inherited, to_ask_about
from shrinkfx.run.subject import Subject


class NotWritten(WorkerError):
    """The worker lives, but cannot write this result: perhaps it can another."""


@dataclass(frozen=True)
class Verified:
    """A repro, and how often it ran and failed as it says.

    Attributes:
        runs: those that had an answer; the others count neither way.
        memory: what is known of its memory error, with the guard pages it ran with.
    """

    written: Written
    runs: int
    failed: int
    memory: Memory = field(default_factory=Memory)

    @property
    def always_fails(self) -> bool:
        """Tell whether the repro has failed in every run, of which there was one."""
        return 0 < self.failed == self.runs


@dataclass(frozen=True)
class Result:
    """The program to report.

    Attributes:
        form: what failed: the program, or its printed source.
        seen: the failure in the candidate's own words, or None if it passes.
        printable: its printed source is not known to pass.
        rate: the part of its runs that fail.
        memory: what is known of it where it is a memory error.
        stopped: what ended the search for it early, or ''.
    """

    candidate: Candidate
    form: str
    seen: Signature | None
    printable: bool = True
    rate: float = 1.0
    memory: Memory = field(default_factory=Memory)
    stopped: str = ""


def write(job: Job, compiler: Compiler, result: Result) -> Printed:
    """Have the result saved and printed, in the output folder.

    Raises:
        NotWritten: it could not be.
        WorkerError: no process could be started for it.
    """
    compiler = compiler.with_options(form=CandidateForm(result.form)).with_limits(
        compiler.limits, job.meters["verify"]
    )
    program, data = (job.out / name for name in ("minimal.pt2", DATA))
    drafts = (str(draft_of(path).resolve()) for path in (program, data))
    ending = compiler.ask(WriteCandidate(result.candidate.to_json(), *drafts))
    printed = ending.answer
    if not isinstance(printed, Printed):
        raise NotWritten("the result could not be written", ending.log[-2000:])
    for path in (program, data):
        publish(path)
    if result.printable:
        return printed
    return replace(printed, unprintable="its source does not fail")


def verify(
    job: Job,
    server: Server,
    subject: Subject,
    result: Result,
    printed: Printed,
) -> Verified:
    """Write the simplest repro that fails, and run it in empty folders.

    With guard pages only if it needs them to fail in every run.
    """
    verified = verify_as_is(job, server, subject, result, printed)
    pages = subject.compiler.options.guard_pages
    if verified.always_fails or not verified.runs or pages == result.memory.guard:
        return verified  # without a run that had an answer nothing is known
    # Whether an overrun heap is noticed depends on how all else in it lies.
    job.note("it does not fail in every run: writing and running it for guard pages")
    known = filter(None, [result.memory.plain, _said_of(verified)])
    memory = replace(result.memory, guard=pages, plain="; ".join(known))
    result = replace(result, memory=memory)
    printed = write(job, subject.compiler, result)  # its data may be gone
    return verify_as_is(job, server, subject, result, printed)


def _said_of(verified: Verified) -> str:
    counts = f"{verified.failed} of {verified.runs}"
    return f"run as a script it fails so in {counts} runs"


def verify_as_is(
    job: Job,
    server: Server,
    subject: Subject,
    result: Result,
    printed: Printed,
) -> Verified:
    """Write the simplest repro that fails, with the guard pages that are known of.

    It is run three times: when it is written, in a fresh process, and in a fork. Where
    minutes are short, fewer times, but once in any case.
    """
    job.note("writing repro.py and running it in an empty folder")
    told = about(job, server, subject, result, printed)
    # A stranger's environment: the script must set what matters itself.
    side = result.memory.guard
    worker = WORKER if side == Guard.OFF else GUARDED_WORKER
    with job.bare_server(server.ready.backend, worker) as bare:
        meter = job.meters["verify"]
        meter.cpu_seconds += bare.ready.cpu_seconds
        probe = subject.compiler.options.probe or Probe.REAL
        runner = ScriptRunner(
            bare, subject.compiler.limits, meter, probe, side, job.note
        )
        ways = ways_to_carry(job, server, bare, subject.compiler.limits, printed, told)
        asked = to_ask_about(job.options.environment)
        if not job.budget.has((len(asked) + 2) * job.budget.pace_s):
            asked = []
        written = write_smallest_repro(job.out, printed, told, ways, runner, asked)
        again = runner.again(written.files, told.signature, job.budget)
        return Verified(written, *counted(job, [written.fails, *again]), result.memory)


def counted(
    job: Job, failed: Sequence[bool | None], what: str = "the repro"
) -> tuple[int, int]:
    """Count the runs that had an answer, and those that failed."""
    answered = [each for each in failed if each is not None]
    if silent := len(failed) - len(answered):
        job.note(
            f"{silent} of {len(failed)} runs of {what} had no answer, which counts "
            "neither way"
        )
    return len(answered), sum(answered)


def about(
    job: Job,
    server: Server,
    subject: Subject,
    result: Result,
    printed: Printed,
) -> About:
    """Gather what a repro says of itself."""
    seen = result.seen or subject.target
    options, checks = job.options, subject.compiler.options
    environment = {
        **inherited(),
        **server.ready.environment,
        **options.environment,
    }
    eager_random = printed.random and checks.fallback_random
    random = {"fallback_random": True} if eager_random else {}
    return About(
        # A script's comparison has words of its own.
        signature=replace(
            seen, match="" if seen.stage is Stage.COMPARE else subject.target.match
        ),
        command=options.command or f"shrinkfx.minify({options.model.name!r})",
        versions=server.ready.versions,
        operators=(subject.before.operators, printed.operators),
        environment=environment,
        inductor={**options.inductor, **checks.inductor, **random},
        reference=checks.reference,
        random=printed.random,
        rate=result.rate,
        runs=runs_to_be_sure(result.rate),
        limits=tuple((rtol, atol) for rtol, atol in printed.limits),
        strict=options.strict,
        keeps_state=printed.mutates,
        calls=subject.calls,
        passes=printed.passes,
        # What an operator does is of no concern where that is gone.
        warnings=(
            *(text for text in _of_operators(job) if _is_left(text, printed)),
            *job.warnings,
        ),
        interpreted_for=(
            options.arch if server.ready.backend == Backend.INTERPRETER else ""
        ),
        guard=result.memory.guard,
        plain=result.memory.plain,
        memory=result.memory.report,
        stopped=result.stopped,
    )


def _of_operators(job: Job) -> list[str]:
    """List the warnings that are about an operator."""
    return [*(f"lying operator: {lie}" for lie in job.lies), *job.examined]


def _is_left(text: str, printed: Printed) -> bool:
    return any(f"({target})" in text for target in printed.targets)


def _memory(guarding: Guarding, memory: Memory) -> dict[str, Any]:
    """State what guard pages and AddressSanitizer have shown."""
    if not guarding.name:
        return {"guard_pages": None, "memory_report": None}
    return {
        "guard_pages": {
            "are": guarding.name,
            "original_without_them": guarding.plain,
            "result_without_them": memory.plain,
            "repro_needs_them": memory.guard != Guard.OFF,
        },
        "memory_report": asdict(memory.report) if memory.report else memory.no_report,
    }


def sum_up(
    job: Job,
    subject: Subject,
    found: Found,
    result: Result,
    verified: Verified,
    after: Sizes,
    versions: Mapping[str, str],
) -> dict[str, Any]:
    """Write ``summary.json``."""
    reducer, verdicts = found.reducer, found.search.verdicts()
    spent = Spent(
        outcomes=[str(verdict.outcome) for verdict in verdicts],
        by_catch=found.by_catch(),
        cached=found.search.cached,
        seconds=job.budget.seconds,
        cpu_seconds=_cpu_seconds(job),
    )
    summary = summarise(
        status=_status(found, verified),
        stopped=found.stopped,
        until=job.options.until or ANY,
        signature=subject.target,
        seen=result.seen or subject.target,
        rates=(subject.rate, found.rate),
        sizes=(subject.before, after),
        spent=spent,
        minimal=reducer.minimal,
        rest=found.rest,
        calls=subject.calls,
        builds=subject.compiler.builds.to_json(),
        memory=_memory(subject.guarding, verified.memory),
        warnings=[*_of_operators(job), *job.warnings],
        suspects=subject.suspects,
        verified=(verified.runs, verified.failed),
        written=verified.written,
        versions=versions,
    )
    summary["operators_cut"] = subject.whole.cost[0]  # of a form that may have others
    write_summary(job.out, summary)
    return summary


def _status(found: Found, verified: Verified) -> str:
    if not verified.runs and found.stopped:
        return "stopped"
    if not verified.always_fails:
        return "unverified"
    return "stopped" if found.stopped else "reduced"


def _cpu_seconds(job: Job) -> dict[str, float]:
    """Add up what each part of the run has used, in earlier sessions too."""
    spent = {name: meter.cpu_seconds for name, meter in job.meters.items()}
    spent["search"] += job.journal.recalled_cpu_seconds
    return spent


def conclude(
    job: Job,
    subject: Subject,
    found: Found,
    result: Result,
    verified: Verified,
    after: Sizes,
    versions: Mapping[str, str],
) -> Reduction:
    """Write ``summary.json`` and say what has come of the run."""
    summary = sum_up(job, subject, found, result, verified, after, versions)
    return Reduction(
        status=summary["status"],
        candidate=found.reducer.best,
        signature=subject.target,
        seen=result.seen or subject.target,
        minimal=found.reducer.minimal,
        operators=(subject.before.operators, after.operators),
        checks=summary["checks"]["total"],
        seconds=job.budget.seconds,
        verified=(verified.runs, verified.failed),
        repro=verified.written.files[0],
        summary=summary,
    )
