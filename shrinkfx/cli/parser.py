"""The argument parser and its help, made from the records of options."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from shrinkfx.failure.signature import ANY, MEANING, UNTIL
from shrinkfx.options.options import (
    BudgetOptions,
    ExplainOptions,
    FailureOptions,
    OutputOptions,
    ProgramOptions,
    SearchOptions,
    Sweeping,
    TimeoutOptions,
)
from shrinkfx.protocol.flags import (
    Option,
    list_record_options,
    option,
    remove_markup,
    require_above_zero,
)
from shrinkfx.protocol.requests import ComparisonOptions
from shrinkfx.versions import __version__


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """Option that lists the strategies."""

    list_strategies: bool = option(False, help="list the strategies and exit")


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Option that starts a sweep; ``Sweeping`` holds the settings of the sweep."""

    dynamic_sweep: bool = option(
        False,
        help="compile the program once and run it at many sizes of its dynamic "
        "dims; report the failing sizes and the nearest passing sizes; with "
        "`--until`, reduce that failure at the failing sizes",
        brief="find the sizes at which the program fails",
    )


@dataclass(frozen=True, kw_only=True)
class CaptureOptions:
    """Options that find the program in a failing script."""

    capture: bool = option(
        False,
        help="run the failing command that follows, find the program that fails in "
        "it, and reduce that program",
        more="The command begins with the first word that is not an option; `--` "
        "may precede it. [What is captured](capture.md)",
        brief="run the failing command that follows, and reduce the program that "
        "fails in it",
    )
    program: int | None = option(
        None,
        metavar="N",
        help="reduce program number N of those that `--capture` found (default: the "
        "one that failed); use it with `--capture`, or with the folder of an earlier "
        "capture in place of `MODEL.pt2`",
        check=require_above_zero,
    )


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """Options that select a task other than a new run."""

    resume: str | None = option(
        None,
        metavar="DIR",
        help="continue an interrupted run with its original options; completed "
        "checks are not repeated; only `--max-checks`, `--max-minutes`, "
        "`--max-disk` and `--jobs` may change; add `MODEL.pt2` only if that "
        "file has moved",
        more="[In full](#going-on)",
        never_empty=True,
        works_with_resume=True,
        brief="continue an interrupted run",
    )
    candidate: str | None = option(
        None,
        metavar="DIGEST",
        help="write the repro of a candidate of an earlier run, for example one that "
        "shows a different failure; `--out DIR` names the folder of that run",
        more="The first few digits suffice. The options are those of that run; add "
        "`MODEL.pt2` only if that file has moved",
        never_empty=True,
    )
    report: str | None = option(
        None,
        metavar="DIR",
        help="regenerate `report.html` and `ISSUE.md` for an existing run; an edited "
        "`ISSUE.md` stays, and the new text is in `ISSUE.new.md`",
        more="[In full](#the-report)",
        never_empty=True,
        brief="regenerate `report.html` and `ISSUE.md` of DIR",
    )
    verify: bool = option(
        False,
        help="same as `shrinkfx verify REPRO.py`: run REPRO.py in an empty folder, and "
        "report how it fails; exit code 0 if it fails as its header states, else 3",
        more="The repro runs in a [clean environment](#verification). Instead of "
        "REPRO.py, you may pass the folder of a run; shrinkfx then uses the repro in "
        "it. For a folder with the folders of several runs, such as [known "
        "bugs](howto.md#many-failing-programs), it runs each repro. The exit code is "
        "then 0 if all of them fail, 3 if one does not, 2 if one cannot be run, and 4 "
        "after Ctrl-C",
        brief="run a `repro.py` in an empty folder: does it fail?",
    )
    across: tuple[str, ...] = option(
        (),
        repeated=True,
        metavar="PYTHON",
        help="with `--verify`: also run the repro with this Python interpreter, "
        "from an environment with another PyTorch; may be repeated",
        more="That environment only needs PyTorch. shrinkfx reports the outcome "
        "for each interpreter; the exit code is that of the first run",
        never_empty=True,
    )
    torch: str | None = option(
        None,
        metavar="LIST",
        help="with `--verify`: also run the repro on these versions of PyTorch, "
        "such as `2.13.0,2.14.1`; `bisect`: find the first version on which "
        "it fails. Each missing version is installed in an environment of its "
        "own",
        more="[How to use it](explain.md#other-versions-of-pytorch)",
        never_empty=True,
    )
    yes: bool = option(
        False,
        help="with `--torch`: install missing versions without asking",
    )


