"""Rows of ``peers.py``: read, written, shown."""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from tools import Result
from torch_side import Outcome

from shrinkfx.failure.signature import Kind


@dataclass(frozen=True)
class Row:
    """One case: both tools, and what nothing can cost less than.

    Attributes:
        floor: CPU-seconds; NaN where there is none.
        floors: the same by part; older files have another floor, and no parts.
        kind: of the failure that was asked for.
    """

    case: str
    operators: int
    dynamic_dims: int
    shrinkfx: Result
    pytorch: Result
    floor: float
    floors: Mapping[str, float] = field(default_factory=dict)
    kind: str = ""


PARTS = ("baseline", "search", "verify", "explain", "overhead")
"""Of what a run of shrinkfx takes: its meters."""


def read(files: Sequence[Path]) -> list[Row]:
    """Read what earlier runs wrote."""
    return [row for file in files for row in _rows(file)]


def _rows(file: Path) -> Iterator[Row]:
    for entry in json.loads(file.read_text())["rows"]:
        ours, theirs = (_result(entry.pop(t), file) for t in ("shrinkfx", "pytorch"))
        yield Row(**entry, shrinkfx=ours, pytorch=theirs)


def _result(entry: Mapping[str, Any], file: Path) -> Result:
    """Read a tool's side of a row; older files don't say when it was measured."""
    untold = f"{file.stem}, revision not recorded"
    return Result(**{"measured": untold, **entry})


def kept(file: Path, measure: Callable[[], Result]) -> Result:
    """Fetch what an earlier run has measured of a case, or measure it and keep it."""
    if file.exists():
        return Result(**json.loads(file.read_text()))
    result = measure()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.with_suffix(".draft").write_text(json.dumps(asdict(result)))
    file.with_suffix(".draft").rename(file)
    return result


def write(rows: Sequence[Row], folder: Path) -> None:
    """Write rows for programs, and for people."""
    about = {"torch": torch.__version__, "rows": [asdict(row) for row in rows]}
    (folder / "peers.json").write_text(json.dumps(about, indent=1))
    (folder / "peers.md").write_text(table(rows))


def show(row: Row) -> str:
    def said(result: Result) -> str:
        left = "-" if result.operators is None else str(result.operators)
        repro = ("alone" if result.self_contained else "same") if result.refails else ""
        return (
            f"{left:>4} ops {result.checks:>4} checks {result.search:>6.0f} s search "
            f"{result.total:>6.0f} s in all  repro: {repro or 'no':<6}"
            f"{result.outcome}: {result.ended:.60}"
        )

    return (
        f"{row.case} ({row.operators} operators, floor {row.floor:.0f} s)\n"
        f"  shrinkfx  {said(row.shrinkfx)}\n  pytorch   {said(row.pytorch)}"
    )


def table(rows: Sequence[Row]) -> str:
    """Write a line of Markdown for each case; all figures of time are CPU-seconds."""
    ours = ["program", "operators", "leaves", "checks", *PARTS, "all", "floor"]
    theirs = ["PyTorch's", "leaves", "checks", "all", "shrinkfx's part of that"]
    lines = [_line([*ours, *theirs]), _line(["---"] * len([*ours, *theirs]))]
    return "\n".join([*lines, *(_line([*_ours(r), *_theirs(r)]) for r in rows)]) + "\n"


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _ours(row: Row) -> list[object]:
    ours = row.shrinkfx
    parts = [_seconds(ours.parts.get(name)) for name in PARTS]
    left = "" if ours.operators is None else ours.operators
    spent = [*parts, _seconds(ours.total), _seconds(row.floor)]
    return [row.case, row.operators, left, ours.checks, *spent]


def _theirs(row: Row) -> list[object]:
    theirs = row.pytorch
    left = "" if theirs.operators is None else theirs.operators
    cut = "" if theirs.ended[:3] != "cut" or left == "" else ", cut off"
    part = f"{row.shrinkfx.total / theirs.total:.2f}" if _is_compared(row) else ""
    return [
        f"{_in_words(theirs)}{cut}",
        left,
        theirs.checks,
        f"{theirs.total:.0f}",
        part,
    ]


