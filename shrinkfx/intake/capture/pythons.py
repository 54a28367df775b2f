"""The Python that a command runs, and how to type it with the one of shrinkfx."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec

_PYTHON = re.compile(r"python[\d.]*")


def is_python(word: str) -> bool:
    """Tell whether a command begins with an interpreter."""
    return bool(_PYTHON.fullmatch(os.path.basename(word)))


def script_in(command: Sequence[str]) -> str:
    """Find the script that a Python is told to run; '' where it is none by its path.

    That is ``-``, for what it reads, a module (``-m``), or what is typed (``-c``).
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
"""Options of Python that are followed by a word of theirs."""


def in_short(command: Sequence[str]) -> str:
    """Name a command by its first words: those of a script's module are three."""
    return " ".join(command[: 3 if "-m" in command[:2] else 2])


def with_ours(command: Sequence[str]) -> str:
    """Say what to type to run a command with the Python that shrinkfx runs in."""
    if find_spec("torch") is None:
        return "\nuse the path of a Python that has PyTorch, as in /env/bin/python"
    name, *rest = command
    module = _RUN_AS.get(os.path.basename(name))
    ours: tuple[str, ...] = (sys.executable, *(("-m", module) if module else ()))
    if module is None and not is_python(name):
        path = f"PATH={shlex.quote(os.path.dirname(sys.executable))}:$PATH"
        typed = f"{path} shrinkfx --capture -- {shlex.join(command)}"
    else:
        typed = f"shrinkfx --capture -- {shlex.join((*ours, *rest))}"
    return f"\nto run it with the Python of shrinkfx, which has PyTorch: {typed}"


_RUN_AS = {"pytest": "pytest", "py.test": "pytest", "torchrun": "torch.distributed.run"}
"""Commands that are modules of the Python that they are installed for."""
