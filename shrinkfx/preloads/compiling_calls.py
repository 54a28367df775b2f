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
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from shrinkfx.preloads.statements import last_name, span_of
from shrinkfx.program.uninstalled_files import Loading, UninstalledFiles

COMPILES = "load_inline"
"""The function of ``torch.utils.cpp_extension`` that takes source texts."""

_TEXTS = {"", "cpp_sources", "cuda_sources", "functions", "name"}
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
    folders = {Path(each).parent for each in made}
    return replace(
        local,
        libraries=tuple(each for each in local.libraries if each not in made),
        files=tuple(each for each in local.files if Path(each).parent not in folders),
        loadings=tuple(each for each in local.loadings if each not in compiled),
    )


def _has_inline_source(loading: Loading, read: Callable[[Path], str]) -> bool:
    """Return whether the call that loaded a library contains its whole source."""
    try:
        text = read(Path(loading.file))
        nodes = [*ast.walk(ast.parse(text))]
    except (OSError, SyntaxError, ValueError):
        return False
    calls = (node for node in nodes if isinstance(node, ast.Call))
    return not _ABSOLUTE_INCLUDE.search(text) and any(
        span_of(call) == loading.span
        and last_name(call) == COMPILES
        and _contains_all(call)
        for call in calls
    )


def _contains_all(call: ast.Call) -> bool:
    """Return whether all arguments are source texts, names and settings, no folder."""
    keywords = [(each.arg or "**", each.value) for each in call.keywords]
    for name, value in [*(("", each) for each in call.args), *keywords]:
        for part in ast.walk(value):
            text = str(part.value) if isinstance(part, ast.Constant) else ""
            is_folder = "/" in text and name not in _TEXTS
            if is_folder or not isinstance(part, _PLAIN):
                return False
    return True


_PLAIN = (
    *(ast.Constant, ast.Name, ast.List, ast.Tuple, ast.BinOp, ast.operator),
    *(ast.JoinedStr, ast.FormattedValue, ast.expr_context),
)
"""Node types of literals and names, the only ones allowed in such a call."""
