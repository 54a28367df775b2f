"""Create a CUDA context in a child before it gets a request."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch

from shrinkfx.protocol import requests
from shrinkfx.protocol.requests import Request

_PROGRAM_TASKS = (
    requests.CheckAtSizes,
    requests.CheckCandidate,
    requests.CheckOriginal,
    requests.Describe,
    requests.FitRewrites,
    requests.ListCandidate,
    requests.SaveCandidate,
    requests.WriteCandidate,
)
"""Tasks that load the program, and so its weights onto the GPU."""


class Contexts:
    """Creates the CUDA contexts of pre-warmed children (``forkserver/serve.py``).

    Args:
        settle: applies the settings that must precede CUDA; may be called repeatedly.
        device: ``cuda``, or ``cuda:1``.
    """

    def __init__(self, settle: Callable[[Request], None], device: str) -> None:
        self._settle, self._device = settle, torch.device(device)

    def settings_of(self, request: Request) -> Hashable | None:
        """Return the settings that a context depends on; None: it needs no context."""
        options = request.options
        is_excluded = request.fresh or options.guard_pages.is_sanitizer
        if is_excluded or not isinstance(request.task, _PROGRAM_TASKS):
            return None
        return options.guard_pages, *sorted(options.environment.items())

    def enter(self, request: Request) -> tuple[int, int]:
        """Create a context without a kernel launch; return the free and total bytes."""
        self._settle(request)
        torch.cuda.init()
        return torch.cuda.mem_get_info(self._device)

    def is_well(self) -> bool:
        """Return whether the context is usable; the GPU may have been reset."""
        try:
            torch.cuda.synchronize(self._device)
        except RuntimeError as error:
            print(f"no pre-warmed process: {error}", flush=True)
            return False
        return True
