"""Build the preload bundle of a repro from preloads and the files that they use."""

from __future__ import annotations

import ast
import dataclasses
import fnmatch
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath

from shrinkfx.preloads.compiling_calls import drop_compiled_libraries
from shrinkfx.preloads.custom_code_sources import strip_generated_header
from shrinkfx.preloads.definitions import Definitions
from shrinkfx.preloads.inlined_modules import CannotInlineError, inline_modules
from shrinkfx.preloads.layout import (
    Layout,
    folders_of,
    imports_of,
    is_relative,
    package_of,
    rewrite_library_loads,
    root_of,
)
from shrinkfx.preloads.preload_bundle import Preload, PreloadBundle, PreloadCut, Unit
from shrinkfx.preloads.slicing import Slicer
from shrinkfx.preloads.statements import read_source
from shrinkfx.program.uninstalled_files import UninstalledFiles

_TAKEN = {
    "repro.py",
    "repro_inputs.pt",
    "minimal.pt2",
    "minimal.zip",
    "minimal_inputs.pt",
}

_MOST_BYTES = 64 << 20
"""Maximum size of a data file in the bundle; larger files are not constant tables."""


def build_bundle(
    preloads: Sequence[Preload],
    local: UninstalledFiles,
    operators: Sequence[str],
    cut: PreloadCut,
) -> PreloadBundle:
    """Build the bundle with the parts of preloads that ``operators`` need.

    Raises:
        OSError, SyntaxError: a file no longer exists or cannot be parsed.
    """
    used = drop_compiled_libraries(local, read_source) if cut.compiles else local
    bundle = _BundleBuilder(preloads, used, operators, cut).carried()
    return dataclasses.replace(bundle, compiles=used is not local)