@dataclass(frozen=True, kw_only=True)
class PrintOptions:
    """Options that select what a run prints."""

    json: bool = option(
        False,
        help="print one JSON object per line on stdout for start, baseline, check, "
        "step, `other-failure` and end "
        "([docs/reference.md](#events)); human-readable output goes to stderr",
        works_with_resume=True,
    )
    verbose: bool = option(
        False,
        flags=("-v", "--verbose"),
        help="print one line per check",
        more="An error also prints its traceback",
        exclusive_group="loudness",
        works_with_resume=True,
        common=True,
    )
    quiet: bool = option(
        False,
        flags=("-q", "--quiet"),
        help="print only the result",
        exclusive_group="loudness",
        works_with_resume=True,
        common=True,
    )
    no_progress: bool = option(
        False,
        help="print plain lines instead of a live status line",
        more="After a minute without output, a line states the current step",
        works_with_resume=True,
    )


@dataclass(frozen=True, kw_only=True)
class InformationOptions:
    """Options that print information instead of starting a run."""

    list_runs: str | None = option(
        None,
        flags=("--list",),
        metavar="FOLDER",
        const="shrinkfx-out",
        help="list the runs in a folder (default: `shrinkfx-out`) with their "
        "failures, their results, and whether they can be resumed; then exit",
        more="[What is listed](#runs-in-a-folder)",
        never_empty=True,
        brief="list the runs in a folder (default: `shrinkfx-out`)",
    )


CAPTURE = "--capture"

GROUPS: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("which failure", (FailureOptions, ComparisonOptions, TimeoutOptions)),
    ("the failing program", (CaptureOptions, ProgramOptions)),
    ("the search", (BudgetOptions, SearchOptions, ListOptions)),
    ("dynamic shapes", (SweepOptions, Sweeping)),
    (
        "output",
        (OutputOptions, ExplainOptions, TaskOptions, PrintOptions, InformationOptions),
    ),
)
"""Titles in the help and the reference, and the records whose options they group."""

EXIT_CODES = {
    0: "reduced and verified",
    1: "internal error",
    2: "bad usage or input, or a broken environment (see shrinkfx doctor)",
    3: "the program does not fail as requested; the message states what it does "
    "instead",
    4: "stopped early by budget or Ctrl-C; the smallest failing program so far "
    "is written, and verified if there was time",
    5: "reduced, but the repro could not be verified",
    6: "a sweep without --until found failing sizes (0: it found none)",
    7: "the failure is a known bug (--known)",
}

_EXAMPLES = """\
examples:
  shrinkfx model.pt2
      reduce the failure that the program shows
  shrinkfx model.pt2 --until assert --inputs failing.pt --preload my_ops.py
      reduce an assertion that only these inputs trigger; load custom operators
  shrinkfx model.pt2 --until mismatch --inductor-config max_autotune=True \\
      --max-minutes 30 --out report
      reduce a wrong result with this Inductor option, in at most 30 minutes
  shrinkfx model.pt2 --dynamic-sweep
      find the sizes of dynamic dims at which the program fails
  shrinkfx --capture python serve.py --batch 4
      run a failing script, and reduce the program that fails in it
  shrinkfx verify report/repro.py --torch 2.13.0,2.14.1
      run a repro here and on other versions of PyTorch, to find a regression
  shrinkfx --resume report
      continue an interrupted run
  shrinkfx --explain report
      run the full root-cause analysis on a finished run
"""


_COMMON_EXAMPLES = """\
examples:
  shrinkfx model.pt2 --until assert --inputs failing.pt --preload my_ops.py
  shrinkfx model.pt2 --max-minutes 30 --out report
  shrinkfx --capture python serve.py --batch 4
  shrinkfx verify report/repro.py --torch bisect
"""

_SEE_HELP_ALL = (
    "all options, examples, kinds of failure, exit codes: shrinkfx --help-all\n"
)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Formats the help with a column of options as wide as most options need."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26)

    def _split_lines(self, text: str, width: int) -> list[str]:
        """Wrap a text without breaking names of files and options at hyphens."""
        return textwrap.wrap(text, width, break_on_hyphens=False)


class _Help(argparse.Action):
    """Prints the common options, or all options if ``const`` is ``everything``."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        make_parser(everything=self.const == "everything").print_help()
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """Suggests similar options if an option is unknown."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized"):
            known = list(self._option_string_actions)
            for word in re.findall(r"(?<= )--[\w-]+", message):
                for match in difflib.get_close_matches(word, known, n=1):
                    message += f"\ndid you mean {match}?"
            if CAPTURE not in sys.argv and any(map(_is_script, sys.argv[1:])):
                message += "\nto run a script that fails: "
                message += "shrinkfx --capture python serve.py"
        hint = "common options: shrinkfx --help\nall options: shrinkfx --help-all"
        super().error(f"{message}\n{hint}")


