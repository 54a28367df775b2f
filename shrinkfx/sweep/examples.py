"""The examples of a sweep: sizes, each run once, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Protocol, Self

from shrinkfx.errors import ShrinkfxError, StorageError, WorkerError
from shrinkfx.failure.signature import Kind, Signature
from shrinkfx.failure.verdict import Observation
from shrinkfx.program.sizes import Sizes


class Answer(StrEnum):
    """What a program did at some sizes."""

    PASSES = "passes"
    FAILS = "fails"
    INVALID = "invalid"
    """Eager fails there itself."""
    UNRESOLVED = "unresolved"


@dataclass(frozen=True)
class Example:
    """One run.

    Attributes:
        signature: of a failure that counts.
        reason: why there is no answer, or ''.
        failure: which of the failures of the sweep this is, from 0 on; -1 is none.
    """

    sizes: Sizes
    answer: Answer
    signature: Signature | None = None
    reason: str = ""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    failure: int = -1

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        signature = data["signature"]
        known = {
            "sizes": tuple(data["sizes"]),
            "answer": Answer(data["answer"]),
            "signature": Signature.from_json(signature) if signature else None,
        }
        return cls(**{**data, **known})


@dataclass(frozen=True)
class SweepFailure:
    """A failure, at the smallest sizes that show it.

    Attributes:
        nearest: the nearest sizes that pass, or None where none are known.
        first: how many examples it took to see it.
        failing: how many of the sweep's sizes showed it.
        runs: how often the smallest sizes were run, and how often they failed so.
        missing_guard: they are outside of what the program declares, and nothing
            refused them.
    """

    sizes: Sizes
    signature: Signature
    nearest: Sizes | None
    first: int
    failing: int
    runs: int = 1
    failed: int = 1
    missing_guard: bool = False


class Record(Protocol):
    """Where examples are written down, and read again after a kill."""

    def recall(self, sizes: Sizes, attempt: int) -> Example | None: ...

    def asked(self, sizes: Sizes, attempt: int) -> int: ...

    def answered(self, number: int, example: Example) -> None: ...

    def withdrawn(self, number: int) -> None: ...


class Nowhere:
    """A record that keeps nothing."""

    def recall(self, sizes: Sizes, attempt: int) -> Example | None:
        return None

    def asked(self, sizes: Sizes, attempt: int) -> int:
        return 0

    def answered(self, number: int, example: Example) -> None:
        pass

    def withdrawn(self, number: int) -> None:
        pass


def judge_example(sizes: Sizes, seen: Observation, until: str) -> Example:
    """Say what a run at some sizes means.

    A time or memory limit is an answer only to those who look for one.
    """
    silent = bool(seen.unresolved) and until not in (Kind.HANG, Kind.OOM)
    if seen.invalid or silent or (seen.unresolved and not seen.signature):
        answer = Answer.INVALID if seen.invalid else Answer.UNRESOLVED
        reason = seen.invalid or seen.unresolved
        return Example(sizes, answer, None, reason, seen.seconds, seen.cpu_seconds)
    answer = Answer.FAILS if seen.signature else Answer.PASSES
    return Example(sizes, answer, seen.signature, "", seen.seconds, seen.cpu_seconds)


class Examples:
    """Runs a program at sizes, at most once at each, and tells failures apart.

    Args:
        run: what runs it; asked only for sizes that are not in the record.
    """

    def __init__(
        self,
        run: Callable[[Sizes], Example],
        record: Record | None = None,
        listener: Callable[[Example], None] = lambda example: None,
    ) -> None:
        self._run = run
        self._record = record or Nowhere()
        self._listener = listener
        self._failures: list[Signature] = []
        self._known: dict[tuple[Sizes, int], Example] = {}

    def ask(self, sizes: Sizes) -> Example:
        return self.again(sizes, 0)

    def again(self, sizes: Sizes, attempt: int) -> Example:
        """Run sizes one more time; each attempt is one that is not repeated either."""
        key = (sizes, attempt)
        if key not in self._known:
            example = self._record.recall(*key)
            if example is None:
                example = self._run_recorded(*key)
            self._known[key] = self._numbered(example)
            self._listener(self._known[key])
        return self._known[key]

    def _run_recorded(self, sizes: Sizes, attempt: int) -> Example:
        number = self._record.asked(sizes, attempt)
        try:
            example = self._run(sizes)
        except WorkerError:
            raise  # which these sizes may have killed
        except (ShrinkfxError, OSError, KeyboardInterrupt):
            with suppress(StorageError):  # it is not these sizes that end the sweep
                self._record.withdrawn(number)
            raise
        self._record.answered(number, example)
        return example

    def all(self) -> list[Example]:
        """List what is known, in the order of asking, each of the sizes once."""
        return [e for (_, attempt), e in self._known.items() if not attempt]

    def passing(self) -> list[Example]:
        return [e for e in self.all() if e.answer is Answer.PASSES]

    def failing(self, number: int) -> list[Example]:
        return [e for e in self.all() if e.failure == number]

    def failures(self) -> range:
        """Number the failures that were seen."""
        return range(len(self._failures))

    def first(self, number: int) -> int:
        """Tell how many examples it took to see a failure."""
        failures = [example.failure for example in self.all()]
        return 1 + failures.index(number)

    def _numbered(self, example: Example) -> Example:
        """Say which failure it is: one that was seen before, or a new one."""
        seen = example.signature
        if seen is None:
            return example
        same = (
            number
            for number, known in enumerate(self._failures)
            if known.admits(seen) or seen.admits(known)
        )
        number = next(same, len(self._failures))
        if number == len(self._failures):
            self._failures.append(seen)
        return replace(example, failure=number)
