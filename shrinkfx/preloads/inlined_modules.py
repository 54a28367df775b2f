"""Inline modules at the statements that import them, so that a repro is one text.

    from .scale import SCALE            SCALE = 2.0
    def mix(x): return x * SCALE        def mix(x): return x * SCALE

The text executes the same statements in the same order, so a repro needs no folders to
import from. All modules share one namespace. Therefore no two modules may bind a name
that is read, and no code may read a module as a value or look for files next to it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from shrinkfx.preloads.definitions import REFLECTION
from shrinkfx.preloads.layout import home_of, imports_of, with_packages
from shrinkfx.preloads.statements import Statement, aliases_of, statements_of, text_of

_OF_A_MODULE = re.compile(r"__(file|name|package|path|spec|loader|getattr)__")

_HASHED = re.compile(r"get_hash_for_files\(\s*[(\[]\s*__file__\s*,?\s*[)\]]\s*\)")
"""How a pass hashes its own source; the inlined file contains that source too."""

_OF_OPERATORS = re.compile(r"\w+ = torch\.ops(\.\w+)+")
"""An assignment that has the same value in every module, as an import has."""


class CannotInlineError(Exception):
    """The modules must remain modules; the caller then writes them as files."""


def inline_modules(
    texts: Mapping[str, tuple[str, str]], first: Iterable[str]
) -> dict[str, str]:
    """Return the text of each module of ``first``, with its imports inlined.

    Args:
        texts: text and package of each module, by its name.
        first: names of the modules to write, in order.

    Raises:
        CannotJoin: the inlined text would not do what the modules do.
    """
    joiner = _ModuleInliner(texts)
    found = {name: joiner.joined(name) for name in first}
    if unused := {name for name, (text, _) in texts.items() if text} - joiner.begun:
        raise CannotInlineError(f"nothing imports {', '.join(sorted(unused))}")
    return found


@dataclass
class _ModuleInliner:
    """Records which modules and imports the text already contains.

    Attributes:
        texts: text and package of each module, by its name.
        begun: names of the modules that are written or being written.
        imports: imports of other modules, and aliases of operators, as code.
        binders: the modules that bind a name, by that name.
    """

    texts: Mapping[str, tuple[str, str]]
    begun: set[str] = field(default_factory=set)
    imports: set[str] = field(default_factory=set)
    binders: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        cut_up = {n: statements_of(text, n) for n, (text, _) in self.texts.items()}
        self._statements = cut_up
        self._reads = {
            name: frozenset[str]().union(*(each.reads for each in statements)) - {"*"}
            for name, statements in cut_up.items()
        }
        self._read = frozenset[str]().union(*self._reads.values())

    def joined(self, name: str) -> str:
        """Return the text of a module, preceded by the packages that contain it."""
        pieces = [
            piece.strip("\n")
            for module in with_packages(name)
            if module in self.texts.keys() - self.begun
            for piece in self._write(module)
        ]
        text = "\n\n\n".join(filter(None, pieces))
        return text + "\n" * bool(text)

    def _write(self, name: str) -> Iterator[str]:
        self.begun.add(name)
        text, package = self.texts[name]
        if _OF_A_MODULE.search(_HASHED.sub("", text)) or REFLECTION.search(text):
            raise CannotInlineError(f"{name} looks for files in its own folder")
        plain: list[Statement] = []
        for each in self._statements[name]:
            if modules := self._modules_of(each, name, package):
                yield text_of(plain)
                plain = []
                for module in modules:
                    if module not in self.begun:
                        yield from self._write(module)
                if self._is_renamed(each, package) and self._is_new(each, name):
                    (alias,) = aliases_of(each.node)
                    yield f"{alias.asname} = {alias.name}"
            elif self._is_new(each, name):
                plain.append(each)
        yield text_of(plain)

    def _modules_of(self, each: Statement, importer: str, package: str) -> list[str]:
        """List the modules that a statement imports, in execution order."""
        code = ast.unparse(each.node)
        found = imports_of(code, package) & self.texts.keys()
        if not found:
            return []
        if not isinstance(each.node, (ast.Import, ast.ImportFrom)):
            raise CannotInlineError(f"{code.partition(chr(10))[0]} imports as it runs")
        (alias,) = aliases_of(each.node)
        name = alias.name
        if isinstance(each.node, ast.ImportFrom):
            home = home_of(each.node, package)
            name = f"{home}.{alias.name}"
            if name not in self.texts and home not in self.texts:
                raise CannotInlineError(f"{code}: from a module that is installed")
        if name in self.texts and each.binds & self._reads[importer]:
            raise CannotInlineError(f"{code} is read as a module")
        return [m for m in with_packages(name) if m in self.texts]

    def _is_renamed(self, each: Statement, package: str) -> bool:
        """Return whether a statement imports a value of a module under another name."""
        node, (alias,) = each.node, aliases_of(each.node)
        if not isinstance(node, ast.ImportFrom) or not alias.asname:
            return False
        is_module = f"{home_of(node, package)}.{alias.name}" in self.texts
        return alias.asname != alias.name and not is_module

    def _is_new(self, each: Statement, module: str) -> bool:
        """Return False for a repeated import, and reject a second binding of a name.

        Raises:
            CannotJoin: two modules bind the same name, and a statement reads it.
        """
        code = ast.unparse(each.node)
        if aliases_of(each.node) or _OF_OPERATORS.fullmatch(code):
            if code in self.imports:
                return False
            self.imports.add(code)
            module = _bound_by(each.node) or code
        for name in each.binds:
            binders = self.binders.setdefault(name, set())
            binders.add(module)
            if len(binders) > 1 and name in self._read:
                raise CannotInlineError(
                    f"{name} is bound in {' and '.join(sorted(binders))}"
                )
        return True


def _bound_by(node: ast.stmt) -> str:
    """Return ``import a`` for ``import a.b``, because both bind ``a``; otherwise ''."""
    match node:
        case ast.Import(names=[ast.alias(name=name, asname=None)]):
            return f"import {name.partition('.')[0]}"
    return ""
