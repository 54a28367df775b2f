"""Calls that compile C++ when a module is imported.

    load_inline(name="ops", cpp_sources=SOURCE)    embedded together with SOURCE
    load_library(".../ops.so")                     otherwise: load the compiled library

A call is embedded unchanged if its text contains everything that it compiles: each
argument is a literal or a name of the module, and none is a folder of the original
machine.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from shrinkfx.program.uninstalled_files import Loading, UninstalledFiles

COMPILES = "load_inline"
"""The function of ``torch.utils.cpp_extension`` that takes source texts."""

_TEXTS = {"cpp_sources", "cuda_sources", "functions", "name"}
_ABSOLUTE_INCLUDE = re.compile(r'#\s*include\s*["<]/')
"""An include by an absolute path of one machine."""


def drop_compiled_libraries(
    local: UninstalledFiles, read: Callable[[Path], str]
) -> UninstalledFiles:
    """Drop compiled libraries if the module contains the call that compiles them.

    Args:
        local: the used files, including the libraries that such calls compiled.
        read: returns the text of a file.

    Returns:
        ``local`` without those libraries and without the files in their build folders.
    """
    compiled = [each for each in local.loadings if _has_inline_source(each, read)]
    if not compiled:
        return local
    made = {each.library for each in compiled}
    places = {str(Path(each).parent) for each in made}

    def is_needed(file: str) -> bool:
        return str(Path(file).parent) not in places

    return replace(
        local,
        libraries=tuple(each for each in local.libraries if each not in made),
        files=tuple(filter(is_needed, local.files)),
        loadings=tuple(each for each in local.loadings if each not in compiled),
    )


def _has_inline_source(loading: Loading, read: Callable[[Path], str]) -> bool:
    """Return whether the call that loaded a library contains its whole source."""
    try:
        text = read(Path(loading.file))
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return False
    if _ABSOLUTE_INCLUDE.search(text):
        return False
    line, column, end, end_column = loading.span
    place = line, column, end, end_column
    return any(_place(call) == place and _says_all(call) for call in _calls(tree))


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    for call in calls:
        if getattr(call.func, "attr", getattr(call.func, "id", "")) == COMPILES:
            yield call


def _place(call: ast.Call) -> tuple[int, int, int | None, int | None]:
    return call.lineno, call.col_offset, call.end_lineno, call.end_col_offset


def _says_all(call: ast.Call) -> bool:
    """Return whether all arguments are source texts, names and settings, no folder."""
    arguments = [("", each) for each in call.args]
    arguments += [(each.arg or "**", each.value) for each in call.keywords]
    parts = [(name, part) for name, value in arguments for part in ast.walk(value)]
    folders = (
        name not in _TEXTS and isinstance(part, ast.Constant) and "/" in str(part.value)
        for name, part in parts
        if name
    )
    return all(isinstance(part, _PLAIN) for _, part in parts) and not any(folders)


_PLAIN = (
    ast.Constant,
    ast.Name,
    ast.List,
    ast.Tuple,
    ast.BinOp,
    ast.operator,
    ast.JoinedStr,
    ast.FormattedValue,
    ast.expr_context,
)
"""Node types of literals and names, the only ones allowed in such a call."""
