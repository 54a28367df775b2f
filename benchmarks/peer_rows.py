"""Rows of ``peers.py``: read, written, shown."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tools import Result
from torch_side import Outcome


@dataclass(frozen=True)
class Row:
    """One case: both tools, and what the dearest necessary checks cost."""

    case: str
    operators: int
    dynamic_dims: int
    shrinkfx: Result
    pytorch: Result
    floor: float


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
    """Write a line of Markdown for each case."""
    lines = [
        "| program | operators | shrinkfx leaves | checks | CPU-seconds (in all) "
        "| PyTorch's | leaves | checks | CPU-seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ours, theirs = row.shrinkfx, row.pytorch
        left = "" if theirs.operators is None else theirs.operators
        cut = "" if theirs.ended[:3] != "cut" or left == "" else ", cut off"
        lines.append(
            f"| {row.case} | {row.operators} | {ours.operators} | {ours.checks} "
            f"| {ours.search:.0f} ({ours.total:.0f}) "
            f"| {_in_words(theirs)}{cut} | {left} "
            f"| {theirs.checks} | {theirs.total:.0f} |"
        )
    return "\n".join(lines) + "\n"


def _in_words(theirs: Result) -> str:
    if theirs.outcome == Outcome.DIED:
        return theirs.ended
    if theirs.outcome == Outcome.RAISED:
        return f"raised {theirs.ended}".replace("|", "\\|")
    return theirs.outcome or "not measured"


def ratios(rows: Sequence[Row]) -> str:
    """Compare where the peer leaves what fails as asked."""
    both = [
        r for r in rows if r.pytorch.outcome == Outcome.REDUCED and r.shrinkfx.refails
    ]
    lines = []
    for part in ("search", "total"):
        pairs = [(getattr(r.shrinkfx, part), getattr(r.pytorch, part)) for r in both]
        if quotients := [ours / theirs for ours, theirs in pairs if ours and theirs]:
            mean, most = statistics.geometric_mean(quotients), max(quotients)
            lines.append(f"{part}: {mean:.2f} of the peer's, at most {most:.2f}")
    measured = [r for r in rows if r.floor > 0 and r.shrinkfx.search]
    for part in ("search", "total") if measured else ():
        over = [getattr(r.shrinkfx, part) / r.floor for r in measured]
        median = statistics.median(over)
        lines.append(f"{part}: {median:.1f} times the floor in the median")
    return "\n".join([f"{len(rows)} cases, {len(both)} that both reduce", *lines])


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
        there = [e for e in ends if e.operators is not None]
        seconds, left = [e.total for e in there], [e.operators for e in there]
        axes.scatter(seconds, left, label=tool, color=colour, zorder=2)
    axes.set(xlabel="CPU-seconds", ylabel="operators left", xscale="log", yscale="log")
    axes.legend()
    figure.savefig(path)
