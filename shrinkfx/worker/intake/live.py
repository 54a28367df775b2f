"""What Inductor has in this very process that a new process would not have."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType

from .watching.by_import import ByImport, by_import
from .watching.origins import Origin, in_inductor
from .watching.settings import Settings, is_plain, is_same


@dataclass(frozen=True)
class Live:
    """What was set and put into Inductor since it was imported.

    Attributes:
        settings: those that are other than by default, and plain values.
        others: those that are none, and how an import makes them.
        origins: modules whose code is in Inductor, in tables or in ``others``.
    """

    settings: Settings = field(default_factory=dict)
    others: Mapping[str, ByImport] = field(default_factory=dict)
    origins: tuple[Origin, ...] = ()


def live() -> Live:
    """Look at Inductor as it is; where nobody has imported it, nothing is there."""
    config = sys.modules.get("torch._inductor.config")
    if config is None or not hasattr(config, "_is_default"):
        return Live()
    now = config.get_config_copy()
    changed = {k: v for k, v in now.items() if _is_other(config, k, v)}
    plain = {k: v for k, v in changed.items() if is_plain(v)}
    others = {k: v for k, v in changed.items() if k not in plain}
    made = {k: by_import(v) for k, v in others.items()}
    return Live(plain, made, tuple(in_inductor(others.values())))


def _is_other(config: ModuleType, name: str, value: object) -> bool:
    """Tell what is set from what never was, or was set back."""
    if config._is_default(name):
        return False
    entry = getattr(config, "_config", {}).get(name)
    return entry is None or not is_same(value, entry.default)
