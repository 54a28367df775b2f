"""Choose the preloads with which other processes register what a program needs.

The user's process has imported modules: a module is preloaded by its name if a new
interpreter finds the same file by it, or else by its file. A module of a package that
is not found is preloaded by a generated file that adds the package's folder to
``sys.path``.

Definitions of a script are copied out of it, because an import would run all of it.
Settings of Inductor that are functions or objects are set by a generated file.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shrinkfx.errors import LoadError
from shrinkfx.intake.found import is_setting
from shrinkfx.preloads.custom_code_sources import describe_copy, mark_as_generated
from shrinkfx.preloads.preload_bundle import PreloadCut
from shrinkfx.preloads.relocation import COMPILES
from shrinkfx.preloads.slicing import Slicer
from shrinkfx.preloads.statements import (
    REGISTRAR,
    at_import,
    last_name,
    read_source,
    statements_of,
    text_of,
)
from shrinkfx.program.uninstalled_files import is_path
from shrinkfx.protocol.captured import MAIN, CapturedProgram, ImportedValue, Origin


@dataclass(frozen=True)
class Preloads:
    """Values for ``--preload``, in order, and sentences about them.

    Attributes:
        lacking: sentences about settings of Inductor that no preload sets.
    """

    names: tuple[str, ...]
    notes: tuple[str, ...]
    lacking: tuple[str, ...] = ()


def choose_preloads(
    program: CapturedProgram, folder: Path, cwd: Path, named: Sequence[str] = ()
) -> Preloads:
    """Return the preloads of a program of a captured script.

    Args:
        folder: a folder for generated preloads.
        cwd: the folder in which the run's processes start.
        named: the user's preloads.

    Raises:
        LoadError: a module has no file, and is not found by its name.
    """
    chosen = _ChosenPreloads(folder)
    others = {k: v for k, v in program.others.items() if is_setting(k)}
    others = _unset(others, _find_preload_files(named, cwd))
    found = _find_modules(program.origins, cwd)
    for origin in program.origins:
        called = _called(origin) if origin.called else ""
        if origin.module == MAIN:
            chosen.copy_definitions(origin, called, others)
        else:
            chosen.add_origin(origin, found.get(origin.module), called)
            chosen.add_registering_calls(origin)
    others = _unset(others, chosen.files)
    copied = {k: v for k, v in others.items() if v.is_imported}
    chosen.set_settings(copied)
    lacking = tuple(_lacking(k, v) for k, v in others.items() if k not in copied)
    return chosen.preloads(lacking)


def choose_session_preloads(
    program: CapturedProgram, folder: Path, cwd: Path, named: Sequence[str]
) -> Preloads:
    """Return the preloads of an object of this process.

    Args:
        named: the user's preloads; if there are any, no others are added.

    Raises:
        LoadError: a module has no file, and is not found by its name.
    """
    chosen = _ChosenPreloads(folder)
    lost = [origin for origin in program.origins if origin.module == MAIN]
    imported = [origin for origin in program.origins if origin.module != MAIN]
    files = [_file_of_preload(name) for name in named]
    if named:
        real = {os.path.realpath(file) for file in files if file}
        lost += [o for o in imported if os.path.realpath(o.file) not in real]
    else:
        found = _find_modules(imported, cwd)
        for origin in imported:
            chosen.add_origin(origin, found.get(origin.module))
    others = {k: v for k, v in program.others.items() if is_setting(k)}
    others = _unset(others, files or chosen.files)
    copied = {k: v for k, v in others.items() if v.is_imported and not named}
    chosen.set_settings(copied)
    missing = [name for name in others if name not in copied]
    # The names of settings say more than the modules of their code.
    missing = missing or [o.why for o in lost if o.why.startswith("torch.")]
    names = ", ".join(dict.fromkeys(missing))
    return chosen.preloads((f"{_NOT_COPIED}: {names}: {_HOW}",) if missing else ())


_NOT_COPIED = "this session has settings that cannot be copied to other processes"
_HOW = (
    "move the code that sets them to the top level of a module, such as passes.py, "
    "and pass preload='passes'"
)


def _file_of_preload(name: str) -> str:
    """Return the file of a preload, which is a path or a module of this process."""
    if is_path(name):
        return name
    return getattr(sys.modules.get(name), "__file__", None) or ""


_PRELOADING = "preloading module `{}`, which defines or changes {}"


@dataclass
class _ChosenPreloads:
    """Collects preloads, and writes generated ones.

    Attributes:
        files: the Python files of the preloads.
    """

    folder: Path
    names: dict[str, None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)

    def preloads(self, lacking: tuple[str, ...]) -> Preloads:
        return Preloads(tuple(self.names), tuple(self.notes), lacking)

    def add_origin(self, origin: Origin, found: str | None, remark: str = "") -> None:
        """Add a library, or a module, by its name where a new interpreter finds it.

        Args:
            found: the file of the module in a new interpreter.
            remark: the note, if it is not the usual one.
        """
        name = origin.library or origin.module or origin.file
        if _is_own_module(origin):
            name = self._importable(origin.module, origin.file, found)
            self.files.append(origin.file)
            remark = remark or _PRELOADING.format(origin.module, origin.why)
        self._add(name, remark)

    def add_registering_calls(self, origin: Origin) -> None:
        """Add a generated preload with the calls in which a module registered."""
        calls = origin.registering_calls
        names = dict.fromkeys(call.partition("(")[0] for call in calls)
        imports = [f"from {origin.module} import {name}" for name in names]
        for call in calls:
            self._add("", f"a generated preload calls {origin.module}.{call}")
        if imports:
            text = "\n".join([*imports, "", *calls, ""])
            name = f"calls_{origin.module.replace('.', '_')}"
            self._add(self._write(name, text, _CALLS))

    def copy_definitions(
        self, origin: Origin, called: str, settings: Mapping[str, ImportedValue]
    ) -> None:
        """Copy the definitions out of a script.

        Args:
            called: the note if the script registers something in a function, or ''.
            settings: settings of Inductor, some of which the script may define.
        """
        file = Path(origin.file)
        if not file.is_file():  # <stdin>, or code passed with -c
            self._add("", f"{origin.why}: {_NO_FILE}")
            return
        try:
            defined = _settable(file, settings)
            restored = render_settings(defined) if defined else ""
            text = _defining(read_source(file), str(file), restored)
        except (OSError, SyntaxError) as error:
            advice = "move the definition to its own module, and --preload that module"
            why = f"cannot read the script: {error}; {advice}"
            self._add("", f"{origin.why}: {why}")
            return
        if text.strip():
            name = f"{re.sub(r'[^0-9A-Za-z_]', '_', file.stem)}_definitions"
            written = self._write(name, text, describe_copy(file.name))
            self.files.append(written)
            where = f"defined in {file.name}; the definition was copied to {written}"
            self._add(written, called or f"{origin.why}: {where}")
        else:
            self._add("", called)

    def set_settings(self, settings: Mapping[str, ImportedValue]) -> None:
        """Add a generated preload that sets these settings, unless there are none."""
        if settings:
            self._add(self._write(FILE, render_settings(settings), SETTINGS))
        for key, value in settings.items():
            place = _name(key, value)
            self._add("", f"a generated preload sets {place}: {value.short_text}")

    def _add(self, name: str, note: str = "") -> None:
        self.names |= {name: None} if name else {}
        self.notes |= {note: None} if note else {}

    def _importable(self, module: str, file: str, found: str | None) -> str:
        """Return the preload with which other processes import a module."""
        if found and file and os.path.realpath(found) == os.path.realpath(file):
            return module
        if not file:
            advice = "add its folder to PYTHONPATH before Python starts"
            raise LoadError(module, "other processes cannot import this module", advice)
        path = Path(file).resolve()
        if path.suffix == ".py" and path.stem == module:
            return str(path)
        root = str(path.parents[module.count(".") + (path.stem == "__init__")])
        text = f"import sys\n\nsys.path.insert(0, {root!r})\nimport {module}\n"
        name = f"preload_{module.replace('.', '_')}"
        return self._write(name, text, f"imports {module} from its own folder")

    def _write(self, name: str, text: str, what: str) -> str:
        """Write a module under the next free name, and return its path.

        Files of other runs stay; a file with the same text is reused.
        """
        text = mark_as_generated(text, what)
        for number in itertools.count(1):
            suffix = f"_{number}" if number > 1 else ""
            path = self.folder / f"{name}{suffix}.py"
            try:
                with path.open("x", encoding="utf-8") as file:
                    file.write(text)
            except FileExistsError:
                if path.read_text(encoding="utf-8") != text:
                    continue
            return str(path)
        raise AssertionError("numbers do not end")


def _find_modules(origins: Sequence[Origin], cwd: Path) -> dict[str, str | None]:
    modules = [each.module for each in origins if _is_own_module(each)]
    return _find_in_new_interpreter(modules, cwd) if modules else {}


def _unset(
    settings: Mapping[str, ImportedValue], files: Sequence[str]
) -> dict[str, ImportedValue]:
    """Return the settings that none of the files sets at import time."""
    return {
        k: v for k, v in settings.items() if not any(file_sets(f, k, v) for f in files)
    }


def _lacking(setting: str, value: ImportedValue) -> str:
    why = value.why_not or f"{value.name} is created only in the script itself"
    advice = "define it at the top level of its file, or " if value.holder else ""
    return (
        f"{_name(setting, value)} is missing: {why}, so no other process has it; "
        f"{advice}write a module that sets it at import time, and --preload that module"
    )


def _name(setting: str, value: ImportedValue) -> str:
    """Return a setting, or another place in Inductor, as a message names it."""
    return setting if value.holder else f"Inductor's {setting}"


def _is_own_module(origin: Origin) -> bool:
    """Return whether a module is local; installed modules are imported by name."""
    return origin.module not in ("", MAIN) and not origin.library and origin.is_local


def _called(origin: Origin) -> str:
    return (
        f"{origin.why}: a function in {origin.module} registers this, not the import "
        "of the module: if it is missing, --preload a module that calls the function"
    )


_NO_FILE = (
    "the script is not a file, so its code cannot be read again: save it to a file, "
    "and capture that: shrinkfx --capture -- python FILE.py"
)


def _settable(
    file: Path, settings: Mapping[str, ImportedValue]
) -> dict[str, ImportedValue]:
    """Return the settings whose values the script defines, but does not set itself."""
    parts = [s for s in statements_of(read_source(file), str(file)) if not s.is_main]
    bound, text = {name for each in parts for name in each.binds}, text_of(parts)
    defined = {k: v for k, v in settings.items() if v.is_of_script and v.bound in bound}
    return {k: v for k, v in defined.items() if not text_sets(text, k, v)}


def _defining(text: str, name: str, restored: str) -> str:
    """Slice a script to the code that registers operators or changes the compiler.

    Statements for the script's own purposes are omitted, such as those that parse
    arguments or run the model.

    Args:
        restored: statements to keep, with the definitions that they need.
    """
    length = text.count("\n") + 1
    statements = statements_of(f"{text}\n{restored}", name)
    others = (s for s in statements if s.lines[0] <= length and not _defines(s.node))
    cut = PreloadCut(dropped=frozenset((name, *each.place) for each in others))
    compiling = [(name, s.lines[0]) for s in statements if _compiles(s.node)]
    slicer = Slicer({MAIN: Path(name)}, {}, (), compiling, cut, lambda _: statements)
    return slicer.slices()[MAIN].definitions.text


def _compiles(node: ast.stmt) -> bool:
    """Return whether a statement compiles C++, with or without using the result."""
    value = getattr(node, "value", None)
    return isinstance(node, (ast.Expr, ast.Assign)) and last_name(value) == COMPILES


def _defines(node: ast.stmt) -> bool:
    """Return whether a statement is a definition, a patch or a registration."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)) or _compiles(node):
        return True
    places = (ast.Attribute, ast.Subscript)
    if any(isinstance(target, places) for target in getattr(node, "targets", ())):
        return isinstance(node, ast.Assign)
    return any(map(_registers, at_import(node)))


