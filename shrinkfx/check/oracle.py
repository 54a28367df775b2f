"""The oracles, which answer the reducer's queries, and the check client they use."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from shrinkfx.check.limits import AdaptiveTimeLimit
from shrinkfx.errors import BudgetExhausted
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.readers.threads import has_full_exception_text, may_vary_by_thread
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation, Oracle, Outcome, Verdict, judge
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Ending, Stopped
from shrinkfx.protocol.choices import Build, Guard, Step, Weights
from shrinkfx.protocol.record import with_fields_of
from shrinkfx.protocol.requests import (
    CheckCandidate,
    CheckOptions,
    CheckOriginal,
    Request,
    Task,
)
from shrinkfx.system import scratch


@dataclass
class Builds:
    """Counts the builds of all phases of a run.

    Attributes:
        fast: libraries that the fast build made, or found to fail.
        stopped: checks that ended without a library, because their query was answered
            before.
        fallbacks: how often a library fell back to the stock build, by reason.
        in_a_row: fallbacks since the last build without one.
    """

    fast: int = 0
    stopped: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)
    in_a_row: int = 0

    def add(self, ending: Ending) -> Ending:
        built = ending.built
        if built is None:
            return ending
        if isinstance(ending.answer, Stopped):
            self.stopped += 1
        elif built.fallback:
            self.fallbacks[built.fallback] += 1
        elif built.step is not Step.LOWERING:
            self.fast += 1
        self.in_a_row = self.in_a_row + 1 if built.fallback else 0
        return ending

    def to_json(self) -> dict[str, Any]:
        """Return the counts for summary.json, the most frequent reason first."""
        reasons = dict(self.fallbacks.most_common())
        return {"fast": self.fast, "stopped": self.stopped, "fallbacks": reasons}

    @property
    def pay(self) -> bool:
        """Whether to try the fast build again: each failed try costs time."""
        return self.in_a_row < MAX_FALLBACKS_IN_A_ROW


class LaterBuilds(Builds):
    """The builds of a speculative query: counted only if its answer is used."""

    def __init__(self, all_builds: Builds) -> None:
        super().__init__(in_a_row=all_builds.in_a_row)
        self._all, self._endings = all_builds, list[Ending]()

    def add(self, ending: Ending) -> Ending:
        self._endings.append(replace(ending, log=""))  # the log may be long
        return ending

    def count(self) -> None:
        """Add the builds to the totals, once.

        If the fast build was given up in the meantime, a sequential search would have
        made a stock build here, so nothing is counted.
        """
        while self._endings:
            ending = self._endings.pop(0)
            if self._all.pay:
                self._all.add(ending)


MAX_FALLBACKS_IN_A_ROW = 5
"""The fast build is given up after so many fallbacks in a row."""


class RequestHandler(Protocol):
    """Answers requests; ``Server`` does."""

    def ask(self, request: Request) -> Ending: ...


@dataclass(frozen=True)
class Limits:
    """The limits of one check.

    Attributes:
        timeout_s: seconds without waiting for a core; a check that takes longer hangs.
        max_rss_bytes: the memory of the check's processes.
        clock_s: seconds of wall time; a check that takes longer has no answer.
    """

    timeout_s: float
    max_rss_bytes: int
    clock_s: float | None = None


@dataclass
class Meter:
    """Counts the resources that a phase of the run has used.

    Attributes:
        peak_rss_bytes: the highest memory use of a child.
    """

    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0
    _lock: threading.Lock = field(
        default_factory=threading.Lock, repr=False, compare=False
    )

    def add(self, ending: Ending) -> Ending:
        """Add a child's resources; safe to call from several threads."""
        with self._lock:
            self.cpu_seconds += ending.cpu_seconds
            self.peak_rss_bytes = max(self.peak_rss_bytes, ending.peak_rss_bytes)
        return ending


