"""Runs of an unchanged program: what they have shown, and whether to make more."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from shrinkfx.check.allowance import Allowance
from shrinkfx.check.oracle import ENOUGH, CheckClient
from shrinkfx.errors import BudgetExhausted
from shrinkfx.failure.signature import Kind, Signature, Stage, asked_for
from shrinkfx.failure.verdict import Observation
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.wording import Flag, Words

MAX_RUNS = 100
"""Runs before a program is said not to fail, if nobody says how many."""

_LEAST_S = 6.0
"""Seconds that runs may take, however short the compilation: what it takes to import
torch and to compile a small program, in a process that shares nothing."""

_MOST_S = 60.0
"""Seconds that they may take together then, if compiling it took no less."""

MAX_SILENT_RUNS = 3
"""Runs that last to a limit, or are killed from outside, before there are no more."""


@dataclass
class Packages:
    """What was compiled of the unchanged program, for whoever runs it next.

    Attributes:
        folder: where it lies, in a file for each code.
        on_gpu: kernels are timed during compilation, between the guard pages that the
            process has: what another process compiled without them has not shown that.
        first: the run that has compiled the program with its own settings, or None.
    """

    folder: str
    on_gpu: bool = False
    first: Observation | None = None

    def place(self, options: CheckOptions) -> str:
        """Name the file for a program that is compiled so."""
        code = "not-reused" if options.inductor else "as-it-is"
        beside = f"-{options.guard_pages}" if self.on_gpu else ""
        return f"{self.folder}/{code}{beside}.pt2"


@dataclass(frozen=True)
class Runs:
    """What the runs so far have shown, and whether more would tell more.

    Attributes:
        later: runs of several calls, none of which showed what was asked for.
    """

    wanted: str
    match: str
    seen: list[Observation]
    later: list[Observation] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(s.runs for s in self.seen)

    @property
    def told(self) -> int:
        """Count the runs that came to an end of their own: the others tell nothing."""
        return sum(s.runs for s in self.seen if s.tells)

    @property
    def made(self) -> int:
        return self.total + len(self.later)

    @property
    def target(self) -> Signature | None:
        """The failure asked for that most runs show; the first seen of equals."""
        shown = [
            s.signature
            for s in self.seen
            if s.signature
            and asked_for(self.wanted, s.signature)
            and s.signature.says(self.match)
        ]
        if not shown:
            return None
        return replace(max(shown, key=self._shows), match=self.match)

    @property
    def failed(self) -> int:
        """Count the runs that failed as the target says."""
        return self._shows(self.target) if self.target else 0

    def _shows(self, failure: Signature) -> int:
        return sum(failure.admits(s.signature) for s in self.seen)

    def have_shown(self, failure: Signature) -> bool:
        return any(s.signature and s.signature.admits(failure) for s in self.seen)

    def are_enough(self, max_runs: int) -> bool:
        target = self.target
        silent = [s for s in self.seen if s.unresolved]
        if any(s.invalid for s in self.seen) or len(silent) >= MAX_SILENT_RUNS:
            return True  # each more would be refused again, or cost as much
        if self._always_in(Stage.COMPILE, Stage.LOAD):
            return True  # two processes were no chance
        if target is None:
            return self.made >= max_runs
        if any(target.admits(s.signature) for s in silent):
            return True  # each one that shows it lasts to a limit
        # Few failures make a rate that cannot be planned with.
        return self.failed >= ENOUGH or self.total >= ENOUGH * max_runs

    def _always_in(self, *stages: Stage) -> bool:
        """Tell whether two runs or more have failed alike, in one of the stages."""
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
"""Failures that say what is wrong: that it happened in a fork is not why."""


def is_in_words(target: Signature | None) -> bool:
    return target is not None and target.kind in _IN_WORDS


@dataclass
class Bounds:
    """How many runs may be made, and for how long.

    Attributes:
        max_runs: before the program is said not to fail.
        seconds: that runs may take which compile nothing, if none fails.
        compile_s: what compiling the program took, and its first run.
        compile_own_s: of that, its own time.
        spent_s: by the runs so far that have compiled nothing.
        out_of_minutes: a run was not made, or cut short, for want of minutes.
        seeds: hash seeds with which it is compiled again where it passes.
        compilations: how often it was compiled, the first time included.
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
    def after(
        cls,
        first: Observation,
        max_runs: int | None,
        budget: Allowance,
        seeds: tuple[str, ...] = (),
    ) -> Bounds:
        """Bound the runs after the first one: by time only if nobody says how many.

        Args:
            first: the one that has compiled the program.
        """
        compiled_s = min(_MOST_S, max(_LEAST_S, first.seconds))
        seconds = math.inf if max_runs else compiled_s
        bounds = cls(max_runs or MAX_RUNS, seconds, first.seconds, budget)
        return replace(bounds, compile_own_s=first.own_seconds, seeds=seeds)

    @property
    def in_words(self) -> str:
        """Say how long runs may go on, if that is bounded."""
        bounded = math.isfinite(self.seconds)
        return f", for at most {max(1.0, self.seconds):.0f} s" if bounded else ""

    def why_no_more(self, runs: Runs) -> Words:
        """Say what has ended the runs of a program that passes, and how to have more.

        Nothing if it was run as often as it may be, or more would tell no more.
        """
        if self.out_of_minutes:
            more = Flag("--max-minutes")
            return Words("the time limit allowed no more runs; to allow more: ", more)
        if runs.are_enough(self.max_runs):
            return Words()
        more = Flag("--baseline-runs", stands="N")
        return Words(f"the runs took {self.seconds:.0f} s; to allow more: ", more)

    def ends(self, runs: Runs) -> bool:
        """Tell whether there is no time for another run, however many there were.

        As long as it passes it may have all the minutes. Once it fails, how often it
        does is worth a share of them.
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
        """Tell whether there are minutes for a run of a program that passes."""
        if not self.budget.has(self._longest_s):
            self.out_of_minutes = True
        return not self.out_of_minutes

    def allow_compiling(self, runs: Runs) -> bool:
        """Tell whether it may be compiled once more, to see what that does then."""
        if runs.target is None:
            allowed = self.budget.has(self.compile_s)
        else:
            self.budget.keep(self.compile_s)
            allowed = self.compile_s <= self.budget.share()
        self.out_of_minutes |= not allowed
        return allowed

    def compiled(
        self, client: CheckClient, *, fresh: bool = False
    ) -> Observation | None:
        """Compile and run it; None if the minutes were spent before its end."""
        try:
            return client.original(fresh=fresh)[0]
        except BudgetExhausted:
            self.out_of_minutes = True
            return None

    def compiled_anew(
        self, client: CheckClient, *, fresh: bool = False
    ) -> Observation | None:
        """Do so once more."""
        self.compilations += 1
        return self.compiled(client, fresh=fresh)

    def run(self, client: CheckClient, *, fresh: bool = False) -> Observation | None:
        """Run what is compiled; None if the minutes were spent before its end."""
        seen = self.compiled(client, fresh=fresh)
        if seen is not None:
            self.spent_s += seen.seconds
            self._longest_s = max(self._longest_s, seen.seconds)
        return seen
