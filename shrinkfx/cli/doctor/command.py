"""``shrinkfx doctor``: print the table of parts, and return the exit code."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from shrinkfx.cli.doctor.examination import ESSENTIAL, can_reduce, examine
from shrinkfx.cli.streams import treat_sigterm_as_ctrl_c
from shrinkfx.errors import ShrinkfxError
from shrinkfx.protocol.answers import Row, Status

SCHEMA = 1
"""Version of the JSON object, one higher after a key was removed or redefined."""

_PART, _STATUS = 26, 11
"""Widths of the first two columns."""

_DESCRIPTION = """\
Test each part of shrinkfx in this environment. List the parts that work and those
that are missing or broken, what you lose without them and what to do. This takes
about a minute.

exit code: 0 if CPU programs can be reduced and their repros verified, else 2
"""


def main(words: Sequence[str]) -> int:
    """Test each part, print its row, and return the exit code."""
    arguments = _parser().parse_args(words)
    rows: list[Row] = []
    try:
        with treat_sigterm_as_ctrl_c():
            if not arguments.json:
                print(f"{'part':{_PART}}{'status':{_STATUS}}detail")
            for row in map(_shorten_row, examine()):
                rows.append(row)
                if not arguments.json:
                    _print(row)
    except KeyboardInterrupt:
        print("shrinkfx doctor: interrupted", file=sys.stderr)
        return 4
    except (ShrinkfxError, OSError) as error:  # no folder for temporary files
        print(f"shrinkfx doctor: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        table = {"schema": SCHEMA, "works": can_reduce(rows)}
        print(json.dumps({**table, "rows": [*map(asdict, rows)]}, indent=2))
    else:
        print(_summarize_rows(rows))
    return 0 if can_reduce(rows) else 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="shrinkfx doctor",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _shorten_row(row: Row) -> Row:
    """Abbreviate the home folder in a row, because users share the table."""
    return replace(
        row,
        detail=_shorten_text(row.detail),
        cost=_shorten_text(row.cost),
        remedy=_shorten_text(row.remedy),
    )


def _shorten_text(text: str) -> str:
    home = str(Path.home())
    return " ".join((text.replace(home, "~") if len(home) > 1 else text).split())


def _print(row: Row) -> None:
    """Print a row: the detail, and below it the cost and the remedy, if any."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    column = max(40, width - _PART - _STATUS)
    lines = []
    for text in (row.detail, row.cost, row.remedy):
        lines += textwrap.wrap(text, column, break_on_hyphens=False)
    first, *others = lines or [""]
    print(f"{row.part:{_PART}}{row.status:{_STATUS}}{first}".rstrip(), flush=True)
    for line in others:
        print(f"{'':{_PART + _STATUS}}{line}", flush=True)


def _summarize_rows(rows: Sequence[Row]) -> str:
    if can_reduce(rows):
        return "CPU programs can be reduced and verified here."
    failing = [
        row.part
        for row in rows
        if row.part in ESSENTIAL and row.status in (Status.MISSING, Status.BROKEN)
    ]
    return f"No program can be reduced here: see {' and '.join(failing)}."