@dataclass(frozen=True)
class CheckClient:
    """Asks a server to compile and run programs under fixed limits and options.

    Attributes:
        options: the options of every check.
        patience: sets the time limit instead of ``limits``, or None.
        input_program: the candidate that stands for the input program; None for the
            program as it is in the file.
    """

    server: RequestHandler
    limits: Limits
    options: CheckOptions = field(default_factory=CheckOptions)
    meter: Meter = field(default_factory=Meter)
    builds: Builds = field(default_factory=Builds)
    patience: AdaptiveTimeLimit | None = None
    input_program: Candidate | None = None

    @with_fields_of(CheckOptions)
    def with_options(self, **changes: Any) -> CheckClient:  # noqa: ANN401 - its fields
        """Return a client with other options.

        Args:
            changes: fields of ``CheckOptions``.
        """
        options = dataclasses.replace(self.options, **changes)
        return dataclasses.replace(self, options=options)

    def with_limits(self, limits: Limits, meter: Meter) -> CheckClient:
        return dataclasses.replace(self, limits=limits, meter=meter)

    def with_clock_limit(self, seconds: float) -> CheckClient:
        """Return a client with a wall-time limit; a check cut short has no answer."""
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
        ending = ask_with_retry(self.server.ask, request)
        return self.builds.add(self.meter.add(ending))

    def run_input_program(self, *, fresh: bool = False) -> tuple[Observation, Ending]:
        """Run the input program: as it is in the file, or ``request``."""
        request = self.input_program and CheckCandidate(self.input_program.to_json())
        ending = self.ask(request or CheckOriginal(), fresh=fresh)
        return classify_ending(ending), ending

    def run_within(self, seconds: float) -> Observation | None:
        """Run the input program; None if the run did not end in so many seconds."""
        try:
            seen, ending = self.with_clock_limit(seconds).run_input_program()
        except BudgetExhausted:
            return None
        return None if ending.how == "late" and math.isfinite(seconds) else seen

    def with_stock_build(self) -> CheckClient:
        """Return a client that builds as AOTInductor does, with the baseline's limits.

        The baseline's time limit applies, not the adaptive one.
        """
        patient = dataclasses.replace(self, patience=None)
        return patient.with_options(
            build=Build.STOCK, only=None, weights=Weights.INSIDE
        )

    def with_limit_for(self, candidate: Candidate) -> CheckClient:
        """Return a client with the baseline's time limit if the candidate needs it.

        It does if it is larger than the last program that failed.
        """
        if self.patience is None or self.patience.covers(candidate):
            return self
        return dataclasses.replace(self, patience=None)

    def time_for(self, candidate: Candidate) -> float:
        """Return the time limit of a candidate, in seconds."""
        client = self.with_limit_for(candidate)
        return (client.patience or client.limits).timeout_s

    def learn(self, candidate: Candidate, verdict: Verdict) -> None:
        """Adapt the time limit to a verdict."""
        if self.patience is not None:
            self.patience.learn(candidate, verdict)

    def check_candidate(self, candidate: Candidate) -> Observation:
        client = self.with_limit_for(candidate)
        return classify_ending(client.ask(CheckCandidate(candidate.to_json())))


@dataclass(frozen=True)
class InductorOracle:
    """Rebuilds, compiles and runs each candidate; REPRODUCED means the same failure."""

    client: CheckClient
    target: Signature

    def check(self, candidate: Candidate) -> Verdict:
        verdict = self.answer(candidate)
        self.learn(candidate, verdict)
        return verdict

    def answer(self, candidate: Candidate) -> Verdict:
        """Return the verdict without learning from it."""
        seen = self.client.check_candidate(candidate)
        if may_crash_instead(seen, self.target, self.client.options):
            hung_s = seen.cpu_seconds
            seen = self.client.check_candidate(candidate)
            seen = dataclasses.replace(seen, cpu_seconds=hung_s + seen.cpu_seconds)
        return Verdict(judge(seen, self.target), seen)

    def stands(self, candidate: Candidate, verdict: Verdict) -> bool:
        """Tell whether the current time limit, which falls, still allows a verdict."""
        return verdict.observation.own_seconds <= self.client.time_for(candidate)

    def with_client(self, client: CheckClient) -> InductorOracle:
        """Return an oracle that uses another server or other limits."""
        return dataclasses.replace(self, client=client)

    def learn(self, candidate: Candidate, verdict: Verdict) -> None:
        """Adapt the time limit to a verdict."""
        self.client.learn(candidate, verdict)


class RepeatedOracle:
    """Compiles a candidate once and runs it until it fails, or certainly does not.

    It is for a flaky failure. A candidate without the failure in
    ``runs_to_be_sure(rate)`` runs is DIFFERENT if it showed another one, else PASSED.

    The rate is that of the last ``ENOUGH`` failures. It follows each step, because a
    smaller program may fail more or less often.
    """

    def __init__(self, client: CheckClient, target: Signature, rate: float) -> None:
        self._client = client
        self._target = target
        self._runs_per_failure = deque([1 / rate] * ENOUGH, maxlen=ENOUGH)

    @property
    def rate(self) -> float:
        """The fraction of recent runs that failed."""
        return ENOUGH / sum(self._runs_per_failure)

    def check(self, candidate: Candidate) -> Verdict:
        with scratch.make_scratch_folder("package") as folder:
            verdict = self._check(candidate, f"{folder}/model.pt2")
        self.learn(candidate, verdict)
        return verdict

    def learn(self, candidate: Candidate, verdict: Verdict) -> None:
        """Adapt the rate to a verdict."""
        if verdict.reproduced:
            self._runs_per_failure.append(verdict.observation.runs)

    def measure(self, candidate: Candidate) -> float:
        """Run a candidate until it has failed ``ENOUGH`` times, and return its rate.

        If it stops failing, the rate is one failure, or those seen, in all its runs.
        """
        failed = runs = 0
        with scratch.make_scratch_folder("package") as folder:
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
        if last.outcome is Outcome.PASSED:  # another failure takes precedence
            last = next((v for v in verdicts if v.outcome is not Outcome.PASSED), last)
        seen = [verdict.observation for verdict in verdicts]
        total = with_times_of(last.observation, seen)
        total = dataclasses.replace(total, runs=sum(each.runs for each in seen))
        return Verdict(last.outcome, total)

    def _verdicts(self, candidate: Candidate, package: str) -> Iterator[Verdict]:
        """Check until the verdict is known, which is the last one that is yielded."""
        compiles = self._target.stage is Stage.COMPILE
        reused = None if compiles else package
        remaining = runs_to_be_sure(self.rate)
        while remaining > 0:
            runs = 1 if compiles else min(remaining, RUNS_PER_CHILD)
            client = self._client.with_options(runs=runs, package=reused)
            verdict = InductorOracle(client, self._target).check(candidate)
            yield verdict
            if _is_final(verdict, self._target):
                return
            remaining -= verdict.observation.runs


