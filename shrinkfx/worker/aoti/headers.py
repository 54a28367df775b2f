"""Precompiled headers, looked for once per server instead of once per check.

AOTInductor preprocesses a header to learn whether what it was compiled from is still
the same: a sixth of a CPU-second each, for two headers. During a run it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shrinkfx.worker.aoti.instead import instead
from shrinkfx.worker.model import Keywords
from shrinkfx.worker.private_api import build_api, inductor_api

Precompile = Callable[..., str]

_COMPILED = (".gch", ".pch")


def headers_remembered(home: Path) -> contextlib.AbstractContextManager[None]:
    """Have AOTInductor's headers looked for once by all children of a server.

    Args:
        home: a folder that they share.
    """
    name = "_precompile_header"
    precompile = build_api.codecache._precompile_header
    return instead(build_api.codecache, name, remembered(precompile, home))


def remembered(precompile: Precompile, home: Path) -> Precompile:
    """Have AOTInductor's own function asked no further time for the same header.

    That remembers what it has answered in this process as well, whatever the level of
    optimisation: g++ ignores a header of another level, and reads all of it as text.

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
    """Tell apart what is compiled with other flags."""
    named = sorted((name, str(value)) for name, value in options.items())
    level = getattr(inductor_api.config.aot_inductor, "compile_wrapper_opt_level", "")
    text = repr((arguments, named, level))
    return hashlib.sha256(text.encode()).hexdigest()[:24]
