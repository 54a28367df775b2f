"""Imports of preload modules that a repro keeps as modules of their own."""

from __future__ import annotations

import ast
import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

from shrinkfx.report.definitions import Definitions
from shrinkfx.report.layout import imports_of, is_relative, package_of
from shrinkfx.report.preload_bundle import Preload


def import_module_preloads(
    preloads: Sequence[Preload],
    taken: Sequence[Definitions],
    modules: dict[str, Path],
    texts: dict[str, str],
) -> list[Definitions]:
    """Move preloads that must remain modules into ``texts`` and ``modules``.

    Returns:
        The definitions of each preload in turn. A preload that became a module is
        replaced by an ``import`` line.

    Args:
        preloads: the preloads, in load order.
        taken: the definitions of each preload.
        modules, texts: files and texts of the importable modules, by module name; both
            are extended in place.
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
        if (
            preload.file
            and part.text
            and (is_named or _must_stay_module(preload, part))
        ):
            texts[preload.module] = with_future(part)
            modules[preload.module] = preload.file
            text = import_line(preload.module)
            part = dataclasses.replace(part, text=text, future=())
        lines.append(part)
    return _each_once(lines)


def _each_once(lines: Sequence[Definitions]) -> list[Definitions]:
    """Remove an import if the next definitions begin with the same import."""
    remaining: list[Definitions] = []
    later = ""
    for part in reversed(lines):
        line = part.text.strip()
        is_import = line.startswith("import ") and "\n" not in line
        if is_import and line.removeprefix("import ") in _imported_first(later):
            part = dataclasses.replace(part, text="")
        remaining.append(part)
        later = part.text or later
    return remaining[::-1]


def _imported_first(text: str) -> set[str]:
    """List the modules that a text imports before any other statement."""
    imports = (ast.Import, ast.ImportFrom)
    body = ast.parse(text).body
    first = itertools.takewhile(lambda node: isinstance(node, imports), body)
    return imports_of("\n".join(map(ast.unparse, first)), "")


def _must_stay_module(preload: Preload, part: Definitions) -> bool:
    """Return whether a preload depends on its own file path or package."""
    at_its_place = part.loads or "__file__" in part.text
    return "." in preload.module or is_relative(part.text) or at_its_place


def import_line(module: str) -> str:
    """Return an import statement, also for a name that is no identifier."""
    if all(part.isidentifier() for part in module.split(".")):
        return f"import {module}"
    return f"__import__({module!r})"


def with_future(part: Definitions) -> str:
    """Return the text of a part below its ``from __future__`` import."""
    future = f"from __future__ import {', '.join(part.future)}\n" if part.future else ""
    return future + part.text
