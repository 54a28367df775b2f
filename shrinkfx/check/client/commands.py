"""Run a command of another program to its end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from shrinkfx.check.client.orphans import kill_marked, new_mark
from shrinkfx.protocol.requests import MARK


def run_command(
    words: Sequence[str],
    limit_s: float,
    text: str = "",
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command; no process that it started outlives the call.

    Args:
        limit_s: seconds by the clock.
        text: the standard input.
        variables: its environment; None for that of this process.

    Raises:
        subprocess.TimeoutExpired: the command did not end in time, and was killed.
    """
    mark = new_mark()
    with subprocess.Popen(
        words,
        env={**(os.environ if variables is None else variables), MARK: mark},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    ) as child:
        try:
            out, err = child.communicate(text, limit_s)
        finally:
            kill_marked(mark)
            child.wait()  # Popen does not wait after a Ctrl-C
    return subprocess.CompletedProcess(words, child.returncode, out, err)
