"""From ``--capture``, or the folder of an earlier one, to the program of a run."""

from __future__ import annotations

import argparse
import sys

from shrinkfx import api
from shrinkfx.cli.from_arguments import read
from shrinkfx.cli.own_options import CaptureOptions
from shrinkfx.errors import UsageError
from shrinkfx.events import Listener
from shrinkfx.flags import require_values


def refuse_beside_capture(arguments: argparse.Namespace) -> None:
    """See that a script that is run is all that is asked about.

    Raises:
        UsageError: a program or another task is named as well.
    """
    require_values(read(CaptureOptions, arguments))
    if not arguments.capture:
        return
    for name in ("resume", "candidate", "verify", "across"):
        if getattr(arguments, name):
            raise UsageError(f"--capture runs a script: leave --{name} out")
    if arguments.model is not None:
        raise UsageError(
            f"--capture finds the program in what follows --: leave {arguments.model} "
            "out, or put -- before the command"
        )


def is_capture(arguments: argparse.Namespace) -> bool:
    """Tell whether a program is still to be found.

    Raises:
        UsageError: ``--program`` is said of no capture.
    """
    if arguments.capture or api.is_capture(arguments.model):
        return True
    if arguments.program is not None:
        raise UsageError(
            f"--program is for what --capture has found, and {arguments.model} is no "
            "folder of such a run"
        )
    return False


def captured(
    arguments: argparse.Namespace, options: api.Options, listener: Listener
) -> api.Options:
    """Find the program; with ``--json`` stdout is ours, and the script's is stderr."""
    if not arguments.capture:
        return api.recaptured(options, listener, program=arguments.program)
    try:
        return api.capture(
            options,
            arguments.command,
            listener,
            program=arguments.program,
            stdout=sys.stderr if arguments.json else None,
        )
    except KeyboardInterrupt as error:
        error.add_note(f"to run it again: {arguments.typed}")
        raise
