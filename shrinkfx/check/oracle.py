"""The oracles: what answers the reducer's questions."""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from shrinkfx.failure.classify import observe
from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Observation, Oracle, Outcome, Verdict, judge
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.messages import Ending, Request, Task


class Asks(Protocol):
    """Whoever answers requests; ``Server`` does."""

    def ask(self, request: Request) -> Ending: ...


@dataclass(frozen=True)
class Limits:
    """What one check may use."""

    timeout_s: float
    max_rss_bytes: int


@dataclass
class Meter:
    """Count what a phase of the run has used."""

    cpu_seconds: float = 0.0

    def add(self, ending: Ending) -> Ending:
        self.cpu_seconds += ending.cpu_seconds
        return ending


@dataclass(frozen=True)
class Compiler:
    """Asks a server to compile and run programs under fixed limits and options.

    Attributes:
        options: what every check gets: ``reference`` (compare with eager),
            ``fallback_random``, ``in_place`` and ``form`` (``program`` or
            ``source``). ``package`` names a file: the first check compiles into
            it, later ones only run what is there.
    """

    server: Asks
    limits: Limits
    options: Mapping[str, Any] = field(default_factory=dict)
    meter: Meter = field(default_factory=Meter)

    def with_options(self, **options: object) -> Compiler:
        return dataclasses.replace(self, options={**self.options, **options})

    def with_limits(self, limits: Limits, meter: Meter) -> Compiler:
        return dataclasses.replace(self, limits=limits, meter=meter)

    def ask(self, task: Task, *, fresh: bool = False, **arguments: object) -> Ending:
        request = Request(
            task,
            {**self.options, **arguments},
            timeout_s=self.limits.timeout_s,
            max_rss_bytes=self.limits.max_rss_bytes,
            fresh=fresh,
        )
        return self.meter.add(self.server.ask(request))

    def original(self, *, fresh: bool = False) -> tuple[Observation, Ending]:
        """Run the program as the file holds it."""
        ending = self.ask(Task.ORIGINAL, fresh=fresh)
        return observe(ending), ending

    def candidate(self, candidate: Candidate) -> Observation:
        return observe(self.ask(Task.CANDIDATE, candidate=candidate.to_json()))


@dataclass(frozen=True)
class InductorOracle:
    """Rebuilds, compiles and runs each candidate; REPRODUCED is the same failure."""

    compiler: Compiler
    target: Signature

    def check(self, candidate: Candidate) -> Verdict:
        seen = self.compiler.candidate(candidate)
        return Verdict(judge(seen, self.target), seen)


@dataclass(frozen=True)
class RepeatedOracle:
    """Compiles a candidate once and runs it until it fails, or surely passes.

    For a failure that only some runs show. A candidate is called PASSED after
    ``runs_to_be_sure(rate)`` runs without the failure.
    """

    compiler: Compiler
    target: Signature
    rate: float

    def check(self, candidate: Candidate) -> Verdict:
        with tempfile.TemporaryDirectory(prefix="shrinkfx-package-") as folder:
            compiler = self.compiler.with_options(package=f"{folder}/model.pt2")
            oracle = InductorOracle(compiler, self.target)
            seconds = cpu_seconds = 0.0
            for _ in range(runs_to_be_sure(self.rate)):
                verdict = oracle.check(candidate)
                seconds += verdict.observation.seconds
                cpu_seconds += verdict.observation.cpu_seconds
                if verdict.outcome is not Outcome.PASSED:
                    break
        seen = dataclasses.replace(
            verdict.observation, seconds=seconds, cpu_seconds=cpu_seconds
        )
        return Verdict(verdict.outcome, seen)


def make_oracle(compiler: Compiler, target: Signature, rate: float) -> Oracle:
    """Choose the oracle for a failure that this part of the runs shows."""
    if rate < 1.0:
        return RepeatedOracle(compiler, target, rate)
    return InductorOracle(compiler, target)


def runs_to_be_sure(rate: float) -> int:
    """Count the runs after which a failure that has not shown is not there.

    A candidate may fail half as often as the original did; one that does passes
    so many runs with a probability of at most 1 %. A false alarm is not
    possible: what counts is the failure itself, seen.

    >>> [runs_to_be_sure(rate) for rate in (1.0, 0.3, 0.05)]
    [1, 29, 182]
    """
    if rate >= 1.0:
        return 1
    return math.ceil(math.log(MISSED) / math.log(1 - rate / 2))


MISSED = 0.01
"""Probability that a flaky candidate is taken for one that passes."""
