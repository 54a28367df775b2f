"""What search asks and check answers: observations, verdicts and oracles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol, runtime_checkable

from shrinkfx.failure.signature import Signature
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import Step
from shrinkfx.protocol.record import Message


class Outcome(StrEnum):
    """The answer to one question."""

    REPRODUCED = "reproduced"
    DIFFERENT = "different"
    PASSED = "passed"
    UNRESOLVED = "unresolved"
    INVALID = "invalid"


@dataclass(frozen=True)
class Observation(Message):
    """What happened to one candidate: facts, no opinion.

    Attributes:
        signature: the failure, or None if it passed.
        invalid: why the candidate is no program to judge the compiler by, or ''.
        unresolved: why nothing can be said (a time limit, say), or ''.
        stopped: why a candidate that has passed so far was not run, or ''.
        step: of the build that failed, as far as known.
        runs: how often the program ran; all but the last one passed.
        waited_s: of ``seconds``, those that a busy machine had it wait.
        log: the end of what the child wrote.
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
    def tells(self) -> bool:
        """Whether it says anything of the program: nothing outside has ended it."""
        return self.signature is not None or not self.unresolved

    @property
    def passed(self) -> bool:
        """Whether it came to its end, with nothing wrong."""
        return not (self.signature or self.invalid or self.unresolved)

    @property
    def in_words(self) -> str:
        """What it did, in a line."""
        if self.signature:
            return str(self.signature)
        return self.invalid or self.unresolved or "passes: the same result as eager"

    @property
    def own_seconds(self) -> float:
        """Seconds that it would have taken with the machine to itself."""
        return self.seconds - self.waited_s


@dataclass(frozen=True)
class Verdict:
    outcome: Outcome
    observation: Observation = Observation()

    @property
    def reproduced(self) -> bool:
        """Only this makes a step."""
        return self.outcome is Outcome.REPRODUCED

    def held_to(self, shown: Signature | None) -> Verdict:
        """Take for another failure what differs otherwise than in one that is known."""
        seen = self.observation.signature
        differs = shown.differs if shown else ""
        if self.reproduced and seen and differs and seen.differs != differs:
            return replace(self, outcome=Outcome.DIFFERENT)
        return self


def judge(seen: Observation, target: Signature) -> Outcome:
    """Compare what happened with what we are looking for."""
    if seen.invalid:
        return Outcome.INVALID
    if target.admits(seen.signature):
        return Outcome.REPRODUCED
    if seen.unresolved:
        return Outcome.UNRESOLVED
    if seen.signature is None:
        return Outcome.PASSED
    return Outcome.DIFFERENT


class Undecided(Exception):
    """What ran beside a question may be to blame for its end: ask it again, alone."""


class Oracle(Protocol):
    """Answers whether a candidate still fails in the same way."""

    def check(self, candidate: Candidate) -> Verdict: ...


@runtime_checkable
class Learner(Protocol):
    """An oracle that goes by its earlier answers.

    It must also be told those that it was not asked for, since a journal had them.
    """

    def learn(self, candidate: Candidate, verdict: Verdict) -> None: ...
