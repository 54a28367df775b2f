"""The lines of a repro that write its modules to a temporary folder."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

_BEGIN = """\
import pathlib
import sys
import tempfile

# Recreate the files that the operators import and load in a temporary folder.
HOME = tempfile.TemporaryDirectory()
"""

_WRITE = 'path.write_text(text, encoding="utf-8")'
_LINK = "path.symlink_to(pathlib.Path(__file__).resolve().parent / file)"


def format_unpacking(
    modules: Mapping[str, str], files: Mapping[str, str], folders: Sequence[str]
) -> str:
    """Return statements that recreate modules and files at their relative paths.

    Args:
        modules: texts of modules, by relative path.
        files: names of the files next to the script, by relative path.
        folders: the relative folders that modules are imported from.
    """
    texts = {at: _literal(text) for at, text in modules.items()}
    parts = [_BEGIN, _each("text", texts, _WRITE)]
    if files:
        names = {at: repr(name) for at, name in files.items()}
        parts.append(_each("file", names, _LINK))
    return "".join([*parts, _searched(folders), "\n"])


def _each(what: str, literals: Mapping[str, str], act: str) -> str:
    rows = "".join(f"    {at!r}: {literal},\n" for at, literal in literals.items())
    return (
        f"for place, {what} in {{\n{rows}}}.items():\n"
        "    path = pathlib.Path(HOME.name, place)\n"
        "    path.parent.mkdir(parents=True, exist_ok=True)\n"
        f"    {act}\n"
    )


def _searched(folders: Sequence[str]) -> str:
    below = (f" + {f'/{each}'!r}" if each != "." else "" for each in folders)
    return f"sys.path[:0] = [{', '.join(f'HOME.name{each}' for each in below)}]"


def _literal(text: str) -> str:
    """Quote a module readably."""
    quoted = text.replace("\\", "\\\\").replace("'''", "\\'\\'\\'")
    literal = f"'''\\\n{quoted}'''"
    ends_well = not text.endswith("'") and "\r" not in text and "\0" not in text
    return literal if ends_well and ast.literal_eval(literal) == text else repr(text)
