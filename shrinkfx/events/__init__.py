"""The events of a run, which it passes to its listener. A run prints nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(frozen=True)
class NoteAdded:
    """A line of text for the user, on a finding or on the next step of the run."""

    text: str


@dataclass(frozen=True)
class ActivityStarted:
    """A process has started a task; the text is shown only if the task takes long."""

    text: str


class Phase(StrEnum):
    """The phases of a run, in order; a sweep precedes the others."""

    SWEEP = "sweep"
    BASELINE = "baseline"
    SEARCH = "search"
    PLAINER = "simplifying"
    VERIFICATION = "verifying"
    EXPLANATION = "explaining"


@dataclass(frozen=True)
class PhaseEntered:
    """A phase of a run begins."""

    phase: Phase


@dataclass(frozen=True)
class QueryStarted:
    """The search starts a query whose verdict is not known yet.

    Attributes:
        strategy: the strategy that proposed the candidate.
        operators: number of operators of the candidate.
    """

    strategy: str
    operators: int


@dataclass(frozen=True)
class RunStarted:
    """A run begins; nothing is loaded yet.

    Attributes:
        task: ``reduce``, ``sweep``, ``candidate``, ``verify``, ``explain`` or
            ``report``; or ``capture``, before one of the first two.
        model: path of the program.
        folder: folder of the results, or '' if the task writes none.
    """

    task: str
    model: str
    folder: str = ""


@dataclass(frozen=True)
class BaselineFound:
    """The baseline has shown the failure that the run reduces.

    Attributes:
        kind, stage, text: the failure.
        rate: fraction of the runs that fail in this way.
        operators: number of operators of the input program, in the graph form that the
            search cuts.
        cut: number of operators of the candidate that the search starts with.
    """

    kind: str
    stage: str
    text: str
    rate: float
    operators: int
    cut: int


@dataclass(frozen=True)
class SizesFound:
    """A sweep has found the dynamic sizes, before it draws values for them.

    Attributes:
        sizes: name, range and exported value of each size.
        settings: settings of the drawing.
    """

    sizes: tuple[Mapping[str, Any], ...]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class SearchStarted:
    """The search begins.

    Attributes:
        operators: number of operators of the candidate that it starts with.
        max_checks: limit of checks, or None.
    """

    operators: int
    max_checks: int | None


@dataclass(frozen=True)
class QueryAnswered:
    """A query was answered.

    Attributes:
        check: number of the query.
        outcome: the outcome of the verdict.
        operators: number of operators of the smallest program so far.
        seconds: seconds since the run began, including earlier sessions.
        seconds_left: seconds left of the budget, or None.
        strategy: the strategy that proposed the candidate.
        candidate_operators: number of operators of the candidate.
        failure: description of the candidate's failure, or ''.
        expected_s: estimated seconds of the rest of the search, or None.
    """

    check: int
    outcome: str
    operators: int
    seconds: float
    seconds_left: float | None
    strategy: str = ""
    candidate_operators: int = 0
    failure: str = ""
    expected_s: float | None = None


@dataclass(frozen=True)
class StepTaken:
    """A smaller program fails in the same way.

    Attributes:
        before, after: numbers of operators before and after the step.
        strategy: the strategy that proposed the step.
        check: number of the query.
        seconds: seconds since the run began.
        bytes_of_inputs: bytes of inputs and weights before and after the step, while
            the run simplifies the printed program; None before that phase.
    """

    before: int
    after: int
    strategy: str
    check: int
    seconds: float
    bytes_of_inputs: tuple[int, int] | None = None


@dataclass(frozen=True)
class SizesTried:
    """A sweep has run the program at some sizes.

    Attributes:
        sizes: the sizes, as text.
        answer: the outcome, in one word.
        details: details of the outcome, or ''.
    """

    sizes: str
    answer: str
    details: str


@dataclass(frozen=True)
class SweepFailureFound:
    """A sweep has found a failure that it had not seen before."""

    sizes: str
    kind: str
    stage: str
    text: str


@dataclass(frozen=True)
class OtherFailureFound:
    """The search has met another failure than the reduced one.

    Attributes:
        kind, stage, text: the failure.
        operators: number of operators of the smallest candidate that shows it.
        candidate: digest of that candidate, for ``--candidate``.
        checks: number of checks that showed the failure.
    """

    kind: str
    stage: str
    text: str
    operators: int
    candidate: str
    checks: int


@dataclass(frozen=True)
class RunEnded:
    """The run is over. This is always the last event, also after an error.

    Attributes:
        status: the result in one word, such as ``reduced``.
        exit_code: the exit code of the command line.
        error: the error message, or ''.
        result: the result, as JSON.
    """

    status: str
    exit_code: int
    error: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)


Event = (
    NoteAdded
    | ActivityStarted
    | PhaseEntered
    | QueryStarted
    | RunStarted
    | BaselineFound
    | SizesFound
    | SearchStarted
    | QueryAnswered
    | StepTaken
    | SizesTried
    | SweepFailureFound
    | OtherFailureFound
    | RunEnded
)
Listener = Callable[[Event], None]


def ignore_event(event: Event) -> None:
    """Ignore an event; the listener for runs that nobody observes."""
