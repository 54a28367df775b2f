"""Lanes without processes, that end questions in whatever order does most harm."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

from shrinkfx.failure.verdict import Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.search.speculation import Pending

Check = Callable[[Candidate], Verdict]


class Asked:
    """A question under way; its answer is found when it ends, and may raise."""

    def __init__(self, candidate: Candidate, check: Check) -> None:
        self.candidate, self._check = candidate, check
        self._answer: Verdict | Exception | None = None
        self.is_cancelled = False
        self.times_counted = 0

    def end(self) -> None:
        assert not self.is_cancelled, "ended after it was cancelled"
        try:
            self._answer = self._check(self.candidate)
        except Exception as error:  # noqa: BLE001 - raised where the answer is read
            self._answer = error

    def done(self) -> bool:
        return self._answer is not None

    def result(self) -> Verdict:
        assert self._answer is not None, "nobody has waited"
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def cancel(self) -> None:
        self.is_cancelled = not self.done()

    def count(self) -> None:
        assert isinstance(self._answer, Verdict), "there is no answer to count"
        self.times_counted += 1


class AdverseLanes:
    """End a few questions at a time: by chance, or the search's own one last of all.

    Attributes:
        begun: every question, in order.
        asked_alone: those that were asked again.
        lone: answers these.
    """

    def __init__(self, check: Check, count: int, seed: int = 0) -> None:
        self._check, self.count, self.lone = check, count, check
        self.asked_alone: list[str] = []
        self._dice = random.Random(seed)
        self._lags = bool(seed % 2)
        self.begun: list[Asked] = []

    def begin(self, candidate: Candidate) -> Pending:
        assert len(self.under_way) < self.count, "no lane is free"
        running = {asked.candidate.digest for asked in self.under_way}
        assert candidate.digest not in running, "is under way already"
        self.begun.append(Asked(candidate, self._check))
        return self.begun[-1]

    def wait(self, pending: Collection[Pending]) -> None:
        open_ones = [asked for asked in self.under_way if asked in pending]
        if len(open_ones) < len(pending):
            return  # one is done already
        late = open_ones[1:] if self._lags else open_ones
        some = self._dice.randint(1, len(open_ones))
        for asked in self._dice.sample(late or open_ones, min(some, len(late) or 1)):
            asked.end()

    def alone(self, candidate: Candidate) -> Verdict:
        while self.under_way:
            self.under_way[0].end()
        self.asked_alone.append(candidate.digest)
        return self.lone(candidate)

    @property
    def under_way(self) -> list[Asked]:
        """List what was neither ended nor cancelled."""
        return [a for a in self.begun if not (a.done() or a.is_cancelled)]

    @property
    def digests(self) -> list[str]:
        return [asked.candidate.digest for asked in self.begun]
