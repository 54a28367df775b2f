"""Runs of the input program: their results, and whether to make more."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from shrinkfx.check.limits import Allowance
from shrinkfx.check.oracle import ENOUGH, CheckClient
from shrinkfx.errors import BudgetExhausted, Flag, MessageText
from shrinkfx.failure.signature import Kind, Signature, Stage, is_until_target
from shrinkfx.failure.verdict import Observation
from shrinkfx.protocol.requests import CheckOptions

MAX_RUNS = 100
"""The number of passing runs after which a program counts as passing, by default."""

_LEAST_S = 6.0
"""The shortest time limit of the runs, in seconds, however short the compilation was: a
process that shares nothing takes this long to import torch and compile a small program.
"""

_MOST_S = 60.0
"""The longest default time limit of the runs, in seconds, after a long compilation."""

MAX_SILENT_RUNS = 3
"""The number of runs without an answer (a limit was reached, or another process killed
them) after which there are no more."""


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


@dataclass(frozen=True)
class Runs:
    """The results of the runs so far, and whether more runs would tell more.

    Attributes:
        later: runs of several calls, none of which showed the requested failure.
    """

    wanted: str
    match: str
    seen: list[Observation]
    later: list[Observation] = field(default_factory=list)

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
        shown = [
            s.signature
            for s in self.seen
            if s.signature
            and is_until_target(self.wanted, s.signature)
            and s.signature.matches_text(self.match)
        ]
        if not shown:
            return None
        return replace(max(shown, key=self._shows), match=self.match)

    @property
    def failed_count(self) -> int:
        """The number of runs that showed the target."""
        return self._shows(self.target) if self.target else 0

    def _shows(self, failure: Signature) -> int:
        return sum(failure.admits(s.signature) for s in self.seen)

    def have_shown(self, failure: Signature) -> bool:
        return any(s.signature and s.signature.admits(failure) for s in self.seen)

    def are_enough(self, max_runs: int) -> bool:
        target = self.target
        silent = [s for s in self.seen if s.unresolved]
        if any(s.invalid for s in self.seen) or len(silent) >= MAX_SILENT_RUNS:
            return True  # another run would be refused again, or cost as much
        if self._always_in(Stage.COMPILE, Stage.LOAD):
            return True  # two processes failed alike, which is no coincidence
        if target is None:
            return self.made_count >= max_runs
        if any(target.admits(s.signature) for s in silent):
            return True  # each run that shows it lasts to the limit
        # Fewer failures give a rate that is too uncertain to plan with.
        return self.failed_count >= ENOUGH or self.total >= ENOUGH * max_runs

    def _always_in(self, *stages: Stage) -> bool:
        """Tell whether two or more runs failed alike, in one of the stages."""
        first, *others = (s.signature for s in self.seen)
        if first is None or first.stage not in stages:
            return False
        return bool(others) and all(map(first.admits, others))


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


@dataclass
class Bounds:
    """Limits on the number of runs, and on their time.

    Attributes:
        max_runs: the number of passing runs after which the program counts as passing.
        seconds: the time limit of the runs that compile nothing, if none fails.
        compile_s: the seconds of the compilation and first run.
        compile_own_s: those seconds without waiting for a core.
        spent_s: the seconds of the runs so far that compiled nothing.
        out_of_minutes: whether a run was skipped or cut short for lack of time.
        seeds: the hash seeds to recompile a passing program with.
        compilations: the number of compilations, with the first one.
    """

    max_runs: int
    seconds: float
    compile_s: float
    budget: Allowance
    compile_own_s: float = 0.0
    spent_s: float = 0.0
    out_of_minutes: bool = False
    seeds: tuple[str, ...] = ()
    compilations: int = 1
    _longest_s: float = 0.0
    _end_s: float | None = None

    @classmethod
    def after_first_run(
        cls,
        first: Observation,
        max_runs: int | None,
        budget: Allowance,
        seeds: tuple[str, ...] = (),
    ) -> Bounds:
        """Set the limits after the first run: on time only if ``max_runs`` is None.

        Args:
            first: the run that compiled the program.
        """
        compiled_s = min(_MOST_S, max(_LEAST_S, first.seconds))
        seconds = math.inf if max_runs else compiled_s
        bounds = cls(max_runs or MAX_RUNS, seconds, first.seconds, budget)
        return replace(bounds, compile_own_s=first.own_seconds, seeds=seeds)

    @property
    def limit_phrase(self) -> str:
        """The time limit as a phrase; '' if there is none."""
        bounded = math.isfinite(self.seconds)
        return f", for at most {max(1.0, self.seconds):.0f} s" if bounded else ""

    def explain_end(self, runs: Runs) -> MessageText:
        """Describe what ended the runs of a passing program, and how to allow more.

        It is empty if ``max_runs`` was reached, or more runs would tell nothing more.
        """
        if self.out_of_minutes:
            more = Flag("--max-minutes")
            return MessageText(
                "the time limit allowed no more runs; to allow more: ", more
            )
        if runs.are_enough(self.max_runs):
            return MessageText()
        more = Flag("--baseline-runs", stands="N")
        return MessageText(f"the runs took {self.seconds:.0f} s; to allow more: ", more)

    def is_exhausted(self, runs: Runs) -> bool:
        """Tell whether there is no time for another run.

        Until the program fails, it may use all the time. Once it fails, measuring its
        rate may use a share of it.
        """
        if runs.target is None:
            return not self.have_minutes() or self.spent_s >= self.seconds
        if self._end_s is None:
            self.budget.keep(self.compile_s)
            self._end_s = self.spent_s + self.budget.share()
        if self.spent_s + self._longest_s >= self._end_s:
            self.out_of_minutes = True
        return self.out_of_minutes

    def have_minutes(self) -> bool:
        """Tell whether there is time for another run of a passing program."""
        if not self.budget.has(self._longest_s):
            self.out_of_minutes = True
        return not self.out_of_minutes

    def allow_compiling(self, runs: Runs) -> bool:
        """Tell whether there is time to compile the program again."""
        if runs.target is None:
            allowed = self.budget.has(self.compile_s)
        else:
            self.budget.keep(self.compile_s)
            allowed = self.compile_s <= self.budget.share()
        self.out_of_minutes |= not allowed
        return allowed

    def compile_and_run(
        self, client: CheckClient, *, fresh: bool = False
    ) -> Observation | None:
        """Compile and run the program; None if the time ended first."""
        try:
            return client.run_input_program(fresh=fresh)[0]
        except BudgetExhausted:
            self.out_of_minutes = True
            return None

    def recompile_and_run(
        self, client: CheckClient, *, fresh: bool = False
    ) -> Observation | None:
        """Compile the program again, count that, and run it; None if the time ended."""
        self.compilations += 1
        return self.compile_and_run(client, fresh=fresh)

    def run(self, client: CheckClient, *, fresh: bool = False) -> Observation | None:
        """Run the compiled program; None if the time ended first."""
        seen = self.compile_and_run(client, fresh=fresh)
        if seen is not None:
            self.spent_s += seen.seconds
            self._longest_s = max(self._longest_s, seen.seconds)
        return seen
