"""The entry point of the command line: parse the arguments and start one task."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Collection, Sequence
from typing import TextIO

from shrinkfx.cli.parser import (
    CAPTURE,
    list_flags_with_values,
    make_parser,
)
from shrinkfx.cli.streams import open_closed_streams, use_lenient_streams
from shrinkfx.errors import ShrinkfxError
from shrinkfx.system.processes import ProcessState


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit code."""
    ProcessState.unclaimed = arguments is None
    words = list(sys.argv[1:] if arguments is None else arguments)
    open_closed_streams()
    stdout = sys.stdout
    with use_lenient_streams() as printed:
        code = _main(words, stdout)
    if code is None:  # the task was only to print something
        broken = printed.error and not isinstance(printed.error, BrokenPipeError)
        return 2 if broken else 0
    return code


def _main(typed: list[str], stdout: TextIO) -> int | None:
    """Do one task, and return its exit code.

    Returns:
        None if the task was only to print something, and it did.
    """
    match typed:  # for a file named doctor, type ./doctor
        case ["doctor", *words]:
            return _doctor(words)
        case ["triage", *words]:
            # Imported here, because the import takes half a second.
            from shrinkfx.cli import triage

            return triage.main(words)
        case ["verify", *words]:
            arguments = ["--verify", *words]
        case _:
            arguments = typed
    parser = make_parser()
    tool_args, captured = split_command_line(arguments, list_flags_with_values())
    options = parser.parse_args(tool_args)
    options.command = captured
    options.typed = shlex.join(["shrinkfx", *typed])
    if options.list_strategies:
        return _print_strategies()
    folders = options.resume, options.report, options.list_runs, options.candidate
    tasks = options.model, *folders
    if not options.capture and all(task is None for task in tasks):
        if options.verify:
            parser.error("the path of the repro is missing: shrinkfx verify repro.py")
        parser.error(
            "the path of the program is missing: shrinkfx MODEL.pt2 (see --help)"
        )
    # This import takes half a second, which --help does not need.
    from shrinkfx.cli import task

    pairs = zip(["", *tool_args], tool_args, strict=False)
    own = [w for old, w in pairs if old != "--known" and not w.startswith(_OMITTED)]
    shown = _shorten_paths([*own, *abbreviate_command(captured)])
    return task.do_task(options, shlex.join(["shrinkfx", *shown]), stdout)


def _doctor(words: list[str]) -> int:
    try:
        from shrinkfx.cli import doctor
    except ImportError as error:
        advice = f"reinstall shrinkfx for {sys.executable}"
        problem = "cannot import a package that shrinkfx needs"
        print(f"shrinkfx doctor: {problem}: {error}\n{advice}", file=sys.stderr)
        return 2
    return doctor.main(words)


def _print_strategies() -> int | None:
    from shrinkfx import api

    try:
        for name, strategy in api.available_strategies().items():
            summary = (strategy.__doc__ or "").strip().partition("\n")[0]
            print(f"{name:20} {summary}")
    except ShrinkfxError as error:
        print(f"shrinkfx: {error}", file=sys.stderr)
        return error.exit_code
    return None


_OMITTED = ("--json", "-q", "--quiet", "--known")
"""Options that change no repro; a triage passes them to its runs."""


def _shorten_paths(arguments: Sequence[str]) -> list[str]:
    """Shorten paths to file names, because a repro must not show local paths."""
    return [re.sub(r"[^\s=]*/", "", argument) for argument in arguments]


def split_command_line(
    arguments: Sequence[str], with_values: Collection[str]
) -> tuple[list[str], list[str]]:
    """Split the command line into shrinkfx's words and the command to capture.

    The command begins after ``--``, or else with the first word after ``--capture``
    that is neither an option nor the value of an option. All words after that belong
    to the command.

    Args:
        with_values: flags that take a value, as typed.

    Returns:
        The words for shrinkfx, and the command; the command is empty without
        ``--capture``.
    """
    words = list(arguments)
    until_dashes = words[: words.index("--")] if "--" in words else words
    if CAPTURE not in until_dashes:
        return words, []
    index = words.index(CAPTURE) + 1
    while index < len(words) and words[index].startswith("-"):
        if words[index] == "--":
            return words[:index], words[index + 1 :]
        index += 2 if words[index] in with_values else 1
    return words[:index], words[index:]


def abbreviate_command(command: Sequence[str]) -> list[str]:
    """Abbreviate the arguments of a command, because users share the repro."""
    shown = [word for word in command[:2] if "=" not in word]
    words = ["--", *shown] if command else []
    return [*words, "..."] if command[len(shown) :] else words
