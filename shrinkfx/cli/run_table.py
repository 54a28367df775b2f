"""The table of runs that ``--list`` prints, and the commands to continue them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shrinkfx.api import Run, State

_HEAD = (
    *("name", "status", "program", "kind", "operators"),
    *("verified", "checks", "seconds", "when"),
)
_NUMBERS = (4, 5, 6, 7)
"""Right-aligned columns."""

_CUT_FIRST = (2, 0)
"""Columns to shorten, in this order, if the table is too wide for the terminal."""
_MIN_WIDTH = 8
"""Minimum width of a shortened column."""


def render_run_lines(runs: Sequence[Run], folder: Path, width: int) -> Iterator[str]:
    """Yield the table of runs, commands to continue them, and their problems.

    Args:
        width: columns of the terminal.
    """
    if not runs:
        yield f"{folder} contains no runs: start one with shrinkfx MODEL.pt2"
        return
    yield from _format_table([_HEAD, *map(_format_row, runs)], width)
    if last_run := next((run for run in reversed(runs) if run.may_go_on), None):
        yield f"to resume an unfinished run: shrinkfx --resume {last_run.folder}"
        if last_run.status == State.CAPTURED:
            yield (
                f"to reduce another program of that script: shrinkfx {last_run.folder} "
                "--program N"
            )
    for run in runs:
        if run.problem:
            yield f"{run.folder}: {run.problem}"


def run_to_json(run: Run) -> dict[str, Any]:
    """Convert a run to JSON, for ``--json``."""
    return {**vars(run), "folder": str(run.folder), "status": str(run.status)}


def _format_row(run: Run) -> tuple[str, ...]:
    cells = (
        run.folder.resolve().name,
        str(run.status),
        run.program,
        run.kind,
        _operators(*run.operators),
        f"{run.verified[1]} of {run.verified[0]}" if run.verified else "",
        "" if run.checks is None else str(run.checks),
        "" if run.seconds is None else f"{run.seconds:.0f}",
        time.strftime("%Y-%m-%d %H:%M", time.localtime(run.at)),
    )
    return tuple(cell or "-" for cell in cells)


def _operators(before: int | None, now: int | None) -> str:
    if before is None:
        return ""
    return str(before) if now is None else f"{before} -> {now}"


def _format_table(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for column in _CUT_FIRST:
        too_wide = sum(wide) + 2 * (len(wide) - 1) - width
        wide[column] = min(
            wide[column], max(_MIN_WIDTH, wide[column] - max(0, too_wide))
        )
    for row in rows:
        cells = [
            _shorten_text(text, size) for text, size in zip(row, wide, strict=True)
        ]
        for column, size in enumerate(wide):
            align = str.rjust if column in _NUMBERS else str.ljust
            cells[column] = align(cells[column], size)
        yield "  ".join(cells).rstrip()


def _shorten_text(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 3]}..."
