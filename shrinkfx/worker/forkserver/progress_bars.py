"""Inductor's bars of progress: they start a thread, which would not survive a fork.

Torch does without tqdm where it is not installed (``torch/hub.py``), and so does this.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

_BARS: Any = None
with contextlib.suppress(ImportError):
    _BARS = importlib.import_module("tqdm").tqdm


def start_no_thread() -> None:
    """Have bars of this process start none, from now on."""
    if _BARS is not None:
        _BARS.monitor_interval = 0


@contextlib.contextmanager
def without_thread() -> Iterator[None]:
    """Have bars start none for a while."""
    before = getattr(_BARS, "monitor_interval", 0)
    start_no_thread()
    try:
        yield
    finally:
        if _BARS is not None:
            _BARS.monitor_interval = before