class _BundleBuilder:
    """Builds the bundle for one cut of the preloads."""

    def __init__(
        self,
        preloads: Sequence[Preload],
        local: UninstalledFiles,
        operators: Sequence[str],
        cut: PreloadCut,
    ) -> None:
        preloaded = {p.module: p.file for p in preloads if p.file}
        self._preloads, self._local, self._cut = preloads, local, cut
        self._operators = operators
        self._known = {**preloaded, **{m: Path(f) for m, f in local.modules.items()}}
        self._texts: dict[Path, str] = {}
        roots = [root_of(name, file) for name, file in self._known.items()]
        self._layout = Layout.of(roots, [Path(each) for each in local.libraries])
        known = (*local.files, *local.libraries, *map(str, self._known.values()))
        self._used = [each for each in dict.fromkeys(known) if os.path.isfile(each)]
        self._distant = folders_of(
            file for file in map(Path, local.files) if not self._layout.place(file)
        )
        self._named: set[str] = set()

    def carried(self) -> PreloadBundle:
        """Build the bundle."""
        known = (self._preloads, self._local, self._operators, self._cut, self._known)
        slices = Slicer(*known, self._layout.roots, self._text).slice_files()
        modules, parts = dict(slices.modules), slices.parts
        taken = [self._take(each, parts) for each in self._preloads]
        places, files = self._files()
        lines = None if places else self._inline_modules(taken, modules, parts)
        texts: dict[str, str] = {}
        if lines is None:
            texts = {name: self._module(file, parts) for name, file in modules.items()}
            lines = import_module_preloads(self._preloads, taken, modules, texts)
        at = {self._layout.place(modules[n]) or f"{n}.py": t for n, t in texts.items()}
        return PreloadBundle(
            definitions=tuple(lines),
            unpacking=format_unpacking(at, places, self._searched({*at, *places}))
            if texts
            else "",
            files=files,
            modules=tuple(sorted(texts)),
            kept={
                p.name: _describe_handling(p, t)
                for p, t in zip(self._preloads, taken, strict=True)
            },
            units=tuple(self._units(taken, parts)),
            tied=self._files_used_in_place(
                [*(each.text for each in taken), *texts.values()]
            ),
            absent=tuple(
                p for p in self._files_found_by_path() if Path(p) not in files.values()
            ),
            in_compiler=self._cut.in_compiler,
            bare=self._cut.bare,
        )

    def _searched(self, places: Iterable[str]) -> list[str]:
        """List the folders of the repro that must be on ``sys.path``."""
        there = {str(folder) for place in places for folder in Path(place).parents}
        return [each for each in self._layout.folders() if each in there]

    def _inline_modules(
        self,
        taken: Sequence[Definitions],
        modules: Mapping[str, Path],
        parts: Mapping[Path, Definitions],
    ) -> list[Definitions] | None:
        """Inline modules into the preloads that import them; None if impossible."""
        preloaded = {p.module: p.file for p in self._preloads if p.file}
        files = {**modules, **preloaded}
        needed = [parts[file] for file in files.values()]
        if not self._cut.joined or any(each.loads for each in needed):
            return None
        try:
            read = {n: (parts[f].text, package_of(n, f)) for n, f in files.items()}
            texts = inline_modules(read, preloaded)
        except CannotInlineError:
            return None
        future = tuple(sorted({each for part in needed for each in part.future}))
        return [
            dataclasses.replace(part, text=texts[preload.module], future=future)
            if preload.file
            else part
            for preload, part in zip(self._preloads, taken, strict=True)
        ]

    def _files_found_by_path(self) -> list[str]:
        """List files that code finds by path; modules are found by name."""
        modules = set(map(str, self._known.values()))
        return [file for file in self._used if file not in modules]

    def _files_used_in_place(self, texts: Sequence[str]) -> tuple[str, ...]:
        """List files that are used in place; a linker finds its libraries by itself."""
        files, tables = self._files_found_by_path(), self._local.files
        read = {f for f in tables if os.path.realpath(f) in self._cut.elsewhere}
        return tuple(f for f in files if f in {*find_named_files(texts, files), *read})

    def _take(self, preload: Preload, parts: Mapping[Path, Definitions]) -> Definitions:
        """Convert a preload to lines of the script; their order is kept."""
        if preload.name in self._cut.preloads:
            return Definitions("", False, "", ())
        if preload.is_library:
            path = f"""__file__.rpartition("/")[0] + "/{Path(preload.name).name}\""""
            return Definitions(f"torch.ops.load_library({path})", True, "", ())
        if preload.file is None:
            return Definitions(import_line(preload.name), True, "", ())
        return parts[preload.file]

    def _module(self, file: Path, parts: Mapping[Path, Definitions]) -> str:
        return self._text(file) if self._cut.whole else with_future(parts[file])

    def _units(
        self, taken: Sequence[Definitions], parts: Mapping[Path, Definitions]
    ) -> Iterator[Unit]:
        for preload, part in zip(self._preloads, taken, strict=True):
            if part.text and preload.file is None:
                yield preload.name, 0, 0
        for file, part in parts.items():
            yield from ((str(file), *place) for place in part.acts)

    def _text(self, file: Path) -> str:
        if file not in self._texts:
            self._texts[file] = self._read(file)
        return self._texts[file]

    def _read(self, file: Path) -> str:
        """Read a module and replace the library paths in it by their new locations."""
        loadings = [each for each in self._local.loadings if Path(each.file) == file]
        home, moved = self._layout.place(file.parent) or ".", {}
        for each in loadings:
            place = self._place(each.library)
            # An import finds a library in the same project without a new path.
            if place and not (each.is_module and self._is_near(each.library)):
                moved[each.library] = os.path.relpath(place, home)
        text = rewrite_library_loads(
            strip_generated_header(read_source(file)), loadings, moved
        )
        return rewrite_paths(text, lambda path: self._relative_location(home, path))

    def _relative_location(self, home: str, path: str) -> str | None:
        """Return the new relative path of a file or folder, or None.

        None means that nothing below ``path`` was used, or that the bundle lacks a file
        that was.
        """
        used = [each for each in self._used if f"{each}/".startswith(f"{path}/")]
        tables = set(self._local.files)
        if not used or any(each in tables and not _is_small(each) for each in used):
            return None
        if path in self._local.libraries:
            place = self._place(path)
        else:
            place = self._layout.place(Path(path)) or self._at_a_distance(Path(path))
        self._named.update(used)
        return os.path.relpath(place, home) if place else None

    def _at_a_distance(self, path: Path) -> str | None:
        """Return a location for a data file outside the project, or None."""
        for number, folder in enumerate(self._distant, 1):
            if path.is_relative_to(folder):
                return f"elsewhere/{number}/{path.relative_to(folder)}"
        return None

    def _is_near(self, library: str) -> bool:
        return self._layout.place(Path(library)) is not None

    def _place(self, library: str) -> str | None:
        """Return the location of a library: as in the project, or next to its loader.

        A library outside the project is found only by its path, which then changes.
        """
        if self._is_near(library):
            return self._layout.place(Path(library))
        for each in self._local.loadings:
            if each.library != library:
                continue
            name = Path(library).name
            if not each.is_module:
                return self._layout.place(Path(each.file).parent / name)
            for folder in self._layout.folders():
                return f"{folder}/{name}"
        return self._at_a_distance(Path(library)) if library in self._named else None

    def _files(self) -> tuple[dict[str, str], dict[str, Path]]:
        """Return all files next to the script, and their locations among the modules.

        Returns:
            Names next to the script by location, and original paths by name.
        """
        places: dict[str, str] = {}
        files: dict[str, Path] = {}
        named: dict[str, Path] = {}
        for path in (*self._local.libraries, *self._local.files):
            file = Path(path)
            name = _free_name(file, named)
            named[name] = file
            if self._cut.files is not None and name not in self._cut.files:
                continue
            place = self._place(path)
            if path in self._local.files and not (place and _is_small(path)):
                continue
            files[name] = file
            if place is not None:
                places[place] = name
        for preload in self._preloads:
            if preload.is_library and preload.name not in self._cut.preloads:
                files.setdefault(Path(preload.name).name, Path(preload.name))
        return places, files


def _is_small(file: str) -> bool:
    """Return whether a file exists and is small enough to be a data table."""
    return os.path.isfile(file) and os.path.getsize(file) <= _MOST_BYTES


def _free_name(file: Path, others: Mapping[str, Path]) -> str:
    name, number = file.name, 1
    while name in _TAKEN or others.get(name, file) != file:
        number += 1
        name = f"{number}-{file.name}"
    return name


def _describe_handling(preload: Preload, part: Definitions) -> str:
    """Return what the bundle does with a preload, as ``summary.json`` reports it."""
    if not part.text:
        return "not needed"
    if preload.is_library:
        return "library"
    if preload.file is None:
        return "imported"
    return "whole" if part.whole else "cut"


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


# Rewrite string constants of a module that are paths of the original machine.
#
#     open("/home/me/ops/table.txt")    open(__file__.rpartition("/")[0] + "/table.txt")
#
# Paths that a module computes in other ways are not detected.

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
