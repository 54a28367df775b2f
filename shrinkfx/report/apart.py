"""Preloads as lines of a repro, where their modules stay modules."""

from __future__ import annotations

import ast
import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

from shrinkfx.report.carried import Preload
from shrinkfx.report.definitions import Definitions
from shrinkfx.report.layout import imports_of, is_relative, package_of


def apart(
    preloads: Sequence[Preload],
    taken: Sequence[Definitions],
    modules: dict[str, Path],
    texts: dict[str, str],
) -> list[Definitions]:
    """Add preloads that must be modules to these, and import them.

    Args:
        modules, texts: files and texts of what will be importable.
    """
    imported = {n: imports_of(t, package_of(n, modules[n])) for n, t in texts.items()}
    for preload, part in zip(preloads, taken, strict=True):
        if preload.file:
            package = package_of(preload.module, preload.file)
            imported[preload.module] = imports_of(part.text, package)
    lines: list[Definitions] = []
    for preload, part in zip(preloads, taken, strict=True):
        others = (names for n, names in imported.items() if n != preload.module)
        is_named = any(preload.module in names for names in others)
        if preload.file and part.text and (is_named or _is_apart(preload, part)):
            texts[preload.module] = with_future(part)
            modules[preload.module] = preload.file
            text = import_line(preload.module)
            part = dataclasses.replace(part, text=text, future=())
        lines.append(part)
    return _each_once(lines)


def _each_once(lines: Sequence[Definitions]) -> list[Definitions]:
    """Leave out an import where what comes next imports the same."""
    kept: list[Definitions] = []
    later = ""
    for part in reversed(lines):
        line = part.text.strip()
        is_import = line.startswith("import ") and "\n" not in line
        if is_import and line.removeprefix("import ") in _imported_first(later):
            part = dataclasses.replace(part, text="")
        kept.append(part)
        later = part.text or later
    return kept[::-1]


def _imported_first(text: str) -> set[str]:
    """List the modules that a text imports before it does anything else."""
    imports = (ast.Import, ast.ImportFrom)
    body = ast.parse(text).body
    first = itertools.takewhile(lambda node: isinstance(node, imports), body)
    return imports_of("\n".join(map(ast.unparse, first)), "")


def _is_apart(preload: Preload, part: Definitions) -> bool:
    """Tell what must be a module of its own: its place or its package matters."""
    at_its_place = part.loads or "__file__" in part.text
    return "." in preload.module or is_relative(part.text) or at_its_place


def import_line(module: str) -> str:
    if all(part.isidentifier() for part in module.split(".")):
        return f"import {module}"
    return f"__import__({module!r})"


def with_future(part: Definitions) -> str:
    future = f"from __future__ import {', '.join(part.future)}\n" if part.future else ""
    return future + part.text
