"""Create the oracles that answer queries about a program under reduction."""

from __future__ import annotations

from shrinkfx.check.client.restarting import RestartingServer
from shrinkfx.check.command import CommandOracle
from shrinkfx.check.jobs import jobs_that_fit, usual_jobs
from shrinkfx.check.oracle import InductorOracle, RepeatedOracle, make_oracle
from shrinkfx.check.worker_slots import ForkPool, ForkSlots
from shrinkfx.failure.verdict import Oracle
from shrinkfx.journal.speculative_checks import SpeculativeChecks
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Ready
from shrinkfx.protocol.choices import Backend
from shrinkfx.run.context import RunContext
from shrinkfx.run.subject import Subject
from shrinkfx.search.speculation import SpeculativeOracle


def oracle_for(program: Subject) -> Oracle:
    """Return an oracle that checks whether candidates fail as the subject does."""
    if program.command:
        return CommandOracle(program.client, program.command)
    return make_oracle(program.client, program.target, program.rate)


def rate_of(program: Subject, candidate: Candidate) -> float:
    """Measure the fraction of runs in which a candidate fails."""
    if program.rate == 1.0:
        return 1.0
    oracle = RepeatedOracle(program.client, program.target, program.rate)
    return oracle.measure(candidate)


def forks_for(context: RunContext, program: Subject) -> ForkPool | None:
    """Return the worker slots for parallel checks; None if checks run one at a time."""
    server = program.client.server
    if not isinstance(server, RestartingServer):
        return None
    context.jobs = jobs_for(context, program, server.ready)
    if context.jobs == 1:
        return None
    gpus = max(1, len(context.options.gpus))
    return ForkPool(server, context.jobs, context.busyness.record_ending, gpus)


def jobs_for(context: RunContext, program: Subject, ready: Ready) -> int:
    """Return how many candidates to check at once; note why it is less than asked."""
    on_gpu = ready.for_cuda and ready.backend == Backend.AOTI
    # A command, or the memory of a GPU, may not allow parallel checks.
    usual = 1 if program.command or on_gpu else usual_jobs()
    if on_gpu and not program.command:
        usual = max(usual, len(context.options.gpus))
    jobs = context.options.jobs or usual
    if jobs > 1 and program.rate < 1.0:
        if context.options.jobs:
            context.note(_ONE_BY_ONE)
        return 1
    peak_bytes = context.meters["baseline"].peak_rss_bytes
    fit = jobs_that_fit(peak_bytes, program.client.limits.max_rss_bytes)
    if context.options.jobs and fit < jobs:
        context.note(_NO_MEMORY.format(jobs, fit, peak_bytes / 1e9))
    return min(jobs, fit)


_ONE_BY_ONE = (
    "the failure shows only in some runs: candidates are checked one at a time, "
    "regardless of --jobs"
)
_NO_MEMORY = (
    "--jobs {}: memory suffices for {} at a time; a check needs up to {:.1f} GB"
)


def with_speculation(
    oracle: Oracle, forks: ForkPool | None, ahead: SpeculativeChecks
) -> Oracle:
    """Return an oracle that also runs speculative checks in the worker slots."""
    match oracle:
        case InductorOracle() | CommandOracle() if forks is not None:
            return SpeculativeOracle(oracle, ForkSlots(oracle, forks), ahead)
    return oracle
