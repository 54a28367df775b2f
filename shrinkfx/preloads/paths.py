"""Rewrite string constants of a module that are paths of the original machine.

    open("/home/me/ops/table.txt")    open(__file__.rpartition("/")[0] + "/table.txt")

Paths that a module computes in other ways are not detected.
"""

from __future__ import annotations

import ast
import fnmatch
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath

Place = Callable[[str], str | None]
"""Returns a path relative to the module, or None for a file that is not carried."""

_LEAST_SLASHES = 2
"""Minimum slashes in the path of a project folder: not / and not /home."""


def rewrite_paths(text: str, place: Place) -> str:
    """Replace path constants by paths relative to ``__file__``; line numbers stay."""
    lines = text.encode().splitlines(keepends=True)
    found = [(_span(node), _moved(node, place)) for node in _texts(ast.parse(text))]
    for (line, column, end, end_column), new in sorted(found, reverse=True):
        if new:
            same = f"({new}" + "\n" * (end - line) + ")"
            first, last = lines[line - 1], lines[end - 1]
            lines[line - 1 : end] = [
                first[:column] + same.encode() + last[end_column:],
                *[b""] * (end - line),
            ]
    changed = b"".join(lines).decode()
    try:
        ast.parse(changed)
    except SyntaxError:  # a "match" pattern, which cannot be an expression
        return text
    return changed


def find_named_files(texts: Iterable[str], files: Iterable[str]) -> tuple[str, ...]:
    """Return files that a text names, or whose folder it names, by absolute path."""
    constants = {
        os.fsdecode(node.value)
        for text in texts
        for node in _walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
    }
    means = (
        file for file in files if any(_refers_to(each, file) for each in constants)
    )
    return tuple(dict.fromkeys(means))


def _refers_to(constant: str, file: str) -> bool:
    if file in constant:
        return True
    if not constant.startswith("/"):
        return False
    path = os.path.normpath(constant)
    if file.startswith(path):
        is_folder = str(PurePath(file).parent) == path
        return is_folder or path.count("/") >= _LEAST_SLASHES
    return fnmatch.fnmatch(file, constant)


def _walk(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all nodes except docstrings and other bare constants."""
    to_see: list[ast.AST] = [tree]
    while to_see:
        node = to_see.pop()
        yield node
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            to_see += ast.iter_child_nodes(node)


def _texts(tree: ast.Module) -> Iterator[ast.Constant | ast.JoinedStr]:
    """Yield string nodes; parts of an f-string are skipped: they have no own span."""
    within = {
        id(part)
        for node in _walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
    for node in _walk(tree):
        if isinstance(node, (ast.Constant, ast.JoinedStr)) and id(node) not in within:
            yield node


def _span(node: ast.expr) -> tuple[int, int, int, int]:
    end, end_column = node.end_lineno or 0, node.end_col_offset or 0
    return node.lineno, node.col_offset, end, end_column


def _moved(node: ast.Constant | ast.JoinedStr, place: Place) -> str:
    """Return the new expression for a string, or '' for any other string.

    Only a path of a carried file gets a new expression.
    """
    if isinstance(node, ast.Constant):
        if not isinstance(node.value, str):
            return ""
        trimmed = node.value.rstrip("/")
        moved = _found(trimmed, place)
        path, rest = (
            (trimmed, node.value[len(trimmed) :]) if moved else _split(node.value)
        )
        to = moved or _found(path, place)
        return f'__file__.rpartition("/")[0] + {f"/{to}{rest}"!r}' if to else ""
    match node.values:
        case [ast.Constant(value=str(begin)), *others]:
            path, rest = _split(begin)
            to = _found(path, place)
            suffix = ast.JoinedStr([ast.Constant(rest), *others])
            return _unparsed(suffix, f"/{to}") if to else ""
    return ""


def _split(path: str) -> tuple[str, str]:
    folder, slash, name = path.rpartition("/")
    return folder, slash + name


def _found(path: str, place: Place) -> str | None:
    return place(os.path.normpath(path)) if path.startswith("/") else None


def _unparsed(string: ast.JoinedStr, folder: str) -> str:
    try:
        rest = ast.unparse(string)
    except ValueError:  # nested quotes, before Python 3.12
        return ""
    return f'__file__.rpartition("/")[0] + {folder!r} + {rest}'
