"""The examples of a sweep: sizes, each run once, and their outcomes."""

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
    """The outcome of a program at some sizes."""

    PASSES = "passes"
    FAILS = "fails"
    INVALID = "invalid"
    """Eager fails at these sizes."""
    UNRESOLVED = "unresolved"


@dataclass(frozen=True)
class Example:
    """One run of the program at some sizes.

    Attributes:
        signature: the failure, if it is one that the sweep looks for.
        reason: why there is no answer, or ''.
        failure: the number of this failure within the sweep, from 0 on; -1 for none.
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
    """A failure, with the smallest sizes that show it.

    Attributes:
        nearest: the nearest sizes that pass, or None if none are known.
        first: the number of examples until the failure showed.
        failing: how many of the sweep's sizes showed it.
        runs: how often the smallest sizes were run.
        failed: how many of these runs showed the failure.
        missing_guard: the sizes are outside of the declared ranges, and no guard
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


class ExampleRecord(Protocol):
    """A store of examples that survives a kill."""

    def recall(self, sizes: Sizes, attempt: int) -> Example | None: ...

    def record_start(self, sizes: Sizes, attempt: int) -> int: ...

    def record_example(self, number: int, example: Example) -> None: ...

    def delete_start(self, number: int) -> None: ...


class NullRecord:
    """A record that stores nothing."""

    def recall(self, sizes: Sizes, attempt: int) -> Example | None:
        return None

    def record_start(self, sizes: Sizes, attempt: int) -> int:
        return 0

    def record_example(self, number: int, example: Example) -> None:
        pass

    def delete_start(self, number: int) -> None:
        pass


def judge_example(sizes: Sizes, seen: Observation, until: str) -> Example:
    """Classify the observation of a run at some sizes.

    A time or memory limit is a failure only if ``until`` asks for that kind.
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
        run: runs the program; it is only called for sizes that are not in the record.
    """

    def __init__(
        self,
        run: Callable[[Sizes], Example],
        record: ExampleRecord | None = None,
        listener: Callable[[Example], None] = lambda example: None,
    ) -> None:
        self._run = run
        self._record = record or NullRecord()
        self._listener = listener
        self._failures: list[Signature] = []
        self._known: dict[tuple[Sizes, int], Example] = {}

    def ask(self, sizes: Sizes) -> Example:
        return self.run_attempt(sizes, 0)

    def run_attempt(self, sizes: Sizes, attempt: int) -> Example:
        """Run sizes again, as a numbered attempt; each attempt runs once, too."""
        key = (sizes, attempt)
        if key not in self._known:
            example = self._record.recall(*key)
            if example is None:
                example = self._run_recorded(*key)
            self._known[key] = self._numbered(example)
            self._listener(self._known[key])
        return self._known[key]

    def _run_recorded(self, sizes: Sizes, attempt: int) -> Example:
        number = self._record.record_start(sizes, attempt)
        try:
            example = self._run(sizes)
        except WorkerError:
            raise  # keep the row: these sizes may have killed the worker
        except (ShrinkfxError, OSError, KeyboardInterrupt):
            with suppress(StorageError):  # these sizes did not cause the error
                self._record.delete_start(number)
            raise
        self._record.record_example(number, example)
        return example

    def all(self) -> list[Example]:
        """Return the examples of all first attempts, in the order of their runs."""
        return [e for (_, attempt), e in self._known.items() if not attempt]

    def passing(self) -> list[Example]:
        return [e for e in self.all() if e.answer is Answer.PASSES]

    def failing(self, number: int) -> list[Example]:
        return [e for e in self.all() if e.failure == number]

    def failures(self) -> range:
        """Return the numbers of the failures that the sweep has seen."""
        return range(len(self._failures))

    def first(self, number: int) -> int:
        """Return how many examples were run until a failure showed."""
        failures = [example.failure for example in self.all()]
        return 1 + failures.index(number)

    def _numbered(self, example: Example) -> Example:
        """Add the number of the failure: that of a known one, or a new number."""
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
