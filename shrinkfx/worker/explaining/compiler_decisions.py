"""Disable passes and lowerings by their number, and read Inductor's settings."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import fx

from shrinkfx.protocol.answers import Settings
from shrinkfx.protocol.choices import Backend, InductorOptions, Subsystem
from shrinkfx.protocol.files import Application
from shrinkfx.protocol.requests import LeaveOut, Setup
from shrinkfx.worker.interpreter import backend as interpreter
from shrinkfx.worker.loading.devices import is_for_cuda
from shrinkfx.worker.private_api import codegen_api
from shrinkfx.worker.private_api.inductor_api import config

_INDUCTOR = "inductor"


@contextlib.contextmanager
def disable_applications(request: LeaveOut) -> Iterator[None]:
    """Disable the requested applications in all that is compiled in the block."""
    replacement = staticmethod(_ApplicationCounter(request).is_left_out)
    with mock.patch.object(
        codegen_api.CompilerBisector, "disable_subsystem", replacement
    ):
        yield


class _ApplicationCounter:
    """Counts applications, and records each in a file before it takes place."""

    def __init__(self, request: LeaveOut) -> None:
        self._request = request
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
        entry = _application(Subsystem(subsystem), number, debug_info)
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
) -> Application:
    """Describe the pass or lowering that is about to be applied."""
    node = (
        codegen_api.V.get_current_node() if subsystem is Subsystem.LOWERINGS else None
    )
    if not isinstance(node, fx.Node):
        return Application(subsystem, number, debug_info() if debug_info else "")
    name, origin = str(node.target), str(node.meta.get("original_aten") or "")
    return Application(
        subsystem, number, name, node.name, "" if origin == name else origin
    )


# Read Inductor's settings, as set by this version of PyTorch and by the user.


def read_settings(setup: Setup, wanted: InductorOptions) -> Settings:
    """Look up the settings that exist, and those that a check cannot change."""
    values: InductorOptions = {
        name: setup.inductor.get(name, _value(name))
        for name in wanted
        if _value(name) is not _MISSING
    }
    fixed: list[str] = []
    if setup.backend == Backend.INTERPRETER:
        fixed = interpreter.list_overridden_options(wanted)
    return Settings(values, tuple(fixed), is_for_cuda(setup))


_MISSING = object()


def _value(name: str) -> Any:
    """Return a setting as JSON allows, else its ``repr``; ``_MISSING`` if unknown.

    Settings of other parts of PyTorch have full names, as
    ``torch._functorch.config.cse``.
    """
    is_other = name.startswith("torch.")
    value: Any = torch if is_other else config
    name = name.removeprefix("torch.")
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            return _MISSING
    return value if isinstance(value, bool | int | float | str | None) else repr(value)
