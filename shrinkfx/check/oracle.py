"""The oracles: what answers the reducer's questions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from shrinkfx.failure.classify import observe
from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Observation, Verdict, judge
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
            ``fallback_random`` and ``form`` (``program`` or ``source``).
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
