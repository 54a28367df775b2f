"""A process beside this one that ends what this one has started, or would leave.

It waits until it is told, or until this process is gone: once that was killed, nothing
of it runs any more that could do so.
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
"""A copy of this process, forked by somebody, may keep the pipe open."""

_STDIN = 0


@contextlib.contextmanager
def ended(mark: str) -> Iterator[None]:
    """Have all that bears a mark end with the block, or with this process."""
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
        other.communicate()  # the pipe's end tells it; another Ctrl-C changes nothing
        if other.returncode:
            kill_marked(mark)


def _wait(parent: int) -> None:
    while os.getppid() == parent and not select.select([_STDIN], [], [], _EVERY_S)[0]:
        pass


if __name__ == "__main__":
    _wait(int(sys.argv[2]))
    kill_marked(sys.argv[1])
