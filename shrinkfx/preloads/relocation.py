"""Locations of a preload's files on a machine that has only the repro.

    /home/me/ops/ops.py            ops.py             text, in the repro
    /home/me/ops/kernels/fast.py   kernels/fast.py    text, in the repro
    /home/me/ops/build/ops.so      build/ops.so       next to the repro, as ops.so
    /opt/theirs/other.so           other.so           next to it; the call is rewritten

Files of the project keep their relative paths, so that code finds them however it
builds the path. A call that loaded one library gets the new path, and so does a string
constant that is the path of a file.
"""

from __future__ import annotations

import ast
import copy
import fnmatch
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

from shrinkfx.preloads.statements import Statement, last_name, span_of
from shrinkfx.program.uninstalled_files import Loading, UninstalledFiles

_LEAST_PARTS = 3
"""Minimum parts of a path that is a project folder: not / and not /home."""

_MOST_BYTES = 64 << 20
"""Maximum size of a data file in the bundle; larger files are not constant tables."""

_TAKES_A_PATH = {"load_library", "CDLL", "PyDLL", "LoadLibrary"}


def root_of(name: str, file: Path) -> Path:
    """Return the folder from which a module is imported by its name."""
    parts = name.split(".")
    if file.name == "__init__.py":
        file = file.parent
    tail = file.with_suffix("").parts[-len(parts) :]
    return file.parents[len(parts) - 1] if list(tail) == parts else file.parent


@dataclass
class Relocator:
    """Rewrites paths of the original machine in statements.

    Attributes:
        modules: files of modules, by module name; an import finds them by name.
    """

    used: UninstalledFiles
    modules: Mapping[str, Path]
    _named: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        found = (root_of(name, file) for name, file in self.modules.items())
        self.roots = [*dict.fromkeys(found)]
        base = self._find_base()
        self._near = [("", base)] if base else _numbered("", self.roots)
        files = (*self.used.files, *self.used.libraries)
        by_name = set(map(str, self.modules.values()))
        self.files = [f for f in dict.fromkeys(files) if os.path.isfile(f)]
        self.files_by_path = [f for f in self.files if f not in by_name]
        far = {Path(file).parent for file in files if not self.near(Path(file))}
        by_depth = sorted(far, key=lambda folder: (len(folder.parts), folder))
        self._far = _numbered("elsewhere/", by_depth)

    def _find_base(self) -> Path | None:
        """Return the folder of the whole project: of its modules and near libraries."""
        base = _common(self.roots)
        for library in self.used.libraries:
            wider = base and _common([base, Path(library).parent])
            # A "build" folder of the parent is near; a file with a distant common
            # parent is not.
            if base and wider and len(base.parts) - len(wider.parts) <= 1:
                base = wider
        return base

    def near(self, path: Path) -> str | None:
        """Return the relative path of a file or folder; None outside the project."""
        return _locate(path, self._near)

    @property
    def search_path(self) -> list[str]:
        """The relative folders that modules are imported from, in order."""
        return [self.near(root) or "." for root in self.roots]

    def move(self, file: Path, statements: Iterable[Statement]) -> Iterator[Statement]:
        """Rewrite the statements of a file to the paths of a repro."""
        home = self.near(file.parent) or "."

        def load(call: ast.Call) -> ast.expr | None:
            found = {
                each
                for each in self.used.loadings
                if Path(each.file) == file and each.span == span_of(call)
            }
            if len(found) != 1:  # a loop loads several
                return None
            (loading,) = found
            # An import finds a library in the same project without a new path.
            if loading.is_module and self.near(Path(loading.library)):
                return None
            place = self.place(loading.library)
            return (
                _loading(call, loading, os.path.relpath(place, home)) if place else None
            )

        rewriter = _PathRewriter(lambda path: self._relative(home, path), load)
        for each in statements:
            node = rewriter.visit(copy.deepcopy(each.node))
            try:
                code = ast.unparse(ast.fix_missing_locations(node))
            except ValueError:  # nested quotes, before Python 3.12
                code = each.code
            if code == each.code:
                yield each
            else:
                above = len(each.text) - len(each.text.lstrip("\n"))
                yield Statement(node, "\n" * above + code, node)

    def place(self, file: str) -> str | None:
        """Return the location of a file in a repro, or None if it is not found there.

        A file outside the project is found only by its path, which then changes.
        """
        if near := self.near(Path(file)):
            return near
        loads = [each for each in self.used.loadings if each.library == file]
        if any(each.is_module for each in loads):
            return f"{self.search_path[0]}/{Path(file).name}"
        return _locate(Path(file), self._far) if loads or file in self._named else None

    def is_carried(self, file: str) -> bool:
        """Return whether a file is a library, or small enough to be a data table."""
        is_table = file in self.used.files
        return os.path.isfile(file) and (
            not is_table or os.path.getsize(file) <= _MOST_BYTES
        )

    def _relative(self, home: str, path: str) -> str | None:
        """Return the new relative path of a file that the bundle carries, or None."""
        if path not in self.files or not self.is_carried(path):
            return None
        place = self.near(Path(path)) or _locate(Path(path), self._far)
        self._named.add(path)
        return os.path.relpath(place, home) if place else None


