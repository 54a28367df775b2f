"""Inline modules at the statements that import them, so that a repro is one text.

    from .scale import SCALE            SCALE = 2.0
    def mix(x): return x * SCALE        def mix(x): return x * SCALE

The text executes the same statements in the same order, so a repro needs no folders to
import from. All modules share one namespace. Therefore no two modules may bind a name
that is read, and no code may read a module as a value or look for files next to it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from shrinkfx.preloads.slicing import Slice
from shrinkfx.preloads.statements import (
    REFLECTION,
    Statement,
    aliases_of,
    text_of,
    with_packages,
)

_OF_A_MODULE = re.compile(r"__(file|name|package|path|spec|loader|getattr)__")

_HASHED = re.compile(r"get_hash_for_files\(\s*[(\[]\s*__file__\s*,?\s*[)\]]\s*\)")
"""How a pass hashes its own source; the inlined file contains that source too."""

_OF_OPERATORS = re.compile(r"\w+ = torch\.ops(\.\w+)+")
"""An assignment that has the same value in every module, as an import has."""


class CannotInlineError(Exception):
    """The modules must remain modules; the caller then writes them as files."""


def inline_modules(slices: Mapping[str, Slice], first: Iterable[str]) -> dict[str, str]:
    """Return the text of each module of ``first``, with its imports inlined.

    Raises:
        CannotInlineError: the inlined text would not do what the modules do.
    """
    inliner = _ModuleInliner(slices)
    found = {name: text_of(inliner.inlined(name)) for name in first}
    selected = {name for name, each in slices.items() if each.selected}
    if unused := selected - inliner.begun:
        raise CannotInlineError(f"nothing imports {', '.join(sorted(unused))}")
    return found


@dataclass
class _ModuleInliner:
    """Records which modules and imports the text already contains.

    Attributes:
        begun: names of the modules that are written or being written.
        shared: imports of other modules, and aliases of operators, as code.
        binders: the modules that bind a name, by that name.
    """

    slices: Mapping[str, Slice]
    begun: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)
    binders: dict[str, set[str]] = field(default_factory=dict)

    def inlined(self, name: str) -> Iterator[Statement]:
        """Yield the statements of a module, after the packages that contain it."""
        for module in with_packages(name):
            if module in self.slices and module not in self.begun:
                self.begun.add(module)
                yield from self._write(self.slices[module])

    def _write(self, module: Slice) -> Iterator[Statement]:
        gap = "\n\n"
        for each in module.selected:
            code = _HASHED.sub("", each.code)
            if _OF_A_MODULE.search(code) or REFLECTION.search(code):
                raise CannotInlineError(f"{module.name} refers to itself")
            if each.modules(module.package) & self.slices.keys():
                yield from self.inlined(self._imported(each, module))
            elif self._is_new(each, module.name):
                yield replace(each, text=gap + each.text)
                gap = ""

    def _imported(self, each: Statement, importer: Slice) -> str:
        """Return the module that a statement takes a name from.

        Raises:
            CannotInlineError: the statement does more than that.
        """
        if not each.is_import:
            raise CannotInlineError(f"{importer.name} imports as it runs")
        (alias,) = aliases_of(each.node)
        ((home, names),) = each.names_from(importer.package).items()
        inner = [f"{home}.{name}" for name in names if f"{home}.{name}" in self.slices]
        read = frozenset[str]().union(*(s.reads for s in importer.selected)) - {"*"}
        if (inner or not names) and each.binds & read:
            raise CannotInlineError(f"{each.code} is read as a module")
        if alias.asname not in (None, alias.name) and each.binds & read:
            raise CannotInlineError(f"{each.code} is read by another name")
        if not inner and home not in self.slices:
            raise CannotInlineError(f"{each.code}: from a module that is installed")
        return (*inner, home)[0]

    def _is_new(self, each: Statement, module: str) -> bool:
        """Return False for a repeated import, and reject a second binding of a name.

        Raises:
            CannotInlineError: two modules bind the same name, and a statement reads it.
        """
        if each.is_import or _OF_OPERATORS.fullmatch(each.code):
            if each.code in self.shared:
                return False
            self.shared.add(each.code)
            # "import a" and "import a.b" bind the same module.
            is_plain = each.code.startswith("import ") and " as " not in each.code
            module = "import" if is_plain else each.code
        for name in each.binds & self._read:
            binders = self.binders.setdefault(name, set())
            binders.add(module)
            if len(binders) > 1:
                raise CannotInlineError(f"{name} is bound in {sorted(binders)}")
        return True

    @functools.cached_property
    def _read(self) -> frozenset[str]:
        slices = self.slices.values()
        return frozenset().union(*(s.reads for each in slices for s in each.selected))
