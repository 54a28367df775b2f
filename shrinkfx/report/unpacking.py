"""The lines of a repro that lay modules out where they can be imported."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

_UNPACKING = '''\
def lay_out(modules, files, folders):
    """Make what the operators import and load be where they look for it."""
    import pathlib
    import sys
    import tempfile

    here = pathlib.Path(__file__).resolve().parent
    home = tempfile.TemporaryDirectory()
    for place in (*modules, *files):
        path = pathlib.Path(home.name, place)
        path.parent.mkdir(parents=True, exist_ok=True)
        if place in files:
            path.symlink_to(here / files[place])
        else:
            path.write_text(modules[place], encoding="utf-8")
    sys.path[:0] = [str(pathlib.Path(home.name, folder)) for folder in folders]
    return home  # it goes when nobody holds it
'''


def unpacking(
    modules: Mapping[str, str], files: Mapping[str, str], folders: Sequence[str]
) -> str:
    """Write what lays out modules and files as they lay with the maker."""
    rows = "".join(f"    {at!r}: {_literal(text)},\n" for at, text in modules.items())
    call = f"LAID_OUT = lay_out(MODULES, {dict(files)!r}, {list(folders)!r})"
    return f"{_UNPACKING}\n\nMODULES = {{\n{rows}}}\n{call}\n"


def _literal(text: str) -> str:
    """Quote a module so that it can be read."""
    quoted = text.replace("\\", "\\\\").replace("'''", "\\'\\'\\'")
    literal = f"'''\\\n{quoted}'''"
    ends_well = not text.endswith("'") and "\r" not in text and "\0" not in text
    return literal if ends_well and ast.literal_eval(literal) == text else repr(text)
