"""The search as a chart: operators and strategies over checks and over time.

There are two x axes for the same checks: their numbers, and the run's working seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from shrinkfx.failure.verdict import Outcome
from shrinkfx.report.page.record import Check


def count(number: int | None, what: str) -> str:
    """Return a number with its noun; '' if the number is not known."""
    if number is None:
        return ""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def time(seconds: float) -> str:
    """Return a duration in seconds."""
    return f"{seconds:,.0f} s"


_ABLATION = "ablation"
"""The check of the input program without the reduced program's operators, which is
no step."""


def find_steps(checks: Sequence[Check]) -> frozenset[int]:
    """Return the checks that were steps: smaller programs with the same failure.

    A program is no step if a repeated check did not confirm its failure.
    """
    refuted = {c.digest for c in checks if c.outcome is not Outcome.REPRODUCED}
    found: set[int] = set()
    known: set[str] = set()
    least = math.inf
    for check in checks:
        fails = check.outcome is Outcome.REPRODUCED and check.strategy != _ABLATION
        if not fails or check.digest in refuted | known:
            continue
        known.add(check.digest)
        if check.operators <= least:
            least = check.operators
            found.add(check.number)
    return frozenset(found)


class Mark(StrEnum):
    """How a check is drawn."""

    STEP = "step"
    FAILS = "fails"
    PASSES = "passes"
    CAUGHT = "caught"
    NO_STEP = "no-step"
    NONE = "none"


def mark_of(check: Check, accepted: frozenset[int]) -> Mark:
    """Return how a check is drawn."""
    if check.number in accepted:
        return Mark.STEP
    if check.is_by_catch:
        return Mark.CAUGHT
    by_outcome = {
        Outcome.REPRODUCED: Mark.FAILS,
        Outcome.DIFFERENT: Mark.NO_STEP,
        Outcome.PASSED: Mark.PASSES,
    }
    return by_outcome.get(check.outcome, Mark.NONE) if check.outcome else Mark.NONE


@dataclass(frozen=True)
class Dot:
    """A check in the chart."""

    x: float
    y: float
    number: int
    mark: Mark
    message: str


@dataclass(frozen=True)
class Tick:
    """A labeled position on an axis."""

    at: float
    label: str


@dataclass(frozen=True)
class Lane:
    """A strategy, and its checks."""

    name: str
    y: float
    dots: tuple[Dot, ...]


_WIDTH, _LEFT, _RIGHT = 1040.0, 150.0, 1020.0
_TOP, _BOTTOM = 16.0, 236.0
_LANES, _LANE = 286.0, 19.0


@dataclass(frozen=True)
class SearchChart:
    """The chart, in pixels.

    Attributes:
        over: ``checks`` or ``seconds``.
        across, up: ticks of the x axis and of the upper y axis.
        stair: the size of the smallest program so far, as an SVG path.
        left: the left edge of both parts; ``bottom`` is that of the upper part.
    """

    over: str
    height: float
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    stair: str
    dots: tuple[Dot, ...]
    lanes: tuple[Lane, ...]
    width: float = _WIDTH
    left: float = _LEFT
    right: float = _RIGHT
    top: float = _TOP
    bottom: float = _BOTTOM


def draw_search_chart(
    checks: Sequence[Check], operators: int, accepted: frozenset[int], over: str
) -> SearchChart:
    """Compute the chart of a search.

    Args:
        operators: the number of operators at the start.
        accepted: numbers of the checks that were steps.
        over: ``checks`` or ``seconds``.
    """
    at = {c.number: c.at_s if over == "seconds" else c.number for c in checks}
    last = max(at.values(), default=1.0)
    x = _scale(0.0, max(last, 1.0), _LEFT, _RIGHT)
    most = max([operators, *(check.operators for check in checks)], default=1)
    y = _logarithmic(max(most, 2))

    def dot(check: Check) -> Dot:
        mark = mark_of(check, accepted)
        place = x(at[check.number]), y(check.operators)
        return Dot(*place, check.number, mark, describe_check(check, mark))

    tick = time if over == "seconds" else "{:.0f}".format
    dots = tuple(map(dot, sorted(checks, key=lambda c: c.number in accepted)))
    lanes = _lanes(dots, checks)
    return SearchChart(
        over,
        _LANES + _LANE * len(lanes) + 6,
        tuple(Tick(x(v), tick(v)) for v in _round_numbers(last)),
        tuple(Tick(y(v), f"{v:,}") for v in _counts(most)),
        _stair(checks, operators, accepted, lambda c: x(at[c.number]), y),
        dots,
        lanes,
    )


_Scale = Callable[[float], float]


def _scale(low: float, high: float, to_low: float, to_high: float) -> _Scale:
    """Return a linear map from a range to pixels."""
    return lambda v: round(to_low + (v - low) / (high - low) * (to_high - to_low), 1)


def _logarithmic(most: float) -> _Scale:
    """Return a logarithmic map from counts to heights; 0 is a little below 1."""
    linear = _scale(-0.4, math.log2(most), _BOTTOM, _TOP)
    return lambda v: linear(math.log2(v) if v >= 1 else -0.4)


def _counts(most: int) -> list[int]:
    """Choose the ticks of the upper y axis."""
    if most <= 12:
        return sorted({1, 2, most // 2, most} - {0})
    nice = [n * 10**power for power in range(7) for n in (1, 2, 5)]
    return [*(n for n in nice if n <= most / 1.5), most]


def _round_numbers(last: float) -> list[float]:
    """Choose about five round numbers up to the last value."""
    if last <= 0:
        return [0.0]
    rough = last / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(n * power for n in (1, 2, 5, 10) if n * power >= rough)
    step = max(step, 1.0)
    return [step * i for i in range(int(last / step) + 1)]


def _stair(
    checks: Sequence[Check],
    operators: int,
    accepted: frozenset[int],
    x: Callable[[Check], float],
    y: _Scale,
) -> str:
    """Return the path of the smallest program's size."""
    path = f"M{_LEFT} {y(operators)}"
    for check in checks:
        if check.number in accepted:
            path += f"H{x(check)}V{y(check.operators)}"
    return f"{path}H{_RIGHT}"


def _lanes(dots: Sequence[Dot], checks: Sequence[Check]) -> tuple[Lane, ...]:
    """Assign the checks of each strategy to a lane, in order of first use."""
    names = list(dict.fromkeys(check.strategy for check in checks))
    of = {check.number: check.strategy for check in checks}
    lanes = []
    for number, name in enumerate(names):
        y = _LANES + _LANE * number
        its = [replace(dot, y=y) for dot in dots if of[dot.number] == name]
        lanes.append(Lane(name, y, tuple(its)))
    return tuple(lanes)


_WORDS = {
    Mark.STEP: "a step: fails in the same way",
    Mark.FAILS: "fails in the same way",
    Mark.PASSES: "passes",
    Mark.CAUGHT: "other failure",
    Mark.NO_STEP: "fails in the same way where it must pass: no step",
    Mark.NONE: "no result",
}


def describe_check(check: Check, mark: Mark) -> str:
    """Describe a check in one line."""
    size = count(check.operators, "operator")
    return f"check {check.number}: {check.strategy}, {size}, {_WORDS[mark]}"
