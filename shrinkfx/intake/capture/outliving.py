"""A helper process that kills what a captured script leaves running.

It waits for the end of its stdin or for the death of this process, because a killed
process cannot clean up itself.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import shrinkfx
from shrinkfx.check.client.orphans import kill_marked

_EVERY_S = 1.0
"""Interval in seconds at which the helper checks its parent.

The pipe alone is not sufficient, because a forked copy of the parent may keep it open.
"""

_STDIN = 0


@contextlib.contextmanager
def kill_at_end(mark: str) -> Iterator[None]:
    """Kill all processes with a mark when the block ends or this process dies."""
    root = str(Path(shrinkfx.__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    other = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, mark, str(os.getpid())],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        other.communicate()  # closes its stdin; another Ctrl-C has no effect
        if other.returncode:
            kill_marked(mark)


def _wait(parent: int) -> None:
    while os.getppid() == parent and not select.select([_STDIN], [], [], _EVERY_S)[0]:
        pass


if __name__ == "__main__":
    _wait(int(sys.argv[2]))
    kill_marked(sys.argv[1])