def _registers(node: ast.stmt) -> bool:
    called = [*getattr(node, "decorator_list", ())]
    if isinstance(node, (ast.Expr, ast.Assign)):
        called.append(node.value)
    return any(REGISTRAR.fullmatch(last_name(each)) for each in called)


def _find_preload_files(names: Sequence[str], cwd: Path) -> list[str]:
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


def file_sets(path: str, setting: str, value: ImportedValue) -> bool:
    """Return whether a Python file sets a setting at import time.

    Assignments inside functions do not count, because nobody may call these.

    Args:
        setting: only its last part counts: ``config.x.y = 1`` sets ``x.y``.
    """
    try:
        return text_sets(Path(path).read_bytes(), setting, value)
    except (OSError, SyntaxError, ValueError):
        return False


def text_sets(text: str | bytes, setting: str, value: ImportedValue) -> bool:
    """Return whether Python code sets a setting at import time.

    Raises:
        SyntaxError, ValueError: the text is not Python.
    """
    stack: list[ast.AST] = [ast.parse(text)]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            stack += node.decorator_list
        elif not isinstance(node, ast.Lambda):
            if _sets(node, setting, value):
                return True
            stack += ast.iter_child_nodes(node)
    return False


def _sets(node: ast.AST, setting: str, value: ImportedValue) -> bool:
    """Return whether a part of a statement sets a setting, or an entry of a table.

    A call of ``register_lowering`` for the key also counts, and a call of the function
    that made the value.
    """
    table, _, key = setting.removesuffix("]").partition("[")
    name = table.rpartition(".")[2]
    if isinstance(node, ast.Call) and value.holder:
        called = "" if isinstance(node.func, ast.Call) else last_name(node.func)
        if called == f"register_{name.removesuffix('s')}" and node.args:
            operators = getattr(node.args[0], "elts", node.args[:1])
            keys = key, key.rpartition(".")[0]  # a packet stands for its overloads
            return any(_may_be(each, one) for each in operators for one in keys)
        return bool(value.why_not and called) and called == value.bound
    if not isinstance(getattr(node, "ctx", None), ast.Store):
        return False
    if isinstance(node, ast.Subscript):
        return last_name(node.value) == name and _may_be(node.slice, key)
    return not key and getattr(node, "attr", "") == name


