"""Choose the preloads that a captured program needs in another process."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shrinkfx.intake.capture.records import CapturedProgram, Origin
from shrinkfx.intake.carried import is_setting
from shrinkfx.intake.modules import (
    choose_preloads,
    file_sets_attribute,
    find_preload_files,
    text_sets_attribute,
    write_preload_module,
)
from shrinkfx.intake.restored_settings import (
    FILE,
    RestoredValue,
    render_settings,
    render_settings_module,
)
from shrinkfx.preloads.compiling_calls import COMPILES
from shrinkfx.preloads.custom_code_sources import describe_copy, mark_as_generated
from shrinkfx.preloads.definitions import REGISTRAR, slice_file
from shrinkfx.preloads.statements import read_source, statements_of, text_of

_MAIN = "__main__"


@dataclass(frozen=True)
class Preloads:
    """Values for ``--preload``, in order, and sentences about them.

    Attributes:
        lacking: sentences about settings of Inductor that no preload sets.
    """

    names: tuple[str, ...]
    notes: tuple[str, ...]
    lacking: tuple[str, ...] = ()


def choose_captured_preloads(
    program: CapturedProgram, folder: Path, cwd: Path, named: Sequence[str] = ()
) -> Preloads:
    """Return the preloads of a captured program.

    Args:
        folder: a folder for generated preloads.
        cwd: the folder in which the run's processes start.
        named: the user's preloads.
    """
    others = {k: v for k, v in program.others.items() if is_setting(k)}
    named_files = find_preload_files(named, cwd)
    others = _unset(others, named_files)
    modules = {o.module: o.file for o in program.origins if _is_own_module(o)}
    chosen = dict(zip(modules, choose_preloads([*modules.items()], cwd), strict=True))
    names: dict[str, None] = {}
    notes: list[str] = []
    files: list[str] = []
    for origin in program.origins:
        remark = _called(origin) if origin.called else ""
        if _is_own_module(origin):
            name = chosen[origin.module].write_to(folder)
            files.append(origin.file)
            remark = remark or f"preloading {origin.module}: {origin.why}"
        elif origin.module == _MAIN:
            name, remark = _copy_definitions(origin, program, folder, remark, others)
            files += [name] if name else []
        else:
            name = origin.library or origin.module
        if name:
            names[name] = None
        if remark:
            notes.append(remark)
    others = _unset(others, files)
    copied = {k: v for k, v in others.items() if v.is_imported}
    if copied:
        names[write_preload_module(folder, FILE, render_settings_module(copied))] = None
        notes += [
            f"a generated preload sets Inductor's {key}: {v.short_text}"
            for key, v in copied.items()
        ]
    lacking = [_lacking(k, v) for k, v in others.items() if k not in copied]
    return Preloads(tuple(names), tuple(dict.fromkeys(notes)), tuple(lacking))


def _unset(
    settings: Mapping[str, RestoredValue], files: Sequence[str]
) -> dict[str, RestoredValue]:
    """Return the settings that none of the files sets at import time."""
    return {
        k: v
        for k, v in settings.items()
        if not any(file_sets_attribute(f, k) for f in files)
    }


def _lacking(setting: str, value: RestoredValue) -> str:
    why = value.why_not or f"{value.name} is created only in the script itself"
    return (
        f"Inductor's {setting} is missing: {why}, so no other process has it; write a "
        "module that sets it at import time, and --preload that module"
    )


def _is_own_module(origin: Origin) -> bool:
    """Return whether a module is local; installed modules are imported by name."""
    return origin.module != _MAIN and not origin.library and origin.is_local


def _called(origin: Origin) -> str:
    return (
        f"{origin.why}: a function in {origin.module} registers this, not the import "
        "of the module: if it is missing, --preload a module that calls the function"
    )


def _copy_definitions(
    origin: Origin,
    program: CapturedProgram,
    folder: Path,
    called: str,
    settings: Mapping[str, RestoredValue],
) -> tuple[str, str]:
    """Copy the definitions out of a script, because importing it would run all of it.

    Args:
        settings: settings of Inductor, some of which the script may define.
    """
    file = Path(origin.file)
    if not file.is_file():  # <stdin>, or code passed with -c
        return "", f"{origin.why}: {_NO_FILE}"
    try:
        defined = _settable(file, settings)
        restored = render_settings(defined) if defined else ""
        text = _defining(read_source(file), str(file), program.custom, restored)
    except (OSError, SyntaxError) as error:
        advice = "move the definition into its own module, and --preload that module"
        return "", f"{origin.why}: cannot read the script: {error}; {advice}"
    if not text.strip():
        return "", called
    name = f"{re.sub(r'[^0-9A-Za-z_]', '_', file.stem)}_definitions"
    text = mark_as_generated(text, describe_copy(file.name))
    written = write_preload_module(folder, name, text)
    where = f"defined in {file.name}; the definition was copied to {written}"
    return written, called or f"{origin.why}: {where}"


_NO_FILE = (
    "the script is not a file, so its code cannot be read again: save it to a file, "
    "and capture that: shrinkfx --capture -- python FILE.py"
)


def _settable(
    file: Path, settings: Mapping[str, RestoredValue]
) -> dict[str, RestoredValue]:
    """Return the settings whose values the script defines, but does not set itself."""
    parts = [s for s in statements_of(read_source(file), str(file)) if not s.is_main]
    bound, text = {name for each in parts for name in each.binds}, text_of(parts)
    defined = {k: v for k, v in settings.items() if v.is_of_script and v.bound in bound}
    return {k: v for k, v in defined.items() if not text_sets_attribute(text, k)}


def _defining(text: str, name: str, operators: Sequence[str], restored: str) -> str:
    """Slice a script to the code that registers ``operators`` or changes the compiler.

    Statements for the script's own purposes are omitted, such as those that parse
    arguments or run the model.

    Args:
        restored: statements to keep, with the definitions that they need.
    """
    length = text.count("\n") + 1
    text += f"\n{restored}"
    statements = statements_of(text, name)
    nodes = {each.place: each.node for each in statements}
    compiles = [each.lines[0] for each in statements if _compiles(each.node)]
    everything = slice_file(Path(name), operators, text=text, acting=compiles)
    acts = [place for place in everything.acts if place[0] <= length]
    without = [place for place in acts if not _defines(nodes[place])]
    return slice_file(
        Path(name), operators, text=text, without=without, acting=compiles
    ).text


def _compiles(node: ast.stmt) -> bool:
    """Return whether a statement compiles C++, with or without using the result."""
    called = getattr(node, "value", None)
    if not isinstance(node, (ast.Expr, ast.Assign)) or not isinstance(called, ast.Call):
        return False
    return ast.unparse(called.func).rpartition(".")[2] == COMPILES


def _defines(node: ast.stmt) -> bool:
    """Return whether a statement is a definition, a patch or a registration."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)) or _compiles(node):
        return True
    if isinstance(node, ast.Assign):
        places = (ast.Attribute, ast.Subscript)
        return any(isinstance(target, places) for target in node.targets)
    called = node.value if isinstance(node, ast.Expr) else None
    while isinstance(called, ast.Call):
        called = called.func
    last = getattr(called, "attr", getattr(called, "id", ""))
    return bool(REGISTRAR.fullmatch(last))
