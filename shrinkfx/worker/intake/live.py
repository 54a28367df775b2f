"""The state of Inductor in this process that a new process would not have."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType

from .watching.by_import import ImportDescription, describe_import
from .watching.origins import Origin, find_origins_in_inductor
from .watching.settings import Settings, is_plain, is_same


@dataclass(frozen=True)
class InductorState:
    """Settings and code that were put into Inductor since its import.

    Attributes:
        settings: simple values that differ from the default, by setting name.
        others: the changed settings that are not simple values, and how an import makes
            each value.
        origins: modules whose code is in Inductor's tables or in ``others``.
    """

    settings: Settings = field(default_factory=dict)
    others: Mapping[str, ImportDescription] = field(default_factory=dict)
    origins: tuple[Origin, ...] = ()


def read_inductor_state() -> InductorState:
    """Read the current state of Inductor; return an empty one if it is not imported."""
    config = sys.modules.get("torch._inductor.config")
    if config is None or not hasattr(config, "_is_default"):
        return InductorState()
    config_now = config.get_config_copy()
    changed = {k: v for k, v in config_now.items() if _is_other(config, k, v)}
    plain = {k: v for k, v in changed.items() if is_plain(v)}
    others = {k: v for k, v in changed.items() if k not in plain}
    made = {k: describe_import(v) for k, v in others.items()}
    return InductorState(plain, made, tuple(find_origins_in_inductor(others.values())))


def _is_other(config: ModuleType, name: str, value: object) -> bool:
    """Return whether a setting differs from its default.

    A setting that was changed and set back to the default counts as unchanged.
    """
    if config._is_default(name):
        return False
    entry = getattr(config, "_config", {}).get(name)
    return entry is None or not is_same(value, entry.default)
