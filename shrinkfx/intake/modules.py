"""Choose how processes of a run import a module that the user's process imported.

A module is preloaded by its name if a new interpreter finds the same file by it, or
else by its file. A module of a package that is not found is preloaded by a generated
file that adds the package's folder to ``sys.path``.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shrinkfx.errors import LoadError
from shrinkfx.preloads.custom_code_sources import mark_as_generated
from shrinkfx.program.uninstalled_files import is_path


@dataclass(frozen=True)
class Preload:
    """A preload: a module name, a file, or a file that is yet to be written.

    Attributes:
        name: the name or path; if there is a ``text``, the file name without suffix.
    """

    name: str
    text: str = ""

    def write_to(self, folder: Path) -> str:
        """Write the file if there is a text; return the value for ``--preload``."""
        return (
            write_preload_module(folder, self.name, self.text)
            if self.text
            else self.name
        )


def choose_preloads(modules: Sequence[tuple[str, str]], cwd: Path) -> list[Preload]:
    """Choose how a process that starts in ``cwd`` imports each module.

    Args:
        modules: pairs of a module's name and its file.

    Raises:
        LoadError: a module has no file, and is not found by its name.
    """
    files = (
        _find_in_new_interpreter([name for name, _ in modules], cwd) if modules else {}
    )
    return [_preload(name, file, files.get(name)) for name, file in modules]


def _preload(module: str, file: str, importable: str | None) -> Preload:
    if _same_file(importable, file):
        return Preload(module)
    if not file:
        advice = "add its folder to PYTHONPATH before Python starts"
        raise LoadError(module, "other processes cannot import this module", advice)
    path = Path(file).resolve()
    if path.suffix == ".py" and path.stem == module:
        return Preload(str(path))
    root = str(path.parents[module.count(".") + (path.stem == "__init__")])
    text = f"import sys\n\nsys.path.insert(0, {root!r})\nimport {module}\n"
    text = mark_as_generated(text, f"imports {module} from its own folder")
    return Preload(f"preload_{module.replace('.', '_')}", text)


def find_preload_files(names: Sequence[str], cwd: Path) -> list[str]:
    """Return the files of preloads, as a process in ``cwd`` finds them."""
    modules = [name for name in names if not is_path(name)]
    files = _find_in_new_interpreter(modules, cwd) if modules else {}
    return [files.get(name, name) or "" for name in names]


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


def _find_in_new_interpreter(
    modules: Sequence[str], cwd: Path
) -> dict[str, str | None]:
    """Return the file of each module as a new interpreter finds it.

    A new interpreter is used because this process may have changed its ``sys.path``.
    """
    command = [sys.executable, "-P", "-c", _FIND, *modules]
    try:
        completed = subprocess.run(
            command, cwd=cwd, capture_output=True, check=False, timeout=_FIND_S
        )
        files: dict[str, str | None] = json.loads(completed.stdout.splitlines()[-1])
    except (ValueError, IndexError, subprocess.TimeoutExpired):
        return {}
    return files


_FIND_S = 60.0
"""Time limit in seconds; the interpreter imports the parent packages of a module."""


def file_sets_attribute(path: str, setting: str) -> bool:
    """Return whether a Python file sets an attribute with such a name at import time.

    Assignments inside functions do not count, because nobody may call these.

    Args:
        setting: only its last part counts: ``config.x.y = 1`` sets ``x.y``.
    """
    try:
        return text_sets_attribute(Path(path).read_bytes(), setting)
    except (OSError, SyntaxError, ValueError):
        return False


def text_sets_attribute(text: str | bytes, setting: str) -> bool:
    """Return whether Python code sets such an attribute at import time.

    Raises:
        SyntaxError, ValueError: the text is not Python.
    """
    tree = ast.parse(text)
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        is_set = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if is_set and getattr(node, "attr", "") == setting.rpartition(".")[2]:
            return True
        stack += ast.iter_child_nodes(node)
    return False


def _same_file(one: str | None, other: str) -> bool:
    return bool(one and other) and os.path.realpath(str(one)) == os.path.realpath(other)


def write_preload_module(folder: Path, name: str, text: str) -> str:
    """Write a module under the next free name, and return its path.

    Files of other runs stay; a file with the same text is reused.
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


# Generate code that restores Inductor settings which are functions or objects.
#
#     torch._inductor.config.post_grad_custom_pre_pass = passes.FuseAddMul()
#
# ``watching/programs.py`` finds out, in the process with the value, how an import
# makes it.


FILE = "preload_settings"
"""Name of the generated file, without its suffix."""

_MAIN = "__main__"


@dataclass(frozen=True)
class RestoredValue:
    """A Python expression for a value, or why there is none (``ImportDescription``)."""

    module: str = ""
    name: str = ""
    call: str = ""
    state: Mapping[str, str] = field(default_factory=dict)
    why_not: str = ""

    @property
    def is_of_script(self) -> bool:
        """Whether the script itself defines the value, which no process imports."""
        return self.module == _MAIN

    @property
    def is_imported(self) -> bool:
        """Whether importing its module is sufficient to make the value."""
        return not (self.why_not or self.is_of_script)

    @property
    def bound(self) -> str:
        """The name in the module that the expression begins with."""
        return self.name.partition(".")[0]

    @property
    def short_text(self) -> str:
        """The value in short, such as ``passes.FuseAddMul()``."""
        place = self.name if self.is_of_script else f"{self.module}.{self.name}"
        return f"{place}{'()' if self.call else ''}"

    def statements(self, setting: str, number: int, bound: str) -> list[str]:
        """Return the statements that set a setting to the value.

        Args:
            number: the number of the setting in the generated module.
            bound: the name of ``self.bound`` in that module.
        """
        place = bound + self.name.removeprefix(self.bound)
        call = f"{self.call}({place})" if self.call == ".__new__" else self.call
        set_to = f"torch._inductor.config.{setting} = "
        if not self.state:
            return [f"{set_to}{place}{call}"]
        made = f"made_{number}"
        assignments = [
            # As in unpickling, because a class may forbid setting its attributes.
            f"object.__setattr__({made}, {name!r}, {text})"
            for name, text in self.state.items()
        ]
        return [f"{made} = {place}{call}", *assignments, f"{set_to}{made}"]


def render_settings(settings: Mapping[str, RestoredValue]) -> str:
    """Return statements that set settings at import time.

    They import names from modules instead of the modules, so that a repro can contain
    the definitions in place of the imports.
    """
    names = _Names()
    lines = [
        ["", *each.statements(setting, number, names.bound(each))]
        for number, (setting, each) in enumerate(settings.items(), 1)
    ]
    first = ["import torch._inductor.config", *names.imports]
    return "\n".join([*first, *itertools.chain(*lines)]) + "\n"


def render_settings_module(settings: Mapping[str, RestoredValue]) -> str:
    """Return the text of a module that only sets settings."""
    return mark_as_generated(
        render_settings(settings), "settings as they were where it was called"
    )


@dataclass
class _Names:
    """Assigns a distinct name to each imported object."""

    known: dict[tuple[str, str], str] = field(default_factory=dict)

    def bound(self, each: RestoredValue) -> str:
        if each.is_of_script:
            return each.bound
        key = each.module, each.bound
        if key not in self.known:
            number = sum(bound == each.bound for _, bound in self.known)
            self.known[key] = f"{each.bound}_{number + 1}" if number else each.bound
        return self.known[key]

    @property
    def imports(self) -> Iterator[str]:
        for (module, bound), name in self.known.items():
            renamed = f" as {name}" if name != bound else ""
            yield f"from {module} import {bound}{renamed}"
