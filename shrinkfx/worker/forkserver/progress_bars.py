"""Keep Inductor's progress bars from starting a thread, which would not survive a fork.

Without tqdm, torch shows no bars (``torch/hub.py``), and this module does nothing.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

_BARS: Any = None
with contextlib.suppress(ImportError):
    _BARS = importlib.import_module("tqdm").tqdm


def disable_monitor_thread() -> None:
    """Let the bars of this process start no monitor thread from now on."""
    if _BARS is not None:
        _BARS.monitor_interval = 0


@contextlib.contextmanager
def without_monitor_thread() -> Iterator[None]:
    """Let the bars start no monitor thread inside the context."""
    before = getattr(_BARS, "monitor_interval", 0)
    disable_monitor_thread()
    try:
        yield
    finally:
        if _BARS is not None:
            _BARS.monitor_interval = before
