"""What a script has set: of Inductor's configuration, and of its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any

Settings = Mapping[str, Any]
"""Of Inductor, by their names: each is of a type of its own."""

PREFIXES = (
    "TORCH",
    "PYTORCH",
    "AOT",
    "CUDA",
    "TRITON",
    "OMP_",
    "MKL_",
    "GOMP_",
    "KMP_",
    "ATEN_",
    "CXX",
)
"""Of variables by which PyTorch and its compilers do something else."""

_WHERE_FILES_GO = (
    "aot_inductor.output_path",
    "aot_inductor.package",
    "aot_inductor.dump_aoti_minifier",
    "aot_inductor.repro_level",
)
"""Options that say where files go, or when PyTorch's minifier dumps: a check has its
own, and the latter would load and run the program while it is compiled."""

_ONLY_TELL = ("TORCH_LOGS", "TORCH_TRACE", "TORCH_COMPILE_DEBUG", "TORCHDYNAMO_REPRO")
"""Variables, by how they begin, that have more told: of each check, in its output."""

_OURS = ("TORCHINDUCTOR_COMPILE_THREADS",)
"""Variables that a check sets itself."""

_SECRET = ("TOKEN", "KEY", "SECRET", "PASS")

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
            if not _is_same(value, self._before.get(name, _ABSENT))
        }
        found.update(options or {})
        return {k: v for k, v in found.items() if k not in _WHERE_FILES_GO}


_ABSENT = object()


def _is_same(a: object, b: object) -> bool:
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


def environment() -> dict[str, str]:
    """Pick the variables that may matter, as they are now; no secrets."""
    return {k: v for k, v in os.environ.items() if _may_matter(k)}


def _may_matter(name: str) -> bool:
    is_secret = any(word in name for word in _SECRET)
    told = name.startswith(_ONLY_TELL) or name in _OURS
    return name.startswith(PREFIXES) and not (is_secret or told)
