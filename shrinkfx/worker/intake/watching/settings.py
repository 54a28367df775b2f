"""What a script has set of Inductor's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

Settings = Mapping[str, Any]
"""Of Inductor, by their names: each is of a type of its own."""

_PLAIN = (bool, int, float, str, type(None))


class InductorSettings:
    """Tells how Inductor's configuration is other than when it was imported."""

    def __init__(self) -> None:
        self._config: ModuleType | None = None
        self._before: Settings = {}

    def remember(self, config: ModuleType) -> None:
        """Take what there is before the script can have set anything."""
        self._config = config
        self._before = config.get_config_copy()

    def changed(self, options: Settings | None) -> Settings:
        """List what is other now, and what is asked for beside."""
        now = self._config.get_config_copy() if self._config else {}
        found = {
            name: value
            for name, value in now.items()
            if not is_same(value, self._before.get(name, _ABSENT))
        }
        return {**found, **(options or {})}


_ABSENT = object()


def is_same(a: object, b: object) -> bool:
    """Compare two values of a setting, whatever these make of that."""
    try:
        return a is b or bool(a == b)
    except Exception:  # noqa: BLE001 - values of a user's own may compare in any way
        return False


def is_plain(value: object) -> bool:
    """Tell whether JSON can hold a setting, and hand back the same."""
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(k, str) and is_plain(v) for k, v in value.items())
    return isinstance(value, _PLAIN)
