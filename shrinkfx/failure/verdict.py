"""The interface between search and check: observations, verdicts and oracles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol, runtime_checkable

from shrinkfx.failure.signature import Signature
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import Step
from shrinkfx.protocol.record import Message


class Outcome(StrEnum):
    """The outcome of one query."""

    REPRODUCED = "reproduced"
    DIFFERENT = "different"
    PASSED = "passed"
    UNRESOLVED = "unresolved"
    INVALID = "invalid"


@dataclass(frozen=True)
class Observation(Message):
    """The facts about one check of a candidate, without a judgment.

    Attributes:
        signature: the failure, or None if the candidate passed.
        invalid: the reason why the candidate cannot be used to judge the compiler, or
            ''.
        unresolved: the reason why the outcome is unknown, such as a time limit; or ''.
        stopped: the reason why a candidate that passed so far was not run, or ''.
        step: the build step that failed, if known.
        runs: the number of runs of the program; all but the last one passed.
        waited_s: the part of ``seconds`` in which the child waited for a busy machine.
        log: the end of the child's output.
    """

    signature: Signature | None = None
    invalid: str = ""
    unresolved: str = ""
    stopped: str = ""
    step: Step | None = None
    runs: int = 1
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0
    log: str = ""
    waited_s: float = 0.0

    @property
    def is_conclusive(self) -> bool:
        """Whether this says anything about the program: nothing external ended it."""
        return self.signature is not None or not self.unresolved

    @property
    def passed(self) -> bool:
        """Whether the check ended without a failure."""
        return not (self.signature or self.invalid or self.unresolved)

    @property
    def in_words(self) -> str:
        """The observation in one line."""
        if self.signature:
            return str(self.signature)
        return self.invalid or self.unresolved or "passes: the same result as eager"

    @property
    def own_seconds(self) -> float:
        """The seconds that the check would have taken on an idle machine."""
        return self.seconds - self.waited_s


@dataclass(frozen=True)
class Verdict:
    outcome: Outcome
    observation: Observation = Observation()

    @property
    def reproduced(self) -> bool:
        """Whether the outcome is REPRODUCED; no other outcome makes a step."""
        return self.outcome is Outcome.REPRODUCED

    def require_difference_of(self, shown: Signature | None) -> Verdict:
        """Return DIFFERENT if another property of the result differs than before."""
        seen = self.observation.signature
        differs = shown.differs if shown else ""
        if self.reproduced and seen and differs and seen.differs != differs:
            return replace(self, outcome=Outcome.DIFFERENT)
        return self


def judge(seen: Observation, target: Signature) -> Outcome:
    """Compare an observation with the target failure."""
    if seen.invalid:
        return Outcome.INVALID
    if target.admits(seen.signature):
        return Outcome.REPRODUCED
    if seen.unresolved:
        return Outcome.UNRESOLVED
    if seen.signature is None:
        return Outcome.PASSED
    return Outcome.DIFFERENT


class ConcurrentQueryError(Exception):
    """A concurrent query may have ended this one; repeat it alone."""


class Oracle(Protocol):
    """An object that answers whether a candidate still fails in the same way."""

    def check(self, candidate: Candidate) -> Verdict: ...


@runtime_checkable
class Learner(Protocol):
    """An oracle that uses its earlier answers.

    It must also learn the answers that a journal supplied.
    """

    def learn(self, candidate: Candidate, verdict: Verdict) -> None: ...
