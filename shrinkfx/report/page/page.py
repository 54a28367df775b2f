"""The page of a run, rendered by the template ``page.html`` in this folder.

The template escapes all values because names and texts come from users' files. The
content security policy allows only the page's own script, by its hash, and no requests.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from markupsafe import Markup

from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.failure.verdict import Outcome
from shrinkfx.findings.decisions import by_hand, format_decisions
from shrinkfx.findings.values import describe_error
from shrinkfx.program.display_text import short_kernels
from shrinkfx.program.listing.names import rename_values, short_names
from shrinkfx.program.listing.printed_program import (
    PrintedProgram,
    describe_minimality,
    group_kinds_by_claim,
)
from shrinkfx.protocol.compiled_program_view import describe_index
from shrinkfx.report.page.drawing import (
    BOX_HEIGHT,
    Drawing,
    Part,
    draw,
    draw_within,
    parts_of,
    parts_of_candidate,
    parts_of_listing,
)
from shrinkfx.report.page.record import Check, Run, SizeChange, Summary
from shrinkfx.report.record import is_about_mismatch
from shrinkfx.report.summary import DIGITS
from shrinkfx.report.template import read_file, render
from shrinkfx.versions import __version__

_SIZES = ("operators", "nodes", "inputs")
"""Parts of the summary that are sizes of programs."""

_LABEL = 20
"""Maximum characters of an operator's name in a box."""

_WIDE = 1100
"""Width of the page for a drawing, in pixels."""


def render_page(run: Run) -> str:
    """Return the HTML of a run's page."""
    accepted = find_steps(run.checks)
    explanation, summary = run.explanation, run.summary
    culprits = [each.name for each in explanation.culprits] if explanation else []
    operators = summary.operators or SizeChange()
    start = summary.operators_cut or operators.before or len(_names(run))
    axes = ("checks", "seconds") if run.checks else ()
    kind, head = split_failure(run)
    decided = explanation.decisions if explanation else None
    cause = explanation.cause if explanation else summary.cause
    checks, to_confirm = checks_of(run)
    script = read_file("page/page.js")
    digest = hashlib.sha256(script.encode()).digest()
    versions = (f"{name} {version}" for name, version in summary.versions.items())
    values = {
        "run": run,
        "s": summary,
        "e": explanation,
        "kind": kind,
        "head": head,
        "has_result": operators.after is not None,
        "sizes": {name: getattr(summary, name) for name in _SIZES},
        "checks": checks,
        "to_confirm": to_confirm,
        "steps": len(accepted),
        "caught": sum(check.is_by_catch for check in run.checks),
        "start": start,
        "versions": ", ".join(versions),
        "sections": _sections(run),
        "warnings": warnings(run),
        "cause": [short_kernels(text) for text in cause],
        "before": _before(run, culprits),
        "after": _after(run, culprits),
        "after_count": count(operators.after, "operator"),
        "height": BOX_HEIGHT,
        "charts": [draw_search_chart(run.checks, start, accepted, a) for a in axes],
        "decided": decided,
        "decisions": format_decisions(decided, _signature(summary)) if decided else (),
        "by_hand": by_hand(decided) if decided else (),
        "guide": explanation.guide if explanation else None,
        "claims": group_kinds_by_claim(summary.minimal_by_kind),
        "claimed": describe_minimality(summary.minimal_by_kind),
        "rows": [(check, mark_of(check, accepted)) for check in run.checks],
        "digits": DIGITS,
        "version": __version__,
        "data": _data_to_json(run),
        "count": count,
        "describe_error": describe_error,
        "describe_index": describe_index,
        "css": Markup(read_file("page/page.css")),
        "js": Markup(script),
        "script_hash": base64.b64encode(digest).decode(),
    }
    return render("page/page.html", values)


def _before(run: Run, culprits: Sequence[str]) -> Drawing | None:
    if run.program is None:
        return None
    remaining = run.reduced.keep if run.reduced is not None else frozenset[str]()
    return draw(parts_of(run.program, remaining, culprits), "before", _LABEL)


