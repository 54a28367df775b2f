"""Find the program to reduce with ``--capture``, or in an earlier capture folder."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from shrinkfx import api
from shrinkfx.cli import parser
from shrinkfx.cli.from_arguments import read_record
from shrinkfx.cli.own_options import CaptureOptions
from shrinkfx.errors import NothingToReduce, StorageError, UsageError
from shrinkfx.events import Listener
from shrinkfx.flags import require_valid_values
from shrinkfx.intake.recognise import is_dump


def refuse_with_capture(arguments: argparse.Namespace) -> None:
    """Refuse ``--capture`` together with a program or another task.

    Raises:
        UsageError: a program or another task is given as well.
    """
    require_valid_values(read_record(CaptureOptions, arguments))
    if not arguments.capture:
        return
    for name in ("resume", "candidate", "verify", "across"):
        if getattr(arguments, name):
            raise UsageError(f"--capture runs a script: omit --{name}")
    if arguments.model is not None:
        raise UsageError(
            "--capture finds the program in the command that follows it: omit "
            f"{arguments.model}"
        )


def uses_capture(arguments: argparse.Namespace) -> bool:
    """Tell whether the program must be found by, or in, a capture.

    Raises:
        UsageError: ``--program`` is given, but no capture.
    """
    if arguments.capture or api.is_capture(arguments.model):
        return True
    if arguments.program is not None:
        raise UsageError(
            f"--program needs the folder of a --capture run, and {arguments.model} is "
            "not such a folder"
        )
    return False


def is_run_to_explain(arguments: argparse.Namespace) -> bool:
    """Tell whether MODEL is the folder of a run, not a program to reduce.

    A capture folder is a program to reduce if no reduction was started in it, or if
    ``--program`` selects one of its programs.
    """
    path = Path(arguments.model or "-")
    if arguments.model and not path.exists():
        return not path.suffix  # the task that opens it reports that it does not exist
    if not path.is_dir() or is_dump(path):
        return False
    if not api.is_capture(path):
        return True
    runs = [run for run in api.runs(path) if run.folder == path]
    has_begun = any(run.status != api.State.CAPTURED for run in runs)
    return has_begun and arguments.program is None


def is_run_to_resume(arguments: argparse.Namespace) -> bool:
    """Tell whether MODEL is the folder of a run to resume or to show.

    The run may be finished or unfinished. With ``--program``, or with the path of the
    folder ``capture`` inside it, the user means a captured program for a new run.
    """
    if arguments.capture or arguments.program is not None:
        return False
    return arguments.model is not None and api.is_run(arguments.model)


@contextlib.contextmanager
def find_captured_program(
    arguments: argparse.Namespace, options: api.Options, listener: Listener
) -> Iterator[api.Options]:
    """Find the program, and yield the options of the run that reduces it.

    With ``--json``, the output of the script goes to stderr, because stdout holds the
    events. This process keeps the folder of the run locked until the end of the block.
    """
    if not arguments.capture:
        yield api.recaptured(options, listener, program=arguments.program)
        return
    with contextlib.ExitStack() as stack:
        try:
            captured = stack.enter_context(
                api.capture(
                    options,
                    arguments.command,
                    listener,
                    program=arguments.program,
                    stdout=sys.stderr if arguments.json else None,
                )
            )
        except (KeyboardInterrupt, StorageError) as error:
            error.add_note(f"to repeat this run: {arguments.typed}")
            raise
        except NothingToReduce as error:
            for hint in _describe_misplaced_options(arguments.command):
                error.add_note(hint)
            raise
        yield captured


def _describe_misplaced_options(command: Sequence[str]) -> list[str]:
    """Describe options of shrinkfx among the arguments of the script, as a hint."""
    flags = {flag for option in parser.list_options() for flag in option.flags}
    wrong = [word for word in command[1:] if word.partition("=")[0] in flags]
    if not wrong:
        return []
    return [
        f"the script received {', '.join(wrong)}: options of shrinkfx belong between "
        "--capture and the command"
    ]
