"""The oracles: what answers the reducer's questions."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from shrinkfx import scratch
from shrinkfx.check import second_look
from shrinkfx.check.fast_builds import Builds
from shrinkfx.check.time_limit import AdaptiveTimeLimit
from shrinkfx.failure.classify import observe
from shrinkfx.failure.signature import Signature, Stage
from shrinkfx.failure.verdict import Observation, Oracle, Outcome, Verdict, judge
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.choices import Build, Weights
from shrinkfx.protocol.fields import with_fields_of
from shrinkfx.protocol.requests import CheckOptions, Request
from shrinkfx.protocol.tasks import CheckCandidate, CheckOriginal, Task


class Asks(Protocol):
    """Whoever answers requests; ``Server`` does."""

    def ask(self, request: Request) -> Ending: ...


@dataclass(frozen=True)
class Limits:
    """What one check may use.

    Attributes:
        timeout_s: of its own time; what takes longer hangs.
        clock_s: by the clock; what takes longer has no answer.
    """

    timeout_s: float
    max_rss_bytes: int
    clock_s: float | None = None


@dataclass
class Meter:
    """Count what a phase of the run has used.

    Attributes:
        peak_rss_bytes: the most memory that a child has had.
    """

    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0
    _lock: threading.Lock = field(
        default_factory=threading.Lock, repr=False, compare=False
    )

    def add(self, ending: Ending) -> Ending:
        """Count a child; the threads of several may do so."""
        with self._lock:
            self.cpu_seconds += ending.cpu_seconds
            self.peak_rss_bytes = max(self.peak_rss_bytes, ending.peak_rss_bytes)
        return ending


@dataclass(frozen=True)
class CheckClient:
    """Asks a server to compile and run programs under fixed limits and options.

    Attributes:
        options: what every check gets.
        patience: what sets the time limit instead, or None.
        whole: the candidate that stands for the program; None for the file's own form.
    """

    server: Asks
    limits: Limits
    options: CheckOptions = field(default_factory=CheckOptions)
    meter: Meter = field(default_factory=Meter)
    builds: Builds = field(default_factory=Builds)
    patience: AdaptiveTimeLimit | None = None
    whole: Candidate | None = None

    @with_fields_of(CheckOptions)
    def with_options(self, **changes: Any) -> CheckClient:  # noqa: ANN401 - its fields
        """Set fields of the options."""
        options = dataclasses.replace(self.options, **changes)
        return dataclasses.replace(self, options=options)

    def with_limits(self, limits: Limits, meter: Meter) -> CheckClient:
        return dataclasses.replace(self, limits=limits, meter=meter)

    def within(self, seconds: float) -> CheckClient:
        """Ask for so long by the clock; what that cuts short has no answer."""
        clock_s = seconds if math.isfinite(seconds) else None
        limits = dataclasses.replace(self.limits, clock_s=clock_s)
        return dataclasses.replace(self, limits=limits, patience=None)

    def ask(self, task: Task, *, fresh: bool = False) -> Ending:
        options = self.options
        if not self.builds.pay:
            options = dataclasses.replace(options, build=Build.STOCK)
        request = Request(
            task,
            options,
            timeout_s=(self.patience or self.limits).timeout_s,
            max_rss_bytes=self.limits.max_rss_bytes,
            clock_s=self.limits.clock_s,
            fresh=fresh,
        )
        ending = second_look.ask(self.server.ask, request)
        return self.builds.add(self.meter.add(ending))

    def original(self, *, fresh: bool = False) -> tuple[Observation, Ending]:
        """Run the program as the file holds it, or what stands for that."""
        whole = self.whole and CheckCandidate(self.whole.to_json())
        ending = self.ask(whole or CheckOriginal(), fresh=fresh)
        return observe(ending), ending

    def built_stock(self) -> CheckClient:
        """Build as AOTInductor does, all of it: with the patience of the baseline."""
        patient = dataclasses.replace(self, patience=None)
        return patient.with_options(
            build=Build.STOCK, only=None, weights=Weights.INSIDE
        )

    def patient_with(self, candidate: Candidate) -> CheckClient:
        """Give a candidate the time of the baseline, if it is larger than the last."""
        if self.patience is None or self.patience.covers(candidate):
            return self
        return dataclasses.replace(self, patience=None)

    def time_for(self, candidate: Candidate) -> float:
        """Tell how long a candidate may take."""
        client = self.patient_with(candidate)
        return (client.patience or client.limits).timeout_s

    def learn(self, candidate: Candidate, verdict: Verdict) -> None:
        """Have the time limit follow an answer."""
        if self.patience is not None:
            self.patience.learn(candidate, verdict)

    def candidate(self, candidate: Candidate) -> Observation:
        client = self.patient_with(candidate)
        return observe(client.ask(CheckCandidate(candidate.to_json())))


@dataclass(frozen=True)
class InductorOracle:
    """Rebuilds, compiles and runs each candidate; REPRODUCED is the same failure."""

    client: CheckClient
    target: Signature

    def check(self, candidate: Candidate) -> Verdict:
        verdict = self.answer(candidate)
        self.learn(candidate, verdict)
        return verdict

    def answer(self, candidate: Candidate) -> Verdict:
        """Find the answer, and learn nothing of it."""
        seen = self.client.candidate(candidate)
        if second_look.may_die_instead(seen, self.target, self.client.options):
            hung_s = seen.cpu_seconds
            seen = self.client.candidate(candidate)
            seen = dataclasses.replace(seen, cpu_seconds=hung_s + seen.cpu_seconds)
        return Verdict(judge(seen, self.target), seen)

    def stands(self, candidate: Candidate, verdict: Verdict) -> bool:
        """Tell whether the time limit, which falls, allows an earlier answer now."""
        return verdict.observation.own_seconds <= self.client.time_for(candidate)

    def with_client(self, client: CheckClient) -> InductorOracle:
        """Ask another server, or within other limits."""
        return dataclasses.replace(self, client=client)

    def learn(self, candidate: Candidate, verdict: Verdict) -> None:
        """Have the time limit follow an answer."""
        self.client.learn(candidate, verdict)


class RepeatedOracle:
    """Compiles a candidate once and runs it until it fails, or surely does not.

    For a failure that only some runs show. After ``runs_to_be_sure(rate)`` runs
    without it a candidate is DIFFERENT if some failed otherwise, else PASSED.

    The rate is that of the last ``ENOUGH`` failures: what is left of a program may
    fail more often than all of it, or less, and with each step the rate follows.
    """

    def __init__(self, client: CheckClient, target: Signature, rate: float) -> None:
        self._client = client
        self._target = target
        self._runs_per_failure = deque([1 / rate] * ENOUGH, maxlen=ENOUGH)

    @property
    def rate(self) -> float:
        """The part of the runs that failed, of late."""
        return ENOUGH / sum(self._runs_per_failure)

    def check(self, candidate: Candidate) -> Verdict:
        with scratch.folder("package") as folder:
            verdict = self._check(candidate, f"{folder}/model.pt2")
        self.learn(candidate, verdict)
        return verdict

    def learn(self, candidate: Candidate, verdict: Verdict) -> None:
        """Have the rate follow an answer."""
        if verdict.reproduced:
            self._runs_per_failure.append(verdict.observation.runs)

    def measure(self, candidate: Candidate) -> float:
        """Run a candidate until it has failed ``ENOUGH`` times; say how often it does.

        One that stops failing is taken to fail as seldom as that allows.
        """
        failed = runs = 0
        with scratch.folder("package") as folder:
            for _ in range(ENOUGH):
                verdict = self._check(candidate, f"{folder}/model.pt2")
                failed += verdict.reproduced
                runs += verdict.observation.runs
                if not verdict.reproduced:
                    break
        return max(1, failed) / runs

    def _check(self, candidate: Candidate, package: str) -> Verdict:
        verdicts = list(self._verdicts(candidate, package))
        last = verdicts[-1]
        if last.outcome is Outcome.PASSED:  # what failed otherwise is worth more
            last = next((v for v in verdicts if v.outcome is not Outcome.PASSED), last)
        seen = [verdict.observation for verdict in verdicts]
        total = dataclasses.replace(
            last.observation,
            runs=sum(s.runs for s in seen),
            seconds=sum(s.seconds for s in seen),
            cpu_seconds=sum(s.cpu_seconds for s in seen),
            waited_s=sum(s.waited_s for s in seen),
        )
        return Verdict(last.outcome, total)

    def _verdicts(self, candidate: Candidate, package: str) -> Iterator[Verdict]:
        """Ask until the answer is known; the last verdict is the one that told."""
        compiles = self._target.stage is Stage.COMPILE
        kept = None if compiles else package
        left = runs_to_be_sure(self.rate)
        while left > 0:
            runs = 1 if compiles else min(left, RUNS_PER_CHILD)
            client = self._client.with_options(runs=runs, package=kept)
            verdict = InductorOracle(client, self._target).check(candidate)
            yield verdict
            if _decides(verdict, self._target):
                return
            left -= verdict.observation.runs


def _decides(verdict: Verdict, target: Signature) -> bool:
    """Tell whether further runs could show the target.

    Not where it was seen, where there is nothing to judge, where each run would
    last to the time limit, and where nothing was compiled that could be run.
    """
    if verdict.outcome is Outcome.DIFFERENT:
        seen = verdict.observation.signature
        assert seen is not None
        return seen.stage is Stage.COMPILE and target.stage is not Stage.COMPILE
    return verdict.outcome is not Outcome.PASSED


def make_oracle(client: CheckClient, target: Signature, rate: float) -> Oracle:
    """Choose the oracle for a failure that this part of the runs shows."""
    if rate < 1.0:
        return RepeatedOracle(client, target, rate)
    return InductorOracle(client, target)


def runs_to_be_sure(rate: float) -> int:
    """Count the runs after which a failure that has not shown is not there.

    A candidate that fails half as often as what was measured passes all of them
    with a probability of ``MISSED`` at most, whatever the true rate, and with the
    luck of the measurement counted in. That took N runs to fail ``ENOUGH`` times,
    and p * N is all but gamma-distributed, p being the true rate. The mean of
    exp(-R * p/2) over that is (1 + R / 2N) ** -ENOUGH for R runs.

    The other error does not exist: what counts is the failure itself, seen once.

    >>> [runs_to_be_sure(rate) for rate in (1.0, 0.3, 0.05)]
    [1, 39, 234]
    """
    if rate >= 1.0:
        return 1
    measured = ENOUGH / rate
    return math.ceil(2 * measured * (math.pow(MISSED, -1 / ENOUGH) - 1))


MISSED = 0.01
"""Probability that a flaky candidate is taken for one that does not fail so."""

ENOUGH = 10
"""Failures that make a rate to plan with. With 5, each candidate that passes
would need 1.3 times the runs; with 20, nine tenths."""

RUNS_PER_CHILD = 20
"""Runs of a flaky program in one process, each as fast as a call: what a new
process costs is spread over them, and few see what an earlier one left behind."""
