"""Shell completion scripts, which ``shtab`` generates from the parser."""

from __future__ import annotations

import argparse

from shrinkfx.cli.parser import make_parser
from shrinkfx.errors import UsageError
from shrinkfx.failure.signature import UNTIL

_FOLDERS = {"DIR", "FOLDER"}
_FILES = {"FILE", "MODULE|FILE", "MODEL.pt2", "PYTHON"}
"""Metavars of the options whose values are paths."""


def make_completion_script(shell: str) -> str:
    """Return the script that makes a shell complete options and their values.

    Raises:
        UsageError: ``shtab`` is not installed.
    """
    try:
        import shtab
    except ImportError as error:
        raise UsageError(
            "--print-completion needs shtab, which is not installed: "
            "pip install 'shrinkfx[completion]'"
        ) from error
    parser = make_parser()
    for action in parser._actions:
        if action.metavar in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        else:
            _set_choices(action)
    written: str = shtab.complete(parser, shell=shell)
    return written


def _set_choices(action: argparse.Action) -> None:
    """Set the choices of an option whose values the parser does not check itself."""
    if action.dest == "until":
        action.choices = UNTIL
    elif isinstance(action.metavar, str) and "|" in action.metavar:
        action.choices = action.metavar.split("|")
