"""Convert parsed arguments to records of options, and refuse excluded options."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TypeVar

from shrinkfx.cli.own_options import PrintOptions
from shrinkfx.cli.parser import list_options, make_parser
from shrinkfx.errors import UsageError
from shrinkfx.flags import Option, list_record_options
from shrinkfx.options.options import Options, Sweeping


def refuse_empty_values(arguments: argparse.Namespace) -> None:
    """Refuse options with an empty value, such as ``--resume "$UNSET"``.

    An empty value would otherwise count as an omitted option and start another task.

    Raises:
        UsageError: the path of the program or the value of an option is empty.
    """
    if arguments.model == "":
        raise UsageError(
            "the path of the program is empty: check for an unset variable"
        )
    for option in list_options():
        value = getattr(arguments, option.name)
        is_empty = value == "" or (isinstance(value, list) and "" in value)
        if option.never_empty and is_empty:
            raise UsageError(
                f"{option.flag} has an empty value: check for an unset variable"
            )


def refuse_with_resume(arguments: argparse.Namespace, folder: str) -> None:
    """Refuse options that cannot change when a run is resumed.

    Args:
        folder: the folder of the run.

    Raises:
        UsageError: such an option is given.
    """
    for option in _list_given_options(arguments):
        if option.works_with_resume:
            continue
        if arguments.resume:
            raise UsageError(
                "--resume continues a run with its original options: omit "
                f"{option.flag}"
            )
        capture = Path(folder, "capture")
        program = shlex.quote(str(capture)) if capture.is_dir() else "MODEL.pt2"
        raise UsageError(
            f"{folder} is the folder of a run, which continues with its original "
            f"options: omit {option.flag}, or start a new run: shrinkfx {program} "
            f"{option.flag}"
        )


_TASKS = {
    "explain": ("uses the options of that run", "title"),
    "report": ("reads only the folder of a run",),
    "candidate": ("uses the options of that run", "out"),
    "list_runs": ("lists the runs in a folder and exits",),
}
"""For each task: its effect, for error messages, and the options that it uses."""


def refuse_with_task(task: str, arguments: argparse.Namespace) -> None:
    """Refuse a program, a command, and options that a task does not use.

    Args:
        task: the name of the task's option.

    Raises:
        UsageError: a program, a command or such an option is given.
    """
    effect, *others = _TASKS[task]
    (flag,) = (option.flag for option in list_options() if option.name == task)
    if task == "report" and arguments.model is not None:
        raise UsageError("--report DIR reads the folder of a run: omit MODEL.pt2")
    if task == "list_runs" and arguments.model is not None:
        raise UsageError(f"{flag} {effect}: omit {arguments.model}")
    if task == "list_runs" and arguments.command:
        raise UsageError(f"{flag} {effect}: omit the command")
    printing = [option.name for option in list_record_options(PrintOptions)]
    usable = {task, *others, *printing}
    for option in _list_given_options(arguments):
        if option.name not in usable:
            raise UsageError(f"{flag} {effect}: omit {option.flag}")


def _list_given_options(arguments: argparse.Namespace) -> list[Option]:
    """List the options whose values differ from their defaults."""
    defaults = make_parser().parse_args([])
    return [
        option
        for option in list_options()
        if getattr(arguments, option.name) != getattr(defaults, option.name)
    ]


def read_options(arguments: argparse.Namespace, command: str) -> Options:
    return read_record(
        Options,
        arguments,
        model=Path(arguments.model or ""),
        command=command,
        sweeping=_read_sweep_options(arguments),
    )


Record = TypeVar("Record")


def read_record(
    record: type[Record], arguments: argparse.Namespace, **extra: object
) -> Record:
    """Make a record from the arguments of its options.

    Args:
        extra: values of the fields that are not options.
    """
    options = list_record_options(record)
    values = {o.name: o.convert_value(getattr(arguments, o.name)) for o in options}
    return record(**values, **extra)


def _read_sweep_options(arguments: argparse.Namespace) -> Sweeping | None:
    """Return the options of the sweep, or None without ``--dynamic-sweep``.

    Raises:
        UsageError: an option of a sweep is given without ``--dynamic-sweep``.
    """
    if arguments.dynamic_sweep:
        return read_record(Sweeping, arguments)
    for option in list_record_options(Sweeping):
        if getattr(arguments, option.name) != option.default:
            raise UsageError(
                f"{option.flag} only applies to a sweep: add --dynamic-sweep"
            )
    return None
