"""What to preload, so that a captured program finds what its script had imported."""

from __future__ import annotations

import ast
import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shrinkfx.intake.capture.records import CapturedProgram, Origin
from shrinkfx.report.definitions import REGISTRAR, definitions
from shrinkfx.report.statements import read_source, statements_of

_MAIN = "__main__"


@dataclass(frozen=True)
class Preloads:
    """Names for ``--preload``, in order, and sentences on them."""

    names: tuple[str, ...]
    said: tuple[str, ...]


def preloads_of(
    program: CapturedProgram, folder: Path, places: Sequence[str]
) -> Preloads:
    """Name what a program needs as a run can import it.

    Args:
        folder: where files of ours may be written that do what no name can say.
        places: the folders that a run looks for modules in.
    """
    names: dict[str, None] = {}
    said: list[str] = []
    for origin in program.origins:
        name, remark = _preload(origin, program, folder, places)
        if name:
            names[name] = None
        if remark:
            said.append(remark)
    return Preloads(tuple(names), tuple(dict.fromkeys(said)))


def _preload(
    origin: Origin, program: CapturedProgram, folder: Path, places: Sequence[str]
) -> tuple[str, str]:
    if origin.library:
        return origin.library, ""
    called = ""
    if origin.called:
        called = (
            f"{origin.why}: registered by a call of a function in {origin.module}, not "
            "by its import: if they are missing, --preload a module that calls it"
        )
    if origin.module == _MAIN:
        return _of_main(origin, program, folder, called)
    if not origin.is_local or not origin.file.endswith(".py"):
        return origin.module, called
    file = Path(origin.file)
    if "." not in origin.module and file.stem == origin.module:
        return str(file), called
    root = _root(origin.module, file)
    if any(_is_same(place, root) for place in places):
        return origin.module, called
    text = f"import sys\n\nsys.path.insert(0, {str(root)!r})\nimport {origin.module}\n"
    name = f"preload_{origin.module.replace('.', '_')}"
    return written_beside(folder, name, text), called


def _of_main(
    origin: Origin, program: CapturedProgram, folder: Path, called: str
) -> tuple[str, str]:
    """Take out of the script what registers operators: all of it would run again."""
    file = Path(origin.file)
    try:
        text = _defining(read_source(file), str(file), program.custom)
    except (OSError, SyntaxError) as error:
        advice = "put that into a module of its own, and --preload it"
        return "", f"{origin.why}: the script cannot be read: {error}; {advice}"
    name = f"{re.sub(r'[^0-9A-Za-z_]', '_', file.stem)}_definitions"
    written = written_beside(folder, name, text)
    where = f"in {file.name} itself; what defines it was copied to {written}"
    return written, called or f"{origin.why}: {where}"


def _defining(text: str, name: str, operators: Sequence[str]) -> str:
    """Slice a script to what registers ``operators`` and what changes the compiler.

    What it does for its own sake, to parse arguments say, or to run all this, is no
    part of it.
    """
    nodes = {each.node.lineno: each.node for each in statements_of(text, name)}
    all_of_it = definitions(Path(name), operators, text=text)
    without = [line for line in all_of_it.acts if not _defines(nodes[line])]
    return definitions(Path(name), operators, text=text, without=without).text


def _defines(node: ast.stmt) -> bool:
    """Tell a decorated function, a patch or a registration from what a script does."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return True
    if isinstance(node, ast.Assign):
        places = (ast.Attribute, ast.Subscript)
        return any(isinstance(target, places) for target in node.targets)
    called = node.value if isinstance(node, ast.Expr) else None
    while isinstance(called, ast.Call):
        called = called.func
    last = getattr(called, "attr", getattr(called, "id", ""))
    return bool(REGISTRAR.fullmatch(last))


def _root(module: str, file: Path) -> Path:
    """Find the folder that a module is imported from by its dotted name."""
    ups = module.count(".") + (file.stem == "__init__")
    return file.parents[ups]


def _is_same(place: str, folder: Path) -> bool:
    return os.path.realpath(place or os.getcwd()) == os.path.realpath(folder)


def written_beside(folder: Path, name: str, text: str) -> str:
    """Write a module under the next name that is free; what is there is another run's.

    The same text has the same file.
    """
    for number in itertools.count(1):
        path = folder / (f"{name}_{number}.py" if number > 1 else f"{name}.py")
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            if path.read_text(encoding="utf-8") != text:
                continue
        return str(path)
    raise AssertionError("numbers do not end")
