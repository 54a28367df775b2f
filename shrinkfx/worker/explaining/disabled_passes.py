"""Disable passes and lowerings by their number, through Inductor's bisector hook.

PyTorch's ``CompilerBisector`` reads what to disable from files in the cache folder,
which all processes share, or from variables that it reads once. Here the request says
it; the numbers are those of ``TORCH_BISECT_MAX``.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from torch import fx

from shrinkfx.protocol.choices import Subsystem
from shrinkfx.protocol.files import Application
from shrinkfx.protocol.requests import LeaveOut
from shrinkfx.worker.explaining.own_nodes import UserNodes, track_user_nodes
from shrinkfx.worker.private_api import codegen_api

_INDUCTOR = "inductor"


@contextlib.contextmanager
def disable_applications(request: LeaveOut) -> Iterator[None]:
    """Disable the requested applications in all that is compiled in the block."""
    with track_user_nodes() as user_nodes:
        replacement = staticmethod(_ApplicationCounter(request, user_nodes).is_left_out)
        with mock.patch.object(
            codegen_api.CompilerBisector, "disable_subsystem", replacement
        ):
            yield


class _ApplicationCounter:
    """Counts applications, and records each in a file before it takes place."""

    def __init__(self, request: LeaveOut, user_nodes: UserNodes) -> None:
        self._request = request
        self._user_nodes = user_nodes
        self._counts: Counter[str] = Counter()

    def is_left_out(
        self, backend: str, subsystem: str, debug_info: Callable[[], str] | None = None
    ) -> bool:
        """Return whether to disable an application.

        This replaces ``CompilerBisector.disable_subsystem``.
        """
        if backend != _INDUCTOR or subsystem not in set(Subsystem):
            return False
        number = self._counts[subsystem]
        self._counts[subsystem] += 1
        # Written now, because the application may end the process. The first one
        # truncates the file; running an already compiled package leaves it as it is.
        mode = "a" if self._counts.total() > 1 else "w"
        entry = _application(Subsystem(subsystem), number, debug_info, self._user_nodes)
        with Path(self._request.applications).open(mode, encoding="utf-8") as file:
            file.write(entry.to_line())
        request = self._request
        return (
            subsystem in request.subsystems
            and request.first <= number
            and (request.last is None or number <= request.last)
        )


def _application(
    subsystem: Subsystem,
    number: int,
    debug_info: Callable[[], str] | None,
    user_nodes: UserNodes,
) -> Application:
    """Describe the pass or lowering that is about to be applied."""
    node = (
        codegen_api.V.get_current_node() if subsystem is Subsystem.LOWERINGS else None
    )
    if not isinstance(node, fx.Node):
        return Application(subsystem, number, debug_info() if debug_info else "")
    name, origin = str(node.target), str(node.meta.get("original_aten") or "")
    origin = "" if origin == name or node in user_nodes else origin
    return Application(subsystem, number, name, node.name, origin)
