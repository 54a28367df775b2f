"""Parse the description of the memory around tensors on a GPU."""

from __future__ import annotations

import re

_RED_ZONE_NOTE = re.compile(r"^red zones: (tensors lie between [^\n]+)$", re.MULTILINE)


def find_red_zone_note(log: str) -> str:
    """Return the worker's sentence about red zones, or ''."""
    found = _RED_ZONE_NOTE.search(log)
    return found[1] if found else ""