def _after(run: Run, culprits: Sequence[str]) -> Drawing | None:
    if run.listing is not None:
        parts = _as_in_repro(run.listing, culprits, is_anonymous=run.anonymous)
        return draw_within(_WIDE, parts, "after")
    if run.reduced is not None:
        return draw_within(_WIDE, parts_of_candidate(run.reduced, culprits), "after")
    return None


def _as_in_repro(
    listing: PrintedProgram, culprits: Sequence[str], *, is_anonymous: bool
) -> list[Part]:
    """List the parts of the reduced program, with the names of the repro next to it."""
    if is_anonymous:
        return parts_of_listing(listing, culprits)
    names = short_names(listing)
    main = names.values[listing.main.name]
    wanted = [main.get(name, name) for name in culprits]
    return parts_of_listing(rename_values(listing, names), wanted, names.inverse())


def _sections(run: Run) -> list[tuple[str, str]]:
    explanation = run.explanation
    has_decisions = explanation and (explanation.decisions or explanation.guide)
    known = (
        ("why", "Why", True),
        ("program", "Program", True),
        ("search", "Search", run.checks),
        ("kernel", "Kernel", run.source),
        ("decisions", "Decisions", has_decisions),
        ("sizes", "Sizes", run.swept),
        ("checks", "Checks", run.checks),
        ("about", "Run", True),
    )
    return [(name, title) for name, title, is_there in known if is_there]


def _signature(summary: Summary) -> Signature:
    """Parse the stage from the failure's text: ``assert in run: ...``."""
    kind = Kind(summary.kind) if summary.kind in set(Kind) else Kind.EXCEPTION
    stage = summary.failure.partition(": ")[0].rpartition(" in ")[2]
    return Signature(kind, Stage(stage) if stage in set(Stage) else Stage.RUN)


def _data_to_json(run: Run) -> dict[str, object]:
    """Return the data of the page's script, which adds no content to the page."""
    order = {name: i for i, name in enumerate(_names(run))}
    remaining = run.reduced.keep if run.reduced is not None else frozenset[str]()
    return {
        "folder": run.folder,
        "left": ranges(order[name] for name in remaining if name in order),
        "checks": [
            {
                "number": check.number,
                "strategy": check.strategy,
                "form": check.form,
                "build": check.build,
                "digest": check.digest,
                "operators": check.operators,
                "outcome": check.came,
                "message": check.message,
                "seconds": round(check.seconds, 1),
                "keep": ranges(order[name] for name in check.keep if name in order),
            }
            for check in run.checks
        ],
    }


def _names(run: Run) -> Sequence[str]:
    """Return the names of the program's operators, in program order."""
    return run.program.operators if run.program is not None else ()


def ranges(numbers: Iterable[int]) -> str:
    """Encode numbers compactly: ``0-3,7``."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in found)


def split_failure(run: Run) -> tuple[str, str]:
    """Split the failure into its kind and its message."""
    kind, _, text = short_kernels(run.summary.failure).partition(": ")
    if run.swept and not run.summary.failure:
        return "a sweep over sizes", run.model
    return (kind, text) if text else ("", kind or run.model)


def checks_of(run: Run) -> tuple[int, int]:
    """Return the number of the search's checks, and of those that confirm."""
    checks = run.summary.checks.total or len(run.checks)
    return checks, max(0, len(run.checks) - checks)


def warnings(run: Run) -> list[str]:
    """List other possible causes, without the mismatch that the cause states."""
    caveats = [*run.summary.warnings]
    mismatch = run.explanation.culprit_mismatch if run.explanation else None
    if mismatch is None:
        return caveats
    culprit = mismatch.operator.operator
    return [text for text in caveats if not is_about_mismatch(text, culprit)]


# The search as a chart: operators and strategies over checks and over time. There are
# two x axes for the same checks: their numbers, and the run's working seconds.


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
        across, up: positions and labels of the ticks of the x axis and of the upper y
            axis.
        stair: the size of the smallest program so far, as an SVG path.
        left: the left edge of both parts; ``bottom`` is that of the upper part.
    """

    over: str
    height: float
    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]
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
        tuple((x(v), tick(v)) for v in _round_numbers(last)),
        tuple((y(v), f"{v:,}") for v in _counts(most)),
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
