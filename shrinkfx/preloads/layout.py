"""Locations of a preload's files on a machine that has only the repro.

    /home/me/ops/ops.py            ops.py             text, in the repro
    /home/me/ops/kernels/fast.py   kernels/fast.py    text, in the repro
    /home/me/ops/build/ops.so      build/ops.so       next to the repro, as ops.so
    /opt/theirs/other.so           other.so           next to it; the call is rewritten

Files of the project keep their relative paths, so that code finds them however it
builds the path. A call that loaded one library gets the new path, because the old one
may be a constant.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from shrinkfx.preloads.statements import read_source
from shrinkfx.program.uninstalled_files import Loading

_LEAST_PARTS = 3
"""Minimum parts of a path that is a project folder: not / and not /home."""

_TAKES_A_PATH = {"load_library", "CDLL", "PyDLL", "LoadLibrary"}


@dataclass(frozen=True)
class Layout:
    """The folders that modules are imported from, and the relative path of each file.

    Attributes:
        roots: absolute folders, in search order.
        base: the common parent folder, or None if that is no project folder.
    """

    roots: tuple[Path, ...]
    base: Path | None

    @classmethod
    def of(cls, roots: Iterable[Path], near: Iterable[Path] = ()) -> Layout:
        """Find the folder that contains all ``roots`` and nearby files."""
        found = tuple(dict.fromkeys(roots))
        base = _common(found)
        for file in near:
            wider = _common((base, file.parent)) if base else None
            # A "build" folder of the parent is near; a file with a distant common
            # parent is not.
            if wider and base and len(base.parts) - len(wider.parts) <= 1:
                base = wider
        return cls(found, base)

    def place(self, file: Path) -> str | None:
        """Return the relative path of a file, or None if it is outside the project."""
        if self.base:
            near = file.is_relative_to(self.base)
            return str(file.relative_to(self.base)) if near else None
        for number, root in enumerate(self.roots):
            if file.is_relative_to(root):
                return f"{number}/{file.relative_to(root)}"
        return None

    def folders(self) -> list[str]:
        """List the roots as relative paths."""
        if self.base:
            return [str(root.relative_to(self.base)) for root in self.roots]
        return [str(number) for number in range(len(self.roots))]


def _common(folders: Sequence[Path | None]) -> Path | None:
    if not folders:
        return None
    common = Path(os.path.commonpath([str(folder) for folder in folders]))
    if len(common.parts) < _LEAST_PARTS or Path.home().is_relative_to(common):
        return None
    return common


def folders_of(files: Iterable[Path]) -> list[Path]:
    """List the folders of files; omit a folder that is below another one."""
    found = dict.fromkeys(file.parent for file in files)
    return [f for f in found if not any(f != o and f.is_relative_to(o) for o in found)]


def root_of(name: str, file: Path) -> Path:
    """Return the folder from which a module is imported by its name."""
    parts = name.split(".")
    if file.name == "__init__.py":
        file = file.parent
    tail = file.with_suffix("").parts[-len(parts) :]
    return file.parents[len(parts) - 1] if list(tail) == parts else file.parent


def imports_of(text: str, package: str) -> set[str]:
    """List all modules that a text may import, at any depth, with their packages.

    Args:
        package: the package that relative imports start from.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            home = home_of(node, package)
            found |= {home, *(f"{home}.{alias.name}" for alias in node.names)}
    return {each for name in found for each in with_packages(name)}


def home_of(node: ast.ImportFrom, package: str) -> str:
    """Return the name of the module in ``from module import ...``.

    Args:
        package: the package that relative imports start from.
    """
    above = package.split(".")[: -(node.level - 1) or None] if node.level else []
    return ".".join(filter(None, [*above, node.module]))


def is_relative(text: str) -> bool:
    """Return whether a text has a relative import."""
    nodes = ast.walk(ast.parse(text))
    return any(isinstance(node, ast.ImportFrom) and node.level for node in nodes)


def with_packages(name: str) -> Iterator[str]:
    """Yield the packages that contain a module, then the module's name."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        if parts[end - 1]:
            yield ".".join(parts[:end])


def package_of(name: str, file: Path) -> str:
    """Return the package that a module's relative imports start from."""
    return name if file.name == "__init__.py" else name.rpartition(".")[0]


def find_imported_files(
    texts: Mapping[str, tuple[str, str]],
    known: Mapping[str, Path],
    roots: Sequence[Path],
) -> dict[str, Path]:
    """Return the files of the modules that texts import, if below ``roots``.

    Args:
        texts: text and package of a module, by its name.
        known: files of modules that were seen in use. A module that was not is omitted
            if its file cannot be parsed.
        roots: folders to search, in order.
    """
    found: dict[str, Path] = {}
    for name in sorted({n for each in texts.values() for n in imports_of(*each)}):
        file = known.get(name) or _file_of(name, roots)
        # An unseen module that does not parse belongs to an import that never
        # succeeded.
        if file is not None and (name in known or _is_readable(file)):
            found[name] = file
    return found


def _is_readable(file: Path) -> bool:
    try:
        ast.parse(read_source(file))
    except (OSError, SyntaxError, ValueError):
        return False
    return True


def _file_of(name: str, roots: Sequence[Path]) -> Path | None:
    path = name.replace(".", "/")
    files = (root / f for root in roots for f in (f"{path}.py", f"{path}/__init__.py"))
    return next((file for file in files if file.is_file()), None)


def rewrite_library_loads(
    text: str, loadings: Iterable[Loading], moved: Mapping[str, str]
) -> str:
    """Rewrite calls of a module that load libraries, so that they use the new paths.

    Args:
        loadings: the library loads of this module.
        moved: the new path of each library, relative to the module.
    """
    libraries: dict[tuple[int, int, int, int], list[Loading]] = {}
    for loading in loadings:
        libraries.setdefault(loading.span, []).append(loading)
    lines = text.encode().splitlines(keepends=True)
    for span, loaded in sorted(libraries.items(), reverse=True):
        line, column, end, end_column = span
        if len({each.library for each in loaded}) > 1 or loaded[0].library not in moved:
            continue
        first, last = lines[line - 1], lines[end - 1]
        called = b"".join(lines[line - 1 : end])[
            column : end_column - len(last) or None
        ]
        new = _loading(called.decode(), loaded[0], moved[loaded[0].library])
        if new:
            same = new[:-1] + "\n" * (end - line) + new[-1]  # lines keep their numbers
            changed = first[:column] + same.encode() + last[end_column:]
            lines[line - 1 : end] = [changed]
    return b"".join(lines).decode()


def _loading(called: str, loading: Loading, name: str) -> str:
    """Return the call with the new path, or '' if ``called`` is not a call."""
    try:
        call = ast.parse(called.strip(), mode="eval").body
    except SyntaxError:
        return ""
    if not isinstance(call, ast.Call):
        return ""
    if loading.is_module:
        return f"__import__({PurePosixPath(name).name.partition('.')[0]!r})"
    path = f"""__file__.rpartition("/")[0] + "/{name}\""""
    if ast.unparse(call.func).rpartition(".")[2] in _TAKES_A_PATH:
        rest = [ast.unparse(each) for each in (*call.args[1:], *call.keywords)]
        return f"{ast.unparse(call.func)}({', '.join([path, *rest])})"
    return f'__import__("torch").ops.load_library({path})'
