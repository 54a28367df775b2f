"""Slice preloads, and the modules that they import, down to what operators need.

    my_ops/__init__.py    from . import mix, gone    from . import mix
    my_ops/mix.py         custom_op("my_ops::mix")   as it is
    my_ops/gone.py        custom_op("my_ops::gone")  left out: no text names it
    my_ops/scale.py       ONE = 1; TWO = 2           TWO = 2: mix names it

A slice of a file keeps the statements that its operators need, that other files name,
or that have side effects. Because a slice can name further names, slicing repeats until
the slices no longer change.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from shrinkfx.preloads.definitions import Definitions, slice_file, take_whole_file
from shrinkfx.preloads.layout import find_imported_files, home_of, package_of
from shrinkfx.preloads.preload_bundle import Preload, PreloadCut
from shrinkfx.program.uninstalled_files import UninstalledFiles


@dataclass(frozen=True)
class Slices:
    """The remaining text of each file.

    Attributes:
        modules: files of the modules that must be importable besides preloads, by
            module name.
        parts: the slice of each file, preloads included.
    """

    modules: Mapping[str, Path] = field(default_factory=dict)
    parts: Mapping[Path, Definitions] = field(default_factory=dict)

    def texts(self, loaded: Mapping[str, Path]) -> dict[str, tuple[str, str]]:
        """Return text and package of each module with a text, ``loaded`` included."""
        files = {**loaded, **self.modules}
        found = {n: (self.parts[f].text, package_of(n, f)) for n, f in files.items()}
        return {name: each for name, each in found.items() if each[0]}


@dataclass(frozen=True)
class Slicer:
    """Slices files as texts and executes none of them.

    Attributes:
        known: files of modules, preloads included, by module name.
        roots: folders to search for modules that were not seen in use.
        read: returns the text of a file.
    """

    preloads: Sequence[Preload]
    uninstalled_files: UninstalledFiles
    operators: Sequence[str]
    cut: PreloadCut
    known: Mapping[str, Path]
    roots: Sequence[Path]
    read: Callable[[Path], str]

    def slice_files(self) -> Slices:
        """Slice all files.

        Raises:
            OSError, SyntaxError: a file no longer exists or cannot be parsed.
        """
        loaded = {p.module: p.file for p in self.preloads if p.file}
        last, now = Slices(), self._again({}, loaded, {})
        while now != last:
            texts = now.texts(loaded)
            last, now = now, self._again(texts, loaded, self._found(texts, loaded))
        needed = self._imported(now.texts(loaded), loaded)
        modules = {
            name: now.modules[name]
            for name in sorted(now.modules)
            if name in needed or now.parts[now.modules[name]].text
        }
        return Slices(modules, now.parts)

    def _again(
        self,
        texts: Mapping[str, tuple[str, str]],
        loaded: Mapping[str, Path],
        found: Mapping[str, Path],
    ) -> Slices:
        named = {name: _named_in(*each) for name, each in texts.items()}
        wanted: dict[Path, set[str]] = {p.file: set() for p in self.preloads if p.file}
        for name, file in (*loaded.items(), *found.items()):
            others = (each.of(name) for other, each in named.items() if other != name)
            wanted.setdefault(file, set()).update(*others)
        return Slices(found, {f: self._part(f, names) for f, names in wanted.items()})

    def _found(
        self, texts: Mapping[str, tuple[str, str]], loaded: Mapping[str, Path]
    ) -> dict[str, Path]:
        """Return the modules that must be importable: imported by texts, or used."""
        seen = self.known if self.cut.modules is None else self.cut.modules
        used = {n: self.known[n] for n in seen if n in self.known and n not in loaded}
        return {**(used if texts else {}), **self._imported(texts, loaded)}

    def _imported(
        self, texts: Mapping[str, tuple[str, str]], loaded: Mapping[str, Path]
    ) -> dict[str, Path]:
        above = {f"{n}.": (f"import {n.rpartition('.')[0]}", "") for n in texts}
        parents = {n: each for n, each in above.items() if each[0] != "import "}
        found = find_imported_files({**texts, **parents}, self.known, self.roots)
        return {name: file for name, file in found.items() if name not in loaded}

    def _part(self, file: Path, named: set[str]) -> Definitions:
        text = self.read(file)
        if self.cut.whole:
            return take_whole_file(file, text)
        part = slice_file(
            file,
            self.operators,
            without=[(n, c) for at, n, c in self.cut.acts if Path(at) == file],
            acting=[n for at, n in self.uninstalled_files.callers if Path(at) == file],
            local={name.partition(".")[0] for name in self.known},
            named=named,
            text=text,
        )
        # A call that loaded no carried library has compiled it from source.
        return replace(part, loads=part.loads and bool(self.uninstalled_files.loadings))


@functools.lru_cache(maxsize=256)
def _named_in(text: str, package: str) -> ReadNames:
    return collect_read_names(text, package)


# Names that a module may read from other modules, judged by its text.
#
# from .scale import SCALE    reads SCALE of the module scale from .scale import *
# may read any name in the text from scale scale.SCALE                 may read SCALE
# of any module


@dataclass(frozen=True)
class ReadNames:
    """Names that a text may read: from one module, by its name, and from any module."""

    by_module: Mapping[str, frozenset[str]] = field(default_factory=dict)
    anywhere: frozenset[str] = frozenset()

    def of(self, module: str) -> frozenset[str]:
        """Return the names that the text may read from ``module``."""
        return self.anywhere | self.by_module.get(module, frozenset())


def collect_read_names(text: str, package: str) -> ReadNames:
    """Collect the names that a text may read from other modules.

    Args:
        package: the package that relative imports start from.
    """
    imported: dict[str, set[str]] = {}
    anywhere, bare = set[str](), set[str]()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ImportFrom(names=aliases):
                names = imported.setdefault(home_of(node, package), set())
                names.update(alias.name for alias in aliases)
            case ast.Attribute(attr=word):
                anywhere.add(word)
            case ast.Name(id=word):
                bare.add(word)
            case ast.Constant(value=str(word)) if word.isidentifier():
                anywhere.add(word)  # for getattr
    return ReadNames(
        {m: frozenset(n | bare if "*" in n else n) for m, n in imported.items()},
        frozenset(anywhere),
    )
