"""Copy the user's code in Inductor from the calling session, or report it as missing.

A pass, a decomposition or a lowering of the user is a function. Another process has it
only if it imports the module that registers it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shrinkfx.intake.modules import (
    FILE,
    Preload,
    RestoredValue,
    file_sets_attribute,
    render_settings_module,
)
from shrinkfx.program.uninstalled_files import is_path


@dataclass(frozen=True)
class Source:
    """A module with code in Inductor; ``why`` names the place of that code."""

    module: str
    file: str
    why: str


@dataclass(frozen=True)
class SessionCopy:
    """Preloads that reproduce the session, and sentences about them.

    Attributes:
        modules: names and files of the modules to preload.
        setting: a generated preload that sets Inductor's settings, or None.
        lacking: those of the sentences about state that no other process has.
    """

    modules: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    setting: Preload | None = None
    lacking: tuple[str, ...] = ()


def copy_session(
    sources: Sequence[Source],
    settings: Mapping[str, RestoredValue],
    preload: Sequence[str],
) -> SessionCopy:
    """Choose the preloads, and describe the state of Inductor that cannot be copied.

    Args:
        settings: those that are not simple values.
        preload: the user's preloads; if there are any, no others are added.
    """
    imported = [each for each in sources if each.module != "__main__"]
    others = [each for each in sources if each.module == "__main__"]
    named = [_file_of(name) for name in preload]
    files = named or [each.file for each in imported]
    unset = [
        name
        for name in settings
        if not any(file_sets_attribute(f, name) for f in files)
    ]
    copied = {k: settings[k] for k in unset if settings[k].is_imported and not preload}
    missing = [name for name in unset if name not in copied]
    others += [each for each in imported if preload and not _is_among(each.file, named)]
    # The names of settings say more than the modules of their code.
    missing += [s.why for s in others if s.why.startswith("torch.") and not missing]
    taken = [] if preload else imported
    notes = [f"preloading {each.module}: {each.why}" for each in taken]
    notes += [
        f"a generated preload sets Inductor's {k}: {v.short_text}"
        for k, v in copied.items()
    ]
    names = ", ".join(dict.fromkeys(missing))
    lacking = (
        [
            "this session has settings that cannot be copied to other processes: "
            f"{names}: {_HOW}"
        ]
        if missing
        else []
    )
    return SessionCopy(
        modules=tuple((s.module, s.file) for s in taken),
        notes=(*notes, *lacking),
        setting=Preload(FILE, render_settings_module(copied)) if copied else None,
        lacking=tuple(lacking),
    )


_HOW = (
    "move the code that sets them to the top level of a module, such as passes.py, "
    "and pass preload='passes'"
)


def _is_among(file: str, files: Sequence[str]) -> bool:
    return Path(file).resolve() in [Path(each).resolve() for each in files if each]


def _file_of(name: str) -> str:
    """Return the file of a preload, which is a path or a module of this process."""
    if is_path(name):
        return name
    return getattr(sys.modules.get(name), "__file__", None) or ""
