"""A context of a GPU, made before a child is told what to do."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch

from shrinkfx.protocol.requests import Request
from shrinkfx.protocol.tasks import (
    CheckAtSizes,
    CheckCandidate,
    CheckOriginal,
    Describe,
    FitRewrites,
    ListCandidate,
    SaveCandidate,
    WriteCandidate,
)

_OF_THE_PROGRAM = (
    CheckAtSizes,
    CheckCandidate,
    CheckOriginal,
    Describe,
    FitRewrites,
    ListCandidate,
    SaveCandidate,
    WriteCandidate,
)
"""What loads the program, and so its weights onto the GPU."""


class Contexts:
    """How a child comes to one (``forkserver/warm.py``).

    Args:
        settle: sets what counts before CUDA is used, as often as it is called.
        device: ``cuda``, or ``cuda:1``.
    """

    def __init__(self, settle: Callable[[Request], None], device: str) -> None:
        self._settle, self._device = settle, torch.device(device)

    def settings_of(self, request: Request) -> Hashable | None:
        """State what a context depends on; None where none is needed here."""
        options = request.options
        elsewhere = request.fresh or options.guard_pages.is_sanitizer
        if elsewhere or not isinstance(request.task, _OF_THE_PROGRAM):
            return None
        return options.guard_pages, *sorted(options.environment.items())

    def enter(self, request: Request) -> tuple[int, int]:
        """Make a context; no kernel runs. Tell the GPU's free and total bytes."""
        self._settle(request)
        torch.cuda.init()
        return torch.cuda.mem_get_info(self._device)

    def is_well(self) -> bool:
        """Tell whether it can be used still; a GPU may have been reset since."""
        try:
            torch.cuda.synchronize(self._device)
        except RuntimeError as error:
            print(f"no pre-warmed process: {error}", flush=True)
            return False
        return True
