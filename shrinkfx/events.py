"""What a run tells its one listener: frozen events, no prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from shrinkfx.failure.verdict import Outcome


@dataclass(frozen=True)
class Noted:
    """A line for the user: what was found, or what is done next."""

    text: str


@dataclass(frozen=True)
class Doing:
    """What a process has been asked to do: said only where it takes long."""

    text: str


class Phase(StrEnum):
    """What a run goes through, in its order; a sweep comes before."""

    SWEEP = "sweep"
    BASELINE = "baseline"
    SEARCH = "search"
    PLAINER = "simplifying"
    VERIFICATION = "verifying"
    EXPLANATION = "explaining"


@dataclass(frozen=True)
class Entered:
    """A phase of a run begins."""

    phase: Phase


@dataclass(frozen=True)
class Asking:
    """A question is put to which no answer is known.

    Attributes:
        operators: of the candidate.
    """

    strategy: str
    operators: int


@dataclass(frozen=True)
class Begun:
    """A run begins; nothing is loaded yet.

    Attributes:
        task: ``reduce``, ``sweep``, ``candidate``, ``verify``, ``explain`` or
            ``report``; or ``capture``, before one of the first two.
        folder: where results go, or '' where there are none.
    """

    task: str
    model: str
    folder: str = ""


@dataclass(frozen=True)
class Seen:
    """The baseline is over: the failure that will be reduced.

    Attributes:
        rate: the part of the runs that fail so.
        operators: of the program, in the form that is cut.
        cut: the same, where steps begin.
    """

    kind: str
    stage: str
    text: str
    rate: float
    operators: int
    cut: int


@dataclass(frozen=True)
class Spanned:
    """A sweep's baseline: which sizes are free, and how they will be drawn."""

    sizes: tuple[Mapping[str, Any], ...]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Started:
    """The search begins, at so many operators."""

    operators: int
    max_checks: int | None


@dataclass(frozen=True)
class Checked:
    """One question was answered.

    Attributes:
        operators: of the smallest program so far.
        seconds: since the run began, its earlier sessions included.
        strategy: who wanted to know.
        asked: operators of the candidate.
        failure: what that did, if it failed.
        expected_s: an estimate of what the rest of the search will take, or None.
    """

    check: int
    outcome: Outcome
    operators: int
    seconds: float
    seconds_left: float | None
    strategy: str = ""
    asked: int = 0
    failure: str = ""
    expected_s: float | None = None


@dataclass(frozen=True)
class Stepped:
    """A smaller program fails in the same way.

    Attributes:
        before, after: operators.
        given: bytes of inputs and weights before and after, once all operators that
            are left are needed; None until then.
    """

    before: int
    after: int
    strategy: str
    check: int
    seconds: float
    given: tuple[int, int] | None = None


@dataclass(frozen=True)
class Tried:
    """A program was run at some sizes.

    Attributes:
        answer: what it did, in a word; ``said`` in more, if there is more to say.
    """

    sizes: str
    answer: str
    said: str


@dataclass(frozen=True)
class Failed:
    """A sweep has met a failure for the first time."""

    sizes: str
    kind: str
    stage: str
    text: str


@dataclass(frozen=True)
class Caught:
    """Another failure was met on the way; the smallest program that shows it.

    Attributes:
        candidate: what ``--candidate`` takes.
        checks: how many of them showed it.
    """

    kind: str
    stage: str
    text: str
    operators: int
    candidate: str
    checks: int


@dataclass(frozen=True)
class Ended:
    """The run is over; the last event, whatever happened.

    Attributes:
        status: a word for ``exit_code``.
        error: what a person is told instead of a result, or ''.
        result: what came of it.
    """

    status: str
    exit_code: int
    error: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)


Event = (
    Noted
    | Doing
    | Entered
    | Asking
    | Begun
    | Seen
    | Spanned
    | Started
    | Checked
    | Stepped
    | Tried
    | Failed
    | Caught
    | Ended
)
Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Listen to nothing."""
