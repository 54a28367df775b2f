"""Recognize the Python of a command, and rewrite the command for shrinkfx's Python."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec

_PYTHON = re.compile(r"python[\d.]*")


def is_python(word: str) -> bool:
    """Return whether a command's first word is a Python interpreter."""
    return bool(_PYTHON.fullmatch(os.path.basename(word)))


def find_python_script(command: Sequence[str]) -> str:
    """Return the path of the script that a Python command runs, or ''.

    It is '' for stdin (``-``), a module (``-m``) and inline code (``-c``).
    """
    if not is_python(command[0]):
        return ""
    words = iter(command[1:])
    for word in words:
        if word in _TAKES_A_WORD:
            next(words, None)
        elif not word.startswith("-"):
            return word
        elif word == "-" or word.startswith(("-c", "-m")):
            return ""
    return ""


_TAKES_A_WORD = {"-X", "-W", "--check-hash-based-pycs"}
"""Options of Python that take a separate value."""


def shorten_command(command: Sequence[str]) -> str:
    """Shorten a command to its first two words, or three for ``python -m module``."""
    return " ".join(command[: 3 if "-m" in command[:2] else 2])


def advise_own_python(command: Sequence[str]) -> str:
    """Return advice to run a command with the Python of shrinkfx."""
    if find_spec("torch") is None:
        return "\nuse the path of a Python that has PyTorch, as in /env/bin/python"
    name, *rest = command
    module = _RUN_AS.get(os.path.basename(name))
    python: tuple[str, ...] = (sys.executable, *(("-m", module) if module else ()))
    if module is None and not is_python(name):
        path = f"PATH={shlex.quote(os.path.dirname(sys.executable))}:$PATH"
        suggestion = f"{path} shrinkfx --capture -- {shlex.join(command)}"
    else:
        suggestion = f"shrinkfx --capture -- {shlex.join((*python, *rest))}"
    return f"\nto run it with the Python of shrinkfx, which has PyTorch: {suggestion}"


_RUN_AS = {"pytest": "pytest", "py.test": "pytest", "torchrun": "torch.distributed.run"}
"""Commands that are modules of the Python for which they are installed."""
