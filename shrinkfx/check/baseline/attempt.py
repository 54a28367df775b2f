"""Attempts: runs of the input program in one way, and whether to make more."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from shrinkfx.check.limits import UNLIMITED, Allowance
from shrinkfx.check.oracle import ENOUGH, RUNS_PER_CHILD, TIMES, CheckClient
from shrinkfx.errors import BudgetExhausted
from shrinkfx.failure.signature import ANY, Kind, Signature, Stage, is_until_target
from shrinkfx.failure.verdict import Observation
from shrinkfx.protocol.choices import Step, Weights
from shrinkfx.protocol.requests import CheckOptions

MAX_RUNS = 100
"""The number of passing runs after which a program counts as passing, by default."""

_LEAST_S = 6.0
"""The shortest time limit of the runs, in seconds, however short the compilation was: a
process that shares nothing takes this long to import torch and compile a small program.
"""

_MOST_S = 60.0
"""The longest default time limit of the runs, in seconds, after a long compilation."""

_SEPARATE_RUNS = 2
"""The number of runs, one per process, before wrong results may share a process."""

_SLOW_RUN_S, _FEW = 5.0, 3
"""If a run takes ``_SLOW_RUN_S`` seconds, ``_FEW`` runs with the same wrong result are
enough."""

MAX_SILENT_RUNS = 3
"""The number of runs without an answer (a limit was reached, or another process killed
them) after which there are no more."""


@dataclass(frozen=True)
class BaselineRequest:
    """The failure that a baseline looks for, and what it may cost.

    Attributes:
        until: the kind of failure that the user asked for; None for any kind.
        match: a regular expression that must match the failure's text.
        note: takes messages for the user.
        max_runs: the number of runs after which the program counts as passing. None
            means ``MAX_RUNS``, and no longer than the compilation took.
        max_calls: the highest number of calls in one run.
        budget: if it is short, optional runs are skipped.
        has_guards: compiled code can check its inputs and name a wrong value, as that
            of AOTInductor can.
    """

    until: str | None = None
    match: str = ""
    note: Callable[[str], None] = lambda text: None
    max_runs: int | None = None
    max_calls: int = 1
    budget: Allowance = UNLIMITED
    has_guards: bool = True

    @property
    def wanted(self) -> str:
        return self.until or ANY

    def is_shown_by(self, seen: Observation) -> bool:
        """Tell whether a run showed the requested failure."""
        failure = seen.signature
        return bool(
            failure
            and is_until_target(self.wanted, failure)
            and failure.matches_text(self.match)
        )


@dataclass
class Packages:
    """The compiled packages of the input program, for later runs.

    Attributes:
        folder: the folder of the packages, one file for each code.
        on_gpu: a package depends on the guard pages too, because kernels are timed
            during compilation, between the guard pages of the process.
        first: the run that compiled the program with its own settings, or None.
    """

    folder: str
    on_gpu: bool = False
    first: Observation | None = None

    def path_for(self, options: CheckOptions) -> str:
        """Return the path of the package for these options."""
        code = "not-reused" if options.inductor else "as-it-is"
        suffix = f"-{options.guard_pages}" if self.on_gpu else ""
        return f"{self.folder}/{code}{suffix}.pt2"


@dataclass
class Attempt:
    """The runs of the input program in one way, and what further runs may cost.

    Attributes:
        client: makes the next run.
        compiled: the run that compiled the program.
        seen: the runs so far.
        later: runs of several calls, none of which showed the requested failure.
        spent_s: the seconds of the runs so far that compiled nothing.
        out_of_minutes: whether a run was skipped or cut short for lack of time.
        began_fresh: whether the first run was in a fresh interpreter, after the program
            had passed in a fork.
        compilations: the number of compilations, with the first one.
    """

    client: CheckClient
    request: BaselineRequest
    compiled: Observation
    seen: list[Observation] = field(default_factory=list)
    later: list[Observation] = field(default_factory=list)
    spent_s: float = 0.0
    out_of_minutes: bool = False
    began_fresh: bool = False
    compilations: int = 1
    _may_share: bool = True
    _longest_s: float = 0.0
    _end_s: float | None = None

    @property
    def max_runs(self) -> int:
        return self.request.max_runs or MAX_RUNS

    @property
    def seconds(self) -> float:
        """The time limit of the runs that compile nothing, if none fails."""
        if self.request.max_runs:
            return math.inf
        return min(_MOST_S, max(_LEAST_S, self.compiled.seconds))

    @property
    def total(self) -> int:
        return sum(s.runs for s in self.seen)

    @property
    def answered_count(self) -> int:
        """The number of runs that have an answer."""
        return sum(s.runs for s in self.seen if s.is_conclusive)

    @property
    def made_count(self) -> int:
        return self.total + len(self.later)

    @property
    def target(self) -> Signature | None:
        """The most frequent requested failure; the first seen of equals."""
        request = self.request
        shown = [s.signature for s in self.seen if request.is_shown_by(s)]
        known = [signature for signature in shown if signature]
        if not known:
            return None
        return replace(max(known, key=self._count), match=request.match)

    @property
    def failed_count(self) -> int:
        """The number of runs that showed the target."""
        return self._count(self.target) if self.target else 0

    @property
    def always_fails(self) -> bool:
        return self.failed_count == self.answered_count

    def _count(self, failure: Signature) -> int:
        return sum(failure.admits(s.signature) for s in self.seen)

    def has_shown(self, failure: Signature) -> bool:
        return any(s.signature and s.signature.admits(failure) for s in self.seen)

    def run_until_enough(self) -> None:
        """Add runs to the first one until they are enough.

        A program that did not fail in a fork is compiled again, because it may fail
        then. So is one that did not compile, because it must fail again, unless
        Inductor's Python code raised the error while it lowered the graph.
        """
        may_retry = self.target is None and (
            (self.max_runs > 1 and not self.began_fresh) or self._leaves_out_weights
        )
        may_retry |= self._fails_to_compile and not self._fails_in_lowering
        if may_retry and self._allows_compiling():
            self._recompile()
        max_calls = min(self.request.max_calls, 1 + self.max_runs - self.made_count)
        if max_calls > 1 and all(s.passed for s in self.seen):
            self._find_calls(max_calls)
        self._go_on()

    def ask(self, client: CheckClient, *, fresh: bool = False) -> Observation | None:
        """Run the program; None if the time ended first."""
        try:
            return client.run_input_program(fresh=fresh)[0]
        except BudgetExhausted:
            self.out_of_minutes = True
            return None

    def explain_end(self) -> str:
        """Describe what ended the runs of a passing program, and how to allow more.

        It is empty if ``max_runs`` was reached, or more runs would tell nothing more.
        """
        if self.out_of_minutes:
            return "the time limit allowed no more runs; to allow more: --max-minutes"
        if self._are_enough():
            return ""
        return f"the runs reached {self.seconds:.0f} s; for N runs: --baseline-runs N"

    @property
    def _leaves_out_weights(self) -> bool:
        return self.client.options.weights is Weights.BESIDE

    @property
    def _fails_to_compile(self) -> bool:
        return self.target is not None and self.target.stage is Stage.COMPILE

    @property
    def _fails_in_lowering(self) -> bool:
        """Whether Inductor raised an error, and not the C++ compiler, in the first run.

        Another fork of the same process would raise it again.
        """
        target = self.target
        if target is None or target.kind is not Kind.COMPILE_ERROR:
            return False
        is_cpp = target.detail.startswith("C++")
        return not is_cpp and [s.step for s in self.seen] == [Step.LOWERING]

    def _recompile(self) -> None:
        """Compile and run the program again, with its weights inside the package.

        If weights were left out and that makes no difference, they stay out.
        """
        self.compilations += 1
        target, name = self.target, f"{self.client.options.package}.again"
        again = self.client.with_options(package=name, weights=Weights.INSIDE)
        seen = self.ask(again, fresh=not is_self_explanatory(target))
        if seen is None:
            return
        self.seen.append(seen)
        if self._leaves_out_weights:
            if target or not self.target:
                return
            # Passing runs without the weights tell nothing of the rate with them.
            self.seen[:] = [seen]
        self.client = again

    def _find_calls(self, max_calls: int) -> None:
        """Find the fewest calls after which the program fails.

        If it fails, the results of the runs with fewer calls are discarded.
        """
        self.request.note(
            f"the program changes its buffers: calling it up to {max_calls} times in "
            "one run"
        )
        for calls in range(2, max_calls + 1):
            if not self._has_minutes():  # another call is not a repetition
                return
            again = self.client.with_options(calls=calls)
            seen = self._run(again)
            if seen is None:
                return
            if self.request.is_shown_by(seen):
                self.request.note(f"the failure shows in call {calls} of a run")
                self.seen[:], self.client = [seen], again
                return
            self.later.append(seen)

    def _go_on(self) -> None:
        """Run the compiled program until the runs are enough."""
        client, max_runs, note = self.client, self.max_runs, self.request.note
        if not self._are_enough():
            within = ""
            if math.isfinite(self.seconds):
                within = f", for at most {max(1.0, self.seconds):.0f} s"
            often = f"has not failed; running it up to {max_runs} times{within}"
            until = "has failed; running it again to measure how often it fails"
            note(f"the program {often if self.target is None else until}")
        while not self._are_enough() and not self._is_exhausted():
            # At first, each run has its own process: a run may see another one's state.
            remaining = max_runs * (ENOUGH if self.target else 1) - self.made_count
            batch = 1 if len(self.seen) < ENOUGH else min(RUNS_PER_CHILD, remaining)
            shared = self._shared_runs
            again = client.with_options(runs=batch, failing_runs=shared)
            if self._fails_to_compile:
                again = client.with_options(package=None)
            is_second = len(self.seen) == 1 and not self.began_fresh
            fresh = is_second and not self._explains_failure()
            seen = self._run(again, fresh=fresh)
            if seen and shared > 1:
                self._add_shared_runs(seen, shared)
            elif seen:
                self.seen.append(seen)
        silent = [s.unresolved for s in self.seen if s.unresolved]
        if len(silent) >= MAX_SILENT_RUNS:
            note(
                f"{len(silent)} runs were inconclusive ({silent[-1]}): stopping the "
                "runs"
            )

    @property
    def _shared_runs(self) -> int:
        """The number of runs that the next process makes of a wrong result."""
        shares = self._may_share and len(self.seen) >= _SEPARATE_RUNS
        shares = shares and not self._is_slow
        is_wrong = self.target is not None and self._always_in(Stage.COMPARE)
        return ENOUGH - self.failed_count if shares and is_wrong else 1

    def _add_shared_runs(self, seen: Observation, runs: int) -> None:
        """Add the runs of one process, if all of them had the same wrong result.

        If not, later runs depend on earlier ones, or on chance. Then the process tells
        nothing, and the remaining runs have a process each.
        """
        alike = bool(self.target and self.target.admits(seen.signature))
        self._may_share = alike and seen.runs >= runs
        if alike and seen.runs == 1:
            self.seen.append(seen)  # a run that changes the program is not repeated
        elif self._may_share:
            times = {name: getattr(seen, name) / runs for name in TIMES}
            self.seen += [replace(seen, runs=1, **times)] * runs

    def _explains_failure(self) -> bool:
        """Tell whether the failure says what is wrong, so the fork is not its cause.

        Guard pages tell which tensor was overrun, and by how much.
        """
        target = self.target
        has_pages = self.client.options.guard_pages.has_pages
        overruns = target is not None and target.kind is Kind.IMA and has_pages
        return overruns or is_self_explanatory(target)

    def _are_enough(self) -> bool:
        target = self.target
        silent = [s for s in self.seen if s.unresolved]
        if any(s.invalid for s in self.seen) or len(silent) >= MAX_SILENT_RUNS:
            return True  # another run would be refused again, or cost as much
        if self._always_in(Stage.COMPILE, Stage.LOAD):
            return True  # two processes failed alike, which is no coincidence
        if self._fails_in_lowering:
            return True
        if target is None:
            return self.made_count >= self.max_runs
        if any(target.admits(s.signature) for s in silent):
            return True  # each run that shows it lasts to the limit
        if self._is_slow and self._is_same_result():
            return True
        # Fewer failures give a rate that is too uncertain to plan with.
        return self.failed_count >= ENOUGH or self.total >= ENOUGH * self.max_runs

    def _always_in(self, *stages: Stage) -> bool:
        """Tell whether two or more runs failed alike, in one of the stages."""
        first, *others = (s.signature for s in self.seen)
        if first is None or first.stage not in stages:
            return False
        return bool(others) and all(map(first.admits, others))

    @property
    def _is_slow(self) -> bool:
        """Whether each run that compiled nothing took long, without waiting."""
        later = [s.own_seconds for s in self.seen[1:]]
        return bool(later) and min(later) >= _SLOW_RUN_S

    def _is_same_result(self) -> bool:
        """Tell whether ``_FEW`` runs had the same wrong result, and no run another.

        The text of the result has the number of wrong elements and the first of them.
        """
        texts = {s.signature.text for s in self.seen if s.signature}
        same = len(self.seen) >= _FEW and len(texts) == 1
        return same and self._may_share and self._always_in(Stage.COMPARE)

    def _is_exhausted(self) -> bool:
        """Tell whether there is no time for another run.

        Until the program fails, it may use all the time. Once it fails, measuring its
        rate may use a share of it.
        """
        if self.target is None:
            return not self._has_minutes() or self.spent_s >= self.seconds
        if self._end_s is None:
            self.request.budget.keep(self.compiled.seconds)
            self._end_s = self.spent_s + self.request.budget.share()
        if self.spent_s + self._longest_s >= self._end_s:
            self.out_of_minutes = True
        return self.out_of_minutes

    def _has_minutes(self) -> bool:
        """Tell whether there is time for another run of a passing program."""
        if not self.request.budget.has(self._longest_s):
            self.out_of_minutes = True
        return not self.out_of_minutes

    def _allows_compiling(self) -> bool:
        """Tell whether there is time to compile the program again."""
        budget, compile_s = self.request.budget, self.compiled.seconds
        if self.target is None:
            allowed = budget.has(compile_s)
        else:
            budget.keep(compile_s)
            allowed = compile_s <= budget.share()
        self.out_of_minutes |= not allowed
        return allowed

    def _run(self, client: CheckClient, *, fresh: bool = False) -> Observation | None:
        """Run the compiled program, and count the time; None if the time ended."""
        seen = self.ask(client, fresh=fresh)
        if seen is not None:
            self.spent_s += seen.seconds
            self._longest_s = max(self._longest_s, seen.seconds)
        return seen


_IN_WORDS = (
    Kind.ASSERT,
    Kind.NAN,
    Kind.MISMATCH,
    Kind.CHECK_INPUTS,
    Kind.COMPILE_ERROR,
    Kind.LOAD_ERROR,
    Kind.EXCEPTION,
)
"""Failures that say what is wrong, so that the fork is not their cause."""


def is_self_explanatory(target: Signature | None) -> bool:
    return target is not None and target.kind in _IN_WORDS
