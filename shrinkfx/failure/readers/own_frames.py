"""A user's own code among the frames of what hung or died, as faulthandler has them.

Only paths and names are known there: what is installed, Python's, or made by a program
is taken for nobody's.
"""

from __future__ import annotations

import re
from pathlib import Path

_DUMP = re.compile(
    r"^(?:Current thread .*|Stack )\(most recent call first\):\n", re.MULTILINE
)
"""Stands above the frames of the thread that died; of a hang, that is the main one."""

_FRAME = re.compile(r'  File "([^"]+)", line \d+ in (\S+)')

_NOBODYS = re.compile(
    r"<"  # no file: generated, or frozen
    r"|.*/(?:site|dist)-packages/"
    r"|.*/lib/python3[.\d]*/"
    r"|.*/torch/"  # built from source
    r"|.*/shrinkfx/worker/"
    r"|.*/c[a-z2-7]{51}\.py$"  # Inductor's, by its hash
)

_REPRO = "repro.py"


def own_frame(log: str) -> str:
    """Name the innermost function of a user's own, as ``passes.py:settle``; or ''.

    One that a repro has as text is named without that file.

    >>> own_frame('''Current thread 0x00007f17f1459b80 (most recent call first):
    ...   File "/env/site-packages/torch/fx/node.py", line 887 in __setattr__
    ...   File "/home/me/passes.py", line 15 in settle
    ...   File "/env/site-packages/torch/_inductor/compile_fx.py", line 582 in passes
    ...   File "/home/me/repro.py", line 68 in <module>
    ... ''')
    'passes.py:settle'
    """
    dumps = [*_DUMP.finditer(log)]
    if not dumps:
        return ""
    for line in log[dumps[-1].end() :].splitlines():
        frame = _FRAME.match(line)
        if frame is None:
            break
        path, function = frame.groups()
        if not _NOBODYS.match(path) and function != "<module>":
            file = Path(path).name
            return function if file == _REPRO else f"{file}:{function}"
    return ""
