"""Find the user's code in the stack that faulthandler dumps at a hang or a death.

The dump contains only paths and names. Installed files, files of Python and generated
files do not count as the user's.
"""

from __future__ import annotations

import re
from pathlib import Path

_DUMP = re.compile(
    r"^(?:Current thread .*|Stack )\(most recent call first\):\n", re.MULTILINE
)
"""The line above the frames of the thread that died; for a hang, of the main thread."""

_FRAME = re.compile(r'  File "([^"]+)", line \d+ in (\S+)')

_NOT_USER_CODE = re.compile(
    r"<"  # no file: generated, or frozen
    r"|.*/(?:site|dist)-packages/"
    r"|.*/lib/python3[.\d]*/"
    r"|.*/torch/"  # built from source
    r"|.*/shrinkfx/worker/"
    r"|.*/c[a-z2-7]{51}\.py$"  # Inductor's, named by a hash
)

_REPRO = "repro.py"


def find_user_frame(log: str) -> str:
    """Return the innermost function of the user's code, as ``passes.py:settle``; or ''.

    A function that a repro embeds is named without the file.

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
        if not _NOT_USER_CODE.match(path) and function != "<module>":
            file = Path(path).name
            return function if file == _REPRO else f"{file}:{function}"
    return ""
