"""Generate the tables of options in ``docs/reference.md`` (``make reference``)."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from shrinkfx.cli.parser import GROUPS
from shrinkfx.protocol.flags import Option, list_record_options

_HEAD = "| option | |\n|---|---|\n"
_TABLE = re.compile(
    r"(?<=\n### )([^\n]+)(\n\n)" + re.escape(_HEAD) + r"(?:\|[^\n]*\n)*"
)
"""A table of options, and the heading above it."""

_PARSER_ROWS = {
    "output": (
        ("`--version`", "show the version"),
        ("`-h`, `--help`", "show the common options"),
        ("`--help-all`", "show all options, examples, kinds and exit codes"),
    )
}
"""Rows for the options that are not fields of a record, by group title."""


def regenerate_tables(page: str) -> str:
    """Return the text of a page with each table of options regenerated."""
    tables = {
        title: "".join(map(_format_row, _list_rows(title))) for title, _ in GROUPS
    }
    return _TABLE.sub(
        lambda found: f"{found[1]}{found[2]}{_HEAD}{tables[found[1].lower()]}", page
    )


def _list_rows(title: str) -> Iterator[tuple[str, str]]:
    for record in dict(GROUPS)[title]:
        for option in list_record_options(record):
            text = f"{option.help}. {option.more}" if option.more else option.help
            yield _format_usage(option), text
    yield from _PARSER_ROWS.get(title, ())


def _format_row(cells: tuple[str, str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _format_usage(option: Option) -> str:
    value = "|".join(option.choices) or option.metavar
    if option.const is not None and value:
        value = f"[{value}]"
    *short, long = option.flags
    return ", ".join(f"`{flag}`" for flag in (*short, f"{long} {value}".rstrip()))


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(
        regenerate_tables(path.read_text(encoding="utf-8")), encoding="utf-8"
    )