def _is_script(word: str) -> bool:
    return word.endswith(".py") or Path(word).name.startswith(("python", "pytest"))


def make_parser(*, everything: bool = True) -> argparse.ArgumentParser:
    """Make the parser of all options.

    Args:
        everything: show all options in the help, not only the common ones.
    """
    parser = _Parser(
        prog="shrinkfx",
        allow_abbrev=False,
        add_help=False,
        usage="shrinkfx MODEL.pt2 [options]\n"
        "       shrinkfx --capture [options] COMMAND ...\n"
        "       shrinkfx verify REPRO.py [options]\n"
        "       shrinkfx triage PATH... [options] [-- options of each run]\n"
        "       shrinkfx --resume DIR\n"
        "       shrinkfx --explain DIR\n"
        "       shrinkfx --report DIR\n"
        "       shrinkfx doctor  (tests this environment)",
        description="Reduce a program that fails under AOTInductor or torch.compile\n"
        "to a small one that fails in the same way, as a single repro.py.",
        epilog=_EXAMPLES + "\n" + _make_tables() if everything else _common_epilog(),
        formatter_class=_Formatter,
    )
    for title, records in GROUPS:
        group = parser.add_argument_group(title)
        if ProgramOptions in records:
            group.add_argument("model", nargs="?", metavar="MODEL.pt2", help=_MODEL)
        _add_options(group, records, everything=everything)
    add = partial(group.add_argument, nargs=0, default=argparse.SUPPRESS)
    add("-h", "--help", action=_Help, help="show the common options")
    add(
        "--help-all",
        action=_Help,
        const="everything",
        help="show all options, examples, kinds and exit codes",
    )
    version = f"shrinkfx {__version__}"
    group.add_argument("--version", action="version", version=version, help=_VERSION)
    return parser


_MODEL = "file from torch.export.save, or a dump (script or folder) from PyTorch"
_VERSION = "show the version"


def list_options() -> Iterator[Option]:
    """Yield all options, except those of help and ``--version``."""
    for _, records in GROUPS:
        for record in records:
            yield from list_record_options(record)


def list_flags_with_values() -> frozenset[str]:
    """Return the flags that must be followed by a value, as typed."""
    with_values = (
        each for each in list_options() if each.takes is not bool and not each.const
    )
    return frozenset(flag for each in with_values for flag in each.flags)


def _add_options(
    group: argparse._ArgumentGroup, records: Sequence[type], *, everything: bool
) -> None:
    groups: dict[str, argparse._ArgumentGroup] = {"": group}
    for record in records:
        for each in list_record_options(record):
            if each.exclusive_group not in groups:
                groups[each.exclusive_group] = group.add_mutually_exclusive_group()
            help_text = _choose_help(each, everything=everything)
            _add(groups[each.exclusive_group], each, help_text)


def _choose_help(option: Option, *, everything: bool) -> str:
    """Return the help of an option as plain text.

    Without ``everything``, common options get their brief help, and all other options
    are suppressed.
    """
    if everything:
        return remove_markup(option.help)
    if not option.common:
        return argparse.SUPPRESS
    return remove_markup(option.brief or option.help)


def _add(group: argparse._ArgumentGroup, option: Option, help_text: str) -> None:
    add = partial(
        group.add_argument,
        *option.flags,
        dest=option.name,
        default=option.default,
        help=help_text,
    )
    if option.takes is bool:
        add(action="store_true")
    elif option.const is not None and option.metavar:
        add(nargs="?", const=option.const, metavar=option.metavar)
    elif option.const is not None:
        add(action="store_const", const=option.const)
    elif option.choices:
        add(choices=option.choices)
    elif option.repeated:
        add(action="append", default=[], metavar=option.metavar)
    else:
        add(type=option.takes, metavar=option.metavar)


def _common_epilog() -> str:
    kinds = f"kinds of failure: {', '.join(UNTIL)}"
    filled = textwrap.fill(kinds, 78, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join((_COMMON_EXAMPLES, filled, "", _SEE_HELP_ALL))


def _make_tables() -> str:
    kinds = {
        **{kind.value: text for kind, text in MEANING.items()},
        ANY: "whatever failure the baseline shows, as without the option",
    }
    lines = ["kinds of failure:"]
    lines += [f"  {kind:14} {text}" for kind, text in kinds.items()]
    lines += ["", "exit codes:"]
    for code, text in EXIT_CODES.items():
        lines.append(textwrap.fill(f"  {code}  {text}", 78, subsequent_indent="     "))
    return "\n".join(lines)