TIMES = "seconds", "cpu_seconds", "waited_s"
"""The fields of an observation that add up over several runs."""


def with_times_of(seen: Observation, runs: Sequence[Observation]) -> Observation:
    """Return an observation with the times of several runs together."""
    times = {name: sum(getattr(each, name) for each in runs) for name in TIMES}
    return replace(seen, **times)


def _is_final(verdict: Verdict, target: Signature) -> bool:
    """Tell whether a verdict is final: further runs could not show the target.

    It is final if the target was seen, if the candidate is invalid, if each run would
    last to the time limit, or if nothing was compiled that could be run.
    """
    if verdict.outcome is Outcome.DIFFERENT:
        seen = verdict.observation.signature
        assert seen is not None
        return seen.stage is Stage.COMPILE and target.stage is not Stage.COMPILE
    return verdict.outcome is not Outcome.PASSED


def make_oracle(client: CheckClient, target: Signature, rate: float) -> Oracle:
    """Create the oracle for a failure that this fraction of the runs shows."""
    if rate < 1.0:
        return RepeatedOracle(client, target, rate)
    return InductorOracle(client, target)


def runs_to_be_sure(rate: float) -> int:
    """Return the number of passing runs after which a candidate counts as passing.

    A candidate that fails half as often as the measured rate passes all of them with
    probability ``MISSED`` at most, whatever the true rate is; the error of the
    measurement is included. The measurement took N runs to fail ``ENOUGH`` times, and p
    * N is approximately gamma-distributed, where p is the true rate. The mean of exp(-R
    * p/2) over that distribution is (1 + R / 2N) ** -ENOUGH for R runs.

    The opposite error cannot happen, because a single failure is proof.

    >>> [runs_to_be_sure(rate) for rate in (1.0, 0.3, 0.05)]
    [1, 39, 234]
    """
    if rate >= 1.0:
        return 1
    measured = ENOUGH / rate
    return math.ceil(2 * measured * (math.pow(MISSED, -1 / ENOUGH) - 1))


MISSED = 0.01
"""The probability that a candidate with a flaky failure counts as passing."""

ENOUGH = 10
"""The number of failures that measure a rate. With 5, each passing candidate would need
1.3 times the runs; with 20, nine tenths."""

RUNS_PER_CHILD = 20
"""Runs of a flaky program in one process. Each takes only a call, so they share the
cost
of a process; and there are few, because a run may see state that an earlier one left.
"""


# Retry a check whose ending may hide the actual failure.
#
# A crash in which several threads threw is repeated in one thread. Usually each
# exception's message is saved where it is thrown
# (``worker/forkserver/last_words.cpp``). It is not in a script that a bare Python
# runs, as another user would run it, nor where that library could not be built.
#
# A hang of a program that may have corrupted the heap is repeated too: usually the
# allocator notices the corruption and aborts, but it may also wait forever.


def ask_with_retry(
    server: Callable[[Request], Ending],
    request: Request,
    is_in_doubt: Callable[[Ending], bool] = may_vary_by_thread,
) -> Ending:
    """Send a request, and repeat it in one thread if the message is in doubt.

    The second run counts only if it ends in the same way, at the same stage and with a
    message, because a loop in one thread throws what its first part throws. In any
    other case one thread tells nothing about several.

    Args:
        is_in_doubt: tells whether another thread's message may be the failure's.

    Returns:
        The ending that counts, with the time and memory of both runs.
    """
    ending = server(request)
    if request.one_thread or not is_in_doubt(ending):
        return ending
    alone = server(replace(request, one_thread=True))
    counts = has_full_exception_text(alone) and alone.stage == ending.stage
    return replace(
        alone if counts else ending,
        runs=ending.runs,
        seconds=ending.seconds + alone.seconds,
        waited_s=ending.waited_s + alone.waited_s,
        cpu_seconds=ending.cpu_seconds + alone.cpu_seconds,
        peak_rss_bytes=max(ending.peak_rss_bytes, alone.peak_rss_bytes),
    )


def may_crash_instead(
    seen: Observation, target: Signature, options: CheckOptions
) -> bool:
    """Tell whether a program that hangs may crash with the same error in the next run.

    Not with guard pages: there it crashes at the out-of-bounds access, before the heap
    is corrupted.
    """
    overruns = target.detail == MEMORY_FAULT and target.stage is Stage.RUN
    signature = seen.signature
    hangs = signature is not None and signature.kind is Kind.HANG
    ran = signature is not None and signature.stage in (Stage.RUN, Stage.COMPARE)
    return overruns and hangs and ran and options.guard_pages is Guard.OFF
