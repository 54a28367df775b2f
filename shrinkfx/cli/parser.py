"""What the command line takes."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NoReturn

from shrinkfx.cli.own_options import (
    ListOptions,
    PrintOptions,
    SweepOptions,
    TaskOptions,
)
from shrinkfx.failure.signature import ANY, MEANING
from shrinkfx.flags import Option, options_in, without_markup
from shrinkfx.options.groups import (
    BudgetOptions,
    ExplainOptions,
    FailureOptions,
    OutputOptions,
    ProgramOptions,
    SearchOptions,
    Sweeping,
    TimeoutOptions,
)
from shrinkfx.protocol.comparison import ComparisonOptions
from shrinkfx.version import __version__

GROUPS: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("which failure", (FailureOptions, ComparisonOptions, TimeoutOptions)),
    ("the failing program", (ProgramOptions,)),
    ("the search", (BudgetOptions, SearchOptions, ListOptions)),
    ("dynamic shapes", (SweepOptions, Sweeping)),
    ("output", (OutputOptions, ExplainOptions, TaskOptions, PrintOptions)),
)
"""Titles in ``--help`` and the reference, and whose options stand below them."""

EXIT_CODES = {
    0: "reduced and verified",
    1: "internal error",
    2: "bad usage or input",
    3: "the program does not fail as asked; says what it does instead",
    4: "stopped early by budget or Ctrl-C; the best so far is written, and verified if "
    "there was time",
    5: "reduced, but the repro could not be verified",
    6: "a sweep without --until has found sizes that fail (0: it found none)",
}

_EXAMPLES = """\
examples:
  shrinkfx model.pt2
      reduce whatever failure the program shows
  shrinkfx model.pt2 --until assert --inputs failing.pt --preload my_ops.py
      reduce an assertion that only these inputs trigger, with custom operators
  shrinkfx model.pt2 --until mismatch --inductor-config max_autotune=True \\
      --max-minutes 30 --out report
      reduce a wrong result under the failing run's own settings, for half an hour
  shrinkfx model.pt2 --dynamic-sweep
      find the sizes of dynamic dims at which the program fails
  shrinkfx --resume report
      go on with a run that was killed or stopped
  shrinkfx --explain report
      find out more about the cause of the failure that a run has reduced
"""


class _Parser(argparse.ArgumentParser):
    """Says what may have been meant by an option that there is not."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized"):
            known = list(self._option_string_actions)
            for word in re.findall(r"(?<= )--[\w-]+", message):
                for near in difflib.get_close_matches(word, known, n=1):
                    message += f"\ndid you mean {near}?"
        super().error(f"{message}\nall options: shrinkfx --help")


def make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="shrinkfx",
        allow_abbrev=False,
        usage="shrinkfx MODEL.pt2 [options]\n       shrinkfx --resume DIR\n"
        "       shrinkfx --explain DIR",
        description="Reduce an exported program that fails under AOTInductor to the "
        "smallest program that fails in the same way, as one repro.py.",
        epilog=_EXAMPLES + "\n" + _tables(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", nargs="?", metavar="MODEL.pt2", help="the program")
    version = f"shrinkfx {__version__}"
    parser.add_argument("--version", action="version", version=version)
    for title, records in GROUPS:
        _add_group(parser, title, records)
    return parser


def options() -> Iterator[Option]:
    """Yield all options but ``--help`` and ``--version``."""
    for _, records in GROUPS:
        for record in records:
            yield from options_in(record)


def _add_group(
    parser: argparse.ArgumentParser, title: str, records: Sequence[type]
) -> None:
    group = parser.add_argument_group(title)
    apart: dict[str, argparse._ArgumentGroup] = {"": group}
    for record in records:
        for option in options_in(record):
            if option.apart not in apart:
                apart[option.apart] = group.add_mutually_exclusive_group()
            _add(apart[option.apart], option)


def _add(group: argparse._ArgumentGroup, option: Option) -> None:
    add = partial(
        group.add_argument,
        *option.flags,
        dest=option.name,
        default=option.default,
        help=without_markup(option.help),
    )
    if option.takes is bool:
        add(action="store_true")
    elif option.const is not None:
        add(action="store_const", const=option.const)
    elif option.choices:
        add(choices=option.choices)
    elif option.repeated:
        add(action="append", default=[], metavar=option.metavar)
    else:
        add(type=option.takes, metavar=option.metavar)


def _tables() -> str:
    kinds = {
        **{kind.value: text for kind, text in MEANING.items()},
        ANY: "the first seen",
    }
    lines = ["kinds of failure:"]
    lines += [f"  {kind:14} {text}" for kind, text in kinds.items()]
    lines += ["", "exit codes:"]
    lines += [f"  {code}  {text}" for code, text in EXIT_CODES.items()]
    return "\n".join(lines)