def _seconds(number: float | None) -> str:
    return "" if number is None or math.isnan(number) else f"{number:.0f}"


def _is_compared(row: Row) -> bool:
    """Tell whether the peer leaves what fails as asked, and so does shrinkfx."""
    reduced = row.pytorch.outcome == Outcome.REDUCED and row.shrinkfx.refails
    return bool(reduced and row.shrinkfx.total and row.pytorch.total)


def _in_words(theirs: Result) -> str:
    if theirs.outcome == Outcome.DIED:
        return theirs.ended
    if theirs.outcome == Outcome.RAISED:
        return f"raised {theirs.ended}".replace("|", "\\|")
    return theirs.outcome or "not measured"


def ratios(rows: Sequence[Row]) -> str:
    """Say what the rows come to: beside the peer, beside the floor, by itself."""
    both = [row for row in rows if _is_compared(row)]
    lines = [f"{len(rows)} cases, {len(both)} that both reduce"]
    for part in ("search", "total"):
        of_each = [(getattr(r.shrinkfx, part), getattr(r.pytorch, part)) for r in both]
        if quotients := [ours / theirs for ours, theirs in of_each if ours and theirs]:
            mean, most = statistics.geometric_mean(quotients), max(quotients)
            lines.append(f"{part}: {mean:.2f} of the peer's, at most {most:.2f}")
    # What has no parts was measured against a lower floor, by an older version.
    measured = [r for r in rows if r.floors]
    over = {
        "search": [r.shrinkfx.search / r.floors["smaller"] for r in measured],
        "total": [r.shrinkfx.total / r.floor for r in measured],
    }
    for part, times in over.items() if measured else ():
        of_what = "its part of the floor" if part == "search" else "the floor"
        lines.append(f"{part}: {statistics.median(times):.1f} times {of_what}, median")
    return "\n".join([*lines, *_totals(rows), *_unmetered(rows)])


def _totals(rows: Sequence[Row]) -> Iterator[str]:
    ended = [row for row in rows if row.shrinkfx.refails]
    compiling = [row for row in ended if row.kind == Kind.COMPILE_ERROR]
    for what, some in (("all", ended), ("compile errors", compiling)):
        if some:
            middle = statistics.median(row.shrinkfx.total for row in some)
            most = max(row.shrinkfx.total for row in some)
            lines = (
                f"{what}: {middle:.0f} CPU-seconds in the median, at most {most:.0f}"
            )
            yield f"{lines} ({len(some)})"


def _unmetered(rows: Sequence[Row]) -> Iterator[str]:
    """Hold the meters of shrinkfx against what the kernel says of its processes."""
    full = [row.shrinkfx for row in rows if "overhead" in row.shrinkfx.parts]
    if full:
        off = [abs(1 - sum(each.parts.values()) / each.total) for each in full]
        yield f"its meters are off by {max(off):.1%} of the total at most"


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw operators left against CPU-seconds, a line from tool to tool per case."""
    try:
        import matplotlib
    except ImportError:
        print("no picture: pip install 'shrinkfx[bench]'", file=sys.stderr)
        return
    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 5))
    for row in rows:
        ends = [row.shrinkfx, row.pytorch]
        points = [(e.total, e.operators) for e in ends if e.operators is not None]
        if points:
            axes.plot(*zip(*points, strict=True), color="lightgrey", zorder=1)
    for tool, colour in (("shrinkfx", "tab:blue"), ("pytorch", "tab:orange")):
        ends = [getattr(row, tool) for row in rows]
        points = [(e.total, e.operators) for e in ends if e.operators is not None]
        seconds, left = [s for s, _ in points], [n for _, n in points]
        axes.scatter(seconds, left, label=tool, color=colour, zorder=2)
    axes.set(xlabel="CPU-seconds", ylabel="operators left", xscale="log", yscale="log")
    axes.legend()
    figure.savefig(path)
