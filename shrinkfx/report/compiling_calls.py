"""Calls that compile C++ as a module is imported.

    load_inline(name="ops", cpp_sources=SOURCE)    carried, and SOURCE with it
    load_library(".../ops.so")                     what it made, in its place

A call is carried as it is where its text says all that it compiles: what it is given is
spelt out, or is a name of the module, and names no folder of its maker's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from shrinkfx.program.beside import Beside, Loading

COMPILES = "load_inline"
"""The function of ``torch.utils.cpp_extension`` that is given texts."""

_TEXTS = {"cpp_sources", "cuda_sources", "functions", "name"}
_OWN_FOLDER = re.compile(r'#\s*include\s*["<]/')
"""An include by a path of one machine."""


def as_sources(beside: Beside, read: Callable[[Path], str]) -> Beside:
    """Take for granted what calls compile whose sources a module holds.

    Args:
        beside: what was used, with the libraries that such calls have made.
        read: gives a file's text.

    Returns:
        The same without those libraries, and what lies where they were made.
    """
    compiled = [each for each in beside.loadings if _is_told(each, read)]
    if not compiled:
        return beside
    made = {each.library for each in compiled}
    places = {str(Path(each).parent) for each in made}

    def kept(file: str) -> bool:
        return str(Path(file).parent) not in places

    return replace(
        beside,
        libraries=tuple(each for each in beside.libraries if each not in made),
        files=tuple(filter(kept, beside.files)),
        loadings=tuple(each for each in beside.loadings if each not in compiled),
    )


def _is_told(loading: Loading, read: Callable[[Path], str]) -> bool:
    """Tell whether a library was loaded by a call that says what it was made of."""
    try:
        text = read(Path(loading.file))
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return False
    if _OWN_FOLDER.search(text):
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
    """Tell whether a call is given texts, names and settings, and no folder."""
    given = [("", each) for each in call.args]
    given += [(each.arg or "**", each.value) for each in call.keywords]
    parts = [(name, part) for name, value in given for part in ast.walk(value)]
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
"""What is written down in a call, or by a name in its module."""
