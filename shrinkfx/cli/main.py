"""The command line: what was typed, to one task."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from typing import TextIO

from shrinkfx.cli.parser import make_parser
from shrinkfx.cli.streams import lenient, open_closed
from shrinkfx.errors import ShrinkfxError
from shrinkfx.used import Process


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit code."""
    Process.unclaimed = arguments is None
    given = list(sys.argv[1:] if arguments is None else arguments)
    open_closed()
    stdout = sys.stdout
    with lenient() as printed:
        code = _main(given, stdout)
    if code is None:  # all that was asked for was to be printed
        broken = printed.error and not isinstance(printed.error, BrokenPipeError)
        return 2 if broken else 0
    return code


def _main(given: list[str], stdout: TextIO) -> int | None:
    """Do what is asked for; None if that was to print something, and it was done."""
    parser = make_parser()
    options = parser.parse_args(given)
    if options.list_strategies:
        return _list_strategies()
    if options.model is None and options.resume is None:
        parser.error("which program? give the path of a .pt2 (or --help)")
    # All that a run needs takes half a second to import: not before --help is answered.
    from shrinkfx.cli import task

    command = "shrinkfx " + shlex.join(_without_folders(given))
    return task.do(options, command, stdout)


def _list_strategies() -> int | None:
    from shrinkfx.search.strategy import available

    try:
        known = available()
    except ShrinkfxError as error:
        print(f"shrinkfx: {error}", file=sys.stderr)
        return error.exit_code
    for name, strategy in known.items():
        print(f"{name:20} {(strategy.__doc__ or '').strip().partition(chr(10))[0]}")
    return None


def _without_folders(arguments: Sequence[str]) -> list[str]:
    """Keep file names only: a repro may not name a path of this machine."""
    return [re.sub(r"[^\s=]*/", "", argument) for argument in arguments]
