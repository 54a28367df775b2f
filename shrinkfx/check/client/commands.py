"""Find a command, and run it to completion."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from shrinkfx.check.client.orphans import kill_marked, new_mark
from shrinkfx.protocol.requests import MARK


def find_tlparse() -> str | None:
    """Find tlparse in the folder of the interpreter, or else on the PATH."""
    folder = str(Path(sys.executable).parent)
    places = os.pathsep.join([folder, os.environ.get("PATH", os.defpath)])
    return shutil.which("tlparse", path=places)


def run_command(
    words: Sequence[str],
    limit_s: float,
    text: str = "",
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command; no process that it started outlives the call.

    Args:
        limit_s: the limit, in seconds of wall time.
        text: the standard input.
        variables: its environment; None for this process's.

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
