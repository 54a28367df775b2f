"""What answers the questions about a program under reduction."""

from __future__ import annotations

from shrinkfx.check.command import CommandOracle
from shrinkfx.check.oracle import RepeatedOracle, make_oracle
from shrinkfx.failure.verdict import Oracle
from shrinkfx.program.candidate import Candidate
from shrinkfx.run.subject import Subject


def oracle_for(subject: Subject, **options: object) -> Oracle:
    """Make what answers questions, with further options for the worker."""
    compiler = subject.compiler.with_options(**options)
    if subject.command:
        return CommandOracle(compiler, subject.command)
    return make_oracle(compiler, subject.target, subject.rate)


def rate_of(subject: Subject, candidate: Candidate) -> float:
    """Measure in which part of the runs a candidate fails."""
    if subject.rate == 1.0:
        return 1.0
    oracle = RepeatedOracle(subject.compiler, subject.target, subject.rate)
    return oracle.measure(candidate)
