"""Find which settings of Inductor a script has changed."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

Settings = Mapping[str, Any]
"""Settings of Inductor by name; each has a type of its own."""

_PLAIN = (bool, int, float, str, type(None))


class InductorSettings:
    """Compares Inductor's configuration with its state right after the import."""

    def __init__(self) -> None:
        self._config: ModuleType | None = None
        self._before: Settings = {}

    def remember(self, config: ModuleType) -> None:
        """Copy the configuration before the script can change it."""
        self._config = config
        self._before = config.get_config_copy()

    def changed(self, options: Settings | None) -> Settings:
        """Return the settings that changed since then, updated with ``options``."""
        now = self._config.get_config_copy() if self._config else {}
        differing = {
            name: value
            for name, value in now.items()
            if not is_same(value, self._before.get(name, _ABSENT))
        }
        return {**differing, **(options or {})}


_ABSENT = object()


def is_same(a: object, b: object) -> bool:
    """Compare two values of a setting; a comparison that raises counts as unequal."""
    try:
        return a is b or bool(a == b)
    except Exception:  # noqa: BLE001 - values of a user's own may compare in any way
        return False


def is_plain(value: object) -> bool:
    """Return whether a setting consists of simple values that JSON can hold."""
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(k, str) and is_plain(v) for k, v in value.items())
    return isinstance(value, _PLAIN)
