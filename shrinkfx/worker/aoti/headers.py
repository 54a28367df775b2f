"""Find precompiled headers once per server instead of once per check.

AOTInductor preprocesses a header to learn whether its sources have changed, which takes
a sixth of a CPU-second for each of two headers. They do not change during a run.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shrinkfx.worker.aoti.patching import replace_attribute
from shrinkfx.worker.model import Keywords
from shrinkfx.worker.private_api import build_api, inductor_api

Precompile = Callable[..., str]

_COMPILED = (".gch", ".pch")


def remember_headers(home: Path) -> contextlib.AbstractContextManager[None]:
    """Let all children of a server look for each precompiled header only once.

    Args:
        home: a folder that the children share.
    """
    name = "_precompile_header"
    precompile = build_api.codecache._precompile_header
    return replace_attribute(
        build_api.codecache, name, cache_header_names(precompile, home)
    )


def cache_header_names(precompile: Precompile, home: Path) -> Precompile:
    """Wrap ``_precompile_header`` so that its answers are kept for all children.

    AOTInductor caches its answers in the process as well, but without the optimization
    level: g++ ignores a header of another level, and parses it as text.

    Args:
        home: a folder that all children of a server share.
    """
    precompile = inspect.unwrap(precompile)

    def find(*arguments: Any, **options: Any) -> str:
        note = home / f"header-{_key(arguments, options)}"
        name = note.read_text() if note.exists() else ""
        if name and any(Path(name + suffix).exists() for suffix in _COMPILED):
            return name
        name = precompile(*arguments, **options)
        draft = note.with_suffix(f".{os.getpid()}")
        draft.write_text(name)
        draft.replace(note)
        return name

    return find


def _key(arguments: tuple[Any, ...], options: Keywords) -> str:
    """Return a key of the header, the flags and the wrapper's optimization level."""
    named = sorted((name, str(value)) for name, value in options.items())
    level = getattr(inductor_api.config.aot_inductor, "compile_wrapper_opt_level", "")
    text = repr((arguments, named, level))
    return hashlib.sha256(text.encode()).hexdigest()[:24]
