"""Read Inductor's settings, as set by this version of PyTorch and by the user."""

from __future__ import annotations

from typing import Any

import torch

from shrinkfx.protocol.choices import Backend, InductorOptions
from shrinkfx.protocol.descriptions import Settings
from shrinkfx.protocol.requests import Setup
from shrinkfx.worker.interpreter import backend as interpreter
from shrinkfx.worker.loading.devices import is_for_cuda
from shrinkfx.worker.private_api.inductor_api import config


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
