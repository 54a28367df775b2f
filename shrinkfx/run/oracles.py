"""What answers the questions about a program under reduction."""

from __future__ import annotations

from shrinkfx.check.command import CommandOracle
from shrinkfx.check.oracle import RepeatedOracle, make_oracle
from shrinkfx.failure.verdict import Oracle
from shrinkfx.program.candidate import Candidate
from shrinkfx.run.subject import Subject


def oracle_for(subject: Subject) -> Oracle:
    """Make what answers whether a candidate fails as the subject does."""
    if subject.command:
        return CommandOracle(subject.client, subject.command)
    return make_oracle(subject.client, subject.target, subject.rate)


def rate_of(subject: Subject, candidate: Candidate) -> float:
    """Measure in which part of the runs a candidate fails."""
    if subject.rate == 1.0:
        return 1.0
    oracle = RepeatedOracle(subject.client, subject.target, subject.rate)
    return oracle.measure(candidate)
