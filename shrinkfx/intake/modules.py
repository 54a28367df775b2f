"""How processes of a run import a module that somebody's process has imported.

By its name, where they find the same file by it; else by its file; and where it is in a
package that they do not find, by a file of ours that says where that lies.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shrinkfx.errors import LoadError
from shrinkfx.program.beside import is_path
from shrinkfx.report.whose_code import as_ours


@dataclass(frozen=True)
class Preload:
    """What to preload: a name or a file; or a file to be written first.

    Attributes:
        name: with a text, that of the file without its suffix.
    """

    name: str
    text: str = ""

    def put(self, folder: Path) -> str:
        """Name it for ``--preload``, once what it needs lies in a folder."""
        return written_beside(folder, self.name, self.text) if self.text else self.name


def preloads_for(modules: Sequence[tuple[str, str]], cwd: Path) -> list[Preload]:
    """Choose how each module is imported by a process that is started in a folder.

    Args:
        modules: names as they were imported by, and files that they came from.

    Raises:
        LoadError: one came from no file, and is not found by its name.
    """
    there = _found_anew([name for name, _ in modules], cwd) if modules else {}
    return [_preload(name, file, there.get(name)) for name, file in modules]


def _preload(module: str, file: str, found: str | None) -> Preload:
    if _same_file(found, file):
        return Preload(module)
    if not file:
        advice = "add its folder to PYTHONPATH before Python starts"
        raise LoadError(module, "other processes cannot import this module", advice)
    path = Path(file).resolve()
    if path.suffix == ".py" and path.stem == module:
        return Preload(str(path))
    root = str(path.parents[module.count(".") + (path.stem == "__init__")])
    text = f"import sys\n\nsys.path.insert(0, {root!r})\nimport {module}\n"
    text = as_ours(text, f"imports {module} from its own folder")
    return Preload(f"preload_{module.replace('.', '_')}", text)


def files_of(names: Sequence[str], cwd: Path) -> list[str]:
    """Find the files of preloads, modules or paths, as a process there does."""
    modules = [name for name in names if not is_path(name)]
    there = _found_anew(modules, cwd) if modules else {}
    return [there.get(name, name) or "" for name in names]


_FIND = """
import importlib.util, json, sys
sys.path.insert(0, "")
found = {}
for name in sys.argv[1:]:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    found[name] = spec.origin if spec else None
print(json.dumps(found))
"""


def _found_anew(modules: Sequence[str], cwd: Path) -> dict[str, str | None]:
    """Ask a new interpreter where it finds modules.

    What a process has put on its path by hand no other has there.
    """
    command = [sys.executable, "-P", "-c", _FIND, *modules]
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, check=False, timeout=_FIND_S
        )
        found: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError, subprocess.TimeoutExpired):
        return {}
    return found


_FIND_S = 60.0
"""For parents of packages, which are imported to be looked into."""


def sets(path: str, setting: str) -> bool:
    """Tell whether a Python file sets an attribute of such a name as it is imported.

    What functions set is left out: nobody may call them then.

    Args:
        setting: its last part counts: ``x.y`` is set by ``config.x.y = 1``.
    """
    try:
        return text_sets(Path(path).read_bytes(), setting)
    except (OSError, SyntaxError, ValueError):
        return False


def text_sets(text: str | bytes, setting: str) -> bool:
    """Tell the same of a file's text.

    Raises:
        SyntaxError, ValueError: it is no Python.
    """
    tree = ast.parse(text)
    rest: list[ast.AST] = [tree]
    while rest:
        node = rest.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        is_set = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if is_set and getattr(node, "attr", "") == setting.rpartition(".")[2]:
            return True
        rest += ast.iter_child_nodes(node)
    return False


def _same_file(one: str | None, other: str) -> bool:
    return bool(one and other) and os.path.realpath(str(one)) == os.path.realpath(other)


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