def _may_be(index: ast.expr, key: str) -> bool:
    """Return whether an expression may be a key of a table; a variable may be any."""
    text = ast.unparse(index)
    is_variable = "." not in text and not isinstance(index, ast.Constant)
    return bool(key) and (is_variable or f".{key}".endswith(f".{text}"))


# Generate code that restores Inductor settings which are functions or objects.
#
#     torch._inductor.config.post_grad_custom_pre_pass = passes.FuseAddMul()
#     torch._inductor.lowering.lowerings[torch.ops.aten.cosh.default] = passes.lower
#
# ``watching/programs.py`` finds out, in the process with the value, how an import
# makes it.


_CONFIG = "torch._inductor.config"

FILE = "preload_settings"
"""Name of the generated file, without its suffix."""

SETTINGS = "settings as they were where it was called"
"""The content of that file, as its docstring describes it."""

_CALLS = "calls that registered patterns"


def _statements(
    value: ImportedValue, setting: str, number: int, bound: str
) -> list[str]:
    """Return the statements that set a setting to a value.

    Args:
        number: the number of the setting in the generated module.
        bound: the name of ``value.bound`` in that module.
    """
    place = bound + value.name.removeprefix(value.bound)
    set_to = f"{setting if value.holder else f'{_CONFIG}.{setting}'} = "
    made = f"made_{number}"
    call = f"{value.call}({place})" if value.call == ".__new__" else value.call
    if not value.state:
        made = f"{place}{call}"
        return [f"{set_to}{value.wrapper}({made})" if value.wrapper else set_to + made]
    assignments = [
        # As in unpickling, because a class may forbid setting its attributes.
        f"object.__setattr__({made}, {name!r}, {text})"
        for name, text in value.state.items()
    ]
    return [f"{made} = {place}{call}", *assignments, f"{set_to}{made}"]


def render_settings(settings: Mapping[str, ImportedValue]) -> str:
    """Return statements that set settings at import time.

    They import names from modules instead of the modules, so that a repro can contain
    the definitions in place of the imports.
    """
    names = _Names()
    lines = [
        ["", *_statements(each, setting, number, names.bound(each))]
        for number, (setting, each) in enumerate(settings.items(), 1)
    ]
    holders = dict.fromkeys(each.holder or _CONFIG for each in settings.values())
    first = [*(f"import {holder}" for holder in holders), *names.imports]
    return "\n".join([*first, *itertools.chain(*lines)]) + "\n"


@dataclass
class _Names:
    """Assigns a distinct name to each imported object."""

    known: dict[tuple[str, str], str] = field(default_factory=dict)

    def bound(self, each: ImportedValue) -> str:
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
