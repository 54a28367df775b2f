"""Select the statements of preloads, and of the modules that they import.

    my_ops/__init__.py    from . import mix, gone    acts: until a test shows otherwise
    my_ops/mix.py         custom_op("my_ops::mix")   acts
    my_ops/scale.py       ONE = 1; TWO = 2           TWO = 2 only: mix reads it

A slice contains the statements that act, and those that bind names that selected
statements may read. A test decides which of the statements that act can be dropped.
A text does not show everything, so a test also compares a slice with the whole files.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shrinkfx.preloads.preload_bundle import Definitions, PreloadCut, Unit
from shrinkfx.preloads.statements import (
    REFLECTION,
    Statement,
    aliases_of,
    read_source,
    text_of,
    with_packages,
)


@dataclass(frozen=True)
class Slice:
    """The selected statements of a module.

    Attributes:
        body: all statements that importing the module runs.
        future: the ``__future__`` features of the module.
    """

    name: str
    file: Path
    body: tuple[Statement, ...]
    future: tuple[str, ...] = ()
    selected: tuple[Statement, ...] = ()

    @classmethod
    def of(cls, name: str, file: Path, statements: Iterable[Statement]) -> Slice:
        """Make the slice without a statement."""
        found = [each for each in statements if not each.is_main]
        future = (a.name for s in found if s.is_future for a in aliases_of(s.node))
        body = tuple(each for each in found if not each.is_future)
        return cls(name, file, body, tuple(future))

    @property
    def package(self) -> str:
        """The package that relative imports start from."""
        is_package = self.file.name == "__init__.py"
        return self.name if is_package else self.name.rpartition(".")[0]

    @property
    def definitions(self) -> Definitions:
        text = text_of(self.selected)
        return Definitions(text, self.future if text else ())

    @property
    def imported(self) -> set[str]:
        """The modules that the selected statements may import, and their packages."""
        packages = {*with_packages(self.name)} - {self.name} if self.selected else set()
        return packages.union(*(s.modules(self.package) for s in self.selected))

    def unit(self, statement: Statement) -> Unit:
        return (str(self.file), *statement.place)


@dataclass
class Slicer:
    """Selects statements by their texts, and executes none of them.

    Attributes:
        preloads: the files of the preloads, by module name.
        known: files of modules that were seen in use, by module name.
        roots: folders to search for other modules.
        callers: file and line of each call that loaded a library.
        read: returns the statements of a file.
    """

    preloads: Mapping[str, Path]
    known: Mapping[str, Path]
    roots: Sequence[Path]
    callers: Sequence[tuple[str, int]]
    cut: PreloadCut
    read: Callable[[Path], Iterable[Statement]]
    _empty: dict[str, Slice | None] = field(default_factory=dict)

    def slices(self) -> dict[str, Slice]:
        """Return the slices of all preloads and of the modules that they need.

        Raises:
            OSError, SyntaxError: a file no longer exists or cannot be parsed.
        """
        last = dict[str, Slice]()
        slices = {n: each for n in self.preloads if (each := self._find(n))}
        while slices != last:
            last = slices
            slices = {
                name: self._select(found, last)
                for name in self._reached(last)
                if (found := self._find(name))
            }
        imported = set[str]().union(*(each.imported for each in slices.values()))
        needed = {*self.preloads, *imported}
        return {n: s for n, s in slices.items() if n in needed or s.selected}

    def is_root(self, module: Slice, statement: Statement) -> bool:
        """Return whether a statement is selected whether its names are read or not."""
        if self.cut.whole:
            return True
        loads = any(
            Path(file) == module.file and line in statement.lines
            for file, line in self.callers
        )
        is_dropped = module.unit(statement) in self.cut.dropped
        return (statement.acts or loads) and not is_dropped

    def _find(self, name: str) -> Slice | None:
        if name not in self._empty:
            self._empty[name] = self._read(name)
        return self._empty[name]

    def _read(self, name: str) -> Slice | None:
        """Read a module, or return None if it is none of the user's.

        An unseen module that does not parse belongs to an import that never succeeded.
        """
        if file := self.preloads.get(name) or self.known.get(name):
            return Slice.of(name, file, self.read(file))
        for file in _files_of(name, self.roots):
            try:
                ast.parse(read_source(file))
            except (OSError, SyntaxError, ValueError):
                return None
            return Slice.of(name, file, self.read(file))
        return None

    def _reached(self, slices: Mapping[str, Slice]) -> list[str]:
        """List the preloads, and the modules that were used or are imported."""
        names = {*self.preloads}
        if any(each.selected for each in slices.values()):
            used = self.known if self.cut.modules is None else self.cut.modules
            names |= {*used} & {*self.known}
        return sorted(names.union(*(each.imported for each in slices.values())))

    def _select(self, empty: Slice, slices: Mapping[str, Slice]) -> Slice:
        """Select the roots of a module and the statements whose names are read."""
        name = empty.name
        before = slices[name].selected if name in slices else ()
        wanted = frozenset[str]().union(*(each.reads for each in before))
        for other in slices.values():
            if other.name != name:
                wanted |= _names_read_from(name, other)
        acting = (s for s in before if s.acts and not s.is_import)
        looks_up = any(REFLECTION.search(each.code) for each in acting)
        selected = (
            each
            for each in empty.body
            if looks_up or each.binds & wanted or self.is_root(empty, each)
        )
        return Slice(name, empty.file, empty.body, empty.future, tuple(selected))


def _names_read_from(name: str, reader: Slice) -> frozenset[str]:
    """Return the names that a slice may read from the module ``name``."""
    found = frozenset[str]()
    for each in reader.selected:
        imported = each.names_from(reader.package).get(name, set())
        found |= each.words | imported
        if "*" in imported:
            found = found.union(*(other.reads for other in reader.selected))
    return found


def _files_of(name: str, roots: Sequence[Path]) -> Iterator[Path]:
    path = name.replace(".", "/")
    for root in roots:
        for file in (root / f"{path}.py", root / path / "__init__.py"):
            if file.is_file():
                yield file
