"""The result of a sweep: a table, ``sweep.json``, and a plot if matplotlib exists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shrinkfx.program.sizes import Sizes
from shrinkfx.system.folders import write_json

PICTURE = "sweep.svg"
_COLOURS = {"passes": "#4a9a5c", "fails": "#c8403a", "invalid": "#b8b8b8"}
_HOW_TO_DRAW = "no plot: matplotlib is missing (pip install 'shrinkfx[plot]')"


@dataclass(frozen=True)
class SweepRow:
    """One failure that a sweep found, as text."""

    sizes: str
    kind: str
    failure: str
    nearest: str


@dataclass(frozen=True)
class Point:
    """The sizes of one example, and its result."""

    sizes: Sizes
    answer: str


def format_sweep_table(rows: Sequence[SweepRow]) -> str:
    """Return a text table of the failures, one per line."""
    head = SweepRow("smallest sizes", "kind", "failure", "nearest pass")
    lines = [(r.sizes, r.kind, _cut(r.failure), r.nearest) for r in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True))
        for line in lines
    ]
    return "\n".join(line.rstrip() for line in padded)


_WIDTH = 60


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def write_sweep(folder: Path, data: Mapping[str, Any]) -> None:
    write_json(folder / "sweep.json", data, indent=1)


def draw(
    folder: Path, names: Sequence[str], points: Sequence[Point], marks: Sequence[Sizes]
) -> str:
    """Plot where the program passes and fails.

    One symbol gives a strip, two give a map. Of three or more symbols, the plot shows
    the first two.

    Args:
        marks: the smallest sizes of each failure.

    Returns:
        '' or why there is no plot.
    """
    try:
        import matplotlib
    except ImportError:
        return _HOW_TO_DRAW
    matplotlib.use("svg")
    # A fixed salt makes the file reproducible.
    matplotlib.rcParams["svg.hashsalt"] = PICTURE
    from matplotlib import pyplot

    axes_of = (0, 1) if len(names) > 1 else (0,)
    high = 1.2 if len(axes_of) == 1 else 5.0
    figure, axes = pyplot.subplots(figsize=(7, high), layout="constrained")
    for answer, colour in _COLOURS.items():
        shown = [_at(p.sizes, axes_of) for p in points if p.answer == answer]
        if shown:
            xs, ys = zip(*shown, strict=True)
            axes.scatter(xs, ys, s=14, color=colour, label=answer, linewidths=0)
    for sizes in marks:
        x, y = _at(sizes, axes_of)
        axes.scatter(x, y, s=90, facecolors="none", edgecolors="black")
    axes.set_xscale("symlog", base=2)
    axes.set_xlabel(names[axes_of[0]])
    if len(axes_of) == 2:
        axes.set_yscale("symlog", base=2)
        axes.set_ylabel(names[axes_of[1]])
    else:
        axes.set_yticks([])
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    figure.savefig(folder / PICTURE, metadata={"Date": None})
    pyplot.close(figure)
    return ""


def _at(sizes: Sizes, axes_of: Sequence[int]) -> tuple[int, ...]:
    return sizes[axes_of[0]], (sizes[axes_of[1]] if len(axes_of) == 2 else 0)
