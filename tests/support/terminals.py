"""Terminals that tests read."""

from __future__ import annotations

import os


def read_to_the_end(terminal: int) -> str:
    """Read what a pseudo-terminal was given, which comes in parts, and close it."""
    said = b""
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # nobody writes to it any more
            break
        if not part:
            break
        said += part
    os.close(terminal)
    return said.decode()