def _numbered(prefix: str, folders: Iterable[Path]) -> list[tuple[str, Path]]:
    return [(f"{prefix}{number}", each) for number, each in enumerate(folders)]


def _locate(path: Path, folders: Iterable[tuple[str, Path]]) -> str | None:
    """Return the new location of a path below one of the folders, or None."""
    for to, folder in folders:
        if path.is_relative_to(folder):
            return os.path.normpath(PurePath(to, path.relative_to(folder)))
    return None


def _common(folders: Sequence[Path]) -> Path | None:
    """Return the common parent of folders, or None if that is no project folder."""
    common = Path(os.path.commonpath(map(str, folders))) if folders else Path("/")
    is_wide = len(common.parts) < _LEAST_PARTS or Path.home().is_relative_to(common)
    return None if is_wide else common


@dataclass
class _PathRewriter(ast.NodeTransformer):
    """Replaces strings that are paths of files, and calls that loaded a library.

    Paths that a module computes are not detected.

    Attributes:
        place: returns a path relative to the module, or None for a string that is no
            path of a carried file.
        load: returns the new expression for a call that loaded a library, or None.
    """

    place: Callable[[str], str | None]
    load: Callable[[ast.Call], ast.expr | None]

    def visit_MatchValue(self, node: ast.MatchValue) -> ast.AST:
        return node  # a pattern cannot be a sum

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return self.load(node) or self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        to = self.place(node.value) if isinstance(node.value, str) else None
        return _below_here(to) if to else node


def _below_here(path: str) -> ast.expr:
    text = f"""__file__.rpartition("/")[0] + {f"/{path}"!r}"""
    return ast.parse(text, mode="eval").body


def _loading(call: ast.Call, loading: Loading, path: str) -> ast.expr:
    """Return the call with the new path of its library."""
    if loading.is_module:
        name = PurePath(path).name.partition(".")[0]
        return ast.parse(f"__import__({name!r})", mode="eval").body
    if last_name(call.func) in _TAKES_A_PATH:
        return ast.Call(call.func, [_below_here(path), *call.args[1:]], call.keywords)
    load = ast.parse('__import__("torch").ops.load_library', mode="eval").body
    return ast.Call(load, [_below_here(path)], [])


def find_named_files(
    statements: Iterable[Statement], files: Iterable[str]
) -> tuple[str, ...]:
    """Return files that code names, or whose folder it names, by absolute path."""
    constants = {
        os.fsdecode(node.value)
        for each in statements
        for node in _walk(each.node)
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
    }
    return tuple(f for f in files if any(_refers_to(each, f) for each in constants))


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes except docstrings and other bare constants."""
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _walk(child)


def _refers_to(constant: str, file: str) -> bool:
    if file in constant:
        return True
    path = PurePath(os.path.normpath(constant))
    if path not in PurePath(file).parents:
        return constant.startswith("/") and fnmatch.fnmatch(file, constant)
    return path == PurePath(file).parent or len(path.parts) >= _LEAST_PARTS


# Calls that compile C++ when a module is imported.
#
#     load_inline(name="ops", cpp_sources=SOURCE)    embedded together with SOURCE
#     load_library(".../ops.so")                     otherwise: load the library
#
# A call is embedded unchanged if its text contains everything that it compiles: each
# argument is a literal or a name of the module, and none is a folder of the original
# machine.


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
