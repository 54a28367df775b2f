"""The top-level statements of a file: the names that each binds and reads."""

from __future__ import annotations

import ast
import importlib.util
import re
import symtable
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

Place = tuple[int, int]
"""Line and column of a statement, or of one name that an import binds."""


@dataclass(frozen=True, eq=False)
class Statement:
    """A top-level statement, with the module names that it binds and reads.

    A star import may bind any name: it binds ``*``, which every statement reads. An
    import of several names becomes one statement per name, each with the ``text`` of
    all.

    Attributes:
        origin: the statement that this one is part of, or ``node`` itself.
    """

    node: ast.stmt
    text: str
    binds: frozenset[str]
    reads: frozenset[str]
    origin: ast.stmt

    @property
    def place(self) -> Place:
        return self.node.lineno, self.node.col_offset

    @property
    def is_future(self) -> bool:
        return getattr(self.node, "module", "") == "__future__"

    @property
    def lines(self) -> range:
        return range(self.origin.lineno, (self.origin.end_lineno or 0) + 1)

    @property
    def is_main(self) -> bool:
        if not isinstance(self.node, ast.If) or self.node.orelse:
            return False  # an else branch does run at import
        return ast.unparse(self.node.test) == "__name__ == '__main__'"


def read_source(path: Path) -> str:
    """Read a file in the encoding that it declares.

    Raises:
        OSError, SyntaxError: the file cannot be read or decoded.
    """
    return importlib.util.decode_source(path.read_bytes())


def statements_of(text: str, name: str) -> list[Statement]:
    """Split a file after each top-level statement; comments join the next one."""
    tree = ast.parse(text, name)
    lines = text.split("\n")
    statements: list[Statement] = []
    end = 0
    for node in tree.body:
        start, end = end, node.end_lineno or end
        text = "\n".join(lines[start:end])
        after = lines[end - 1].encode()[node.end_col_offset :].lstrip()
        if node.lineno <= start or after.startswith(b";"):
            text = ast.unparse(node)  # "a = 1; b = 2": both are on one line
        statements += (Statement(n, text, *names_of(n), node) for n in _parts(node))
    return statements


def text_of(statements: Iterable[Statement]) -> str:
    """Return the source of statements; an import lists only its remaining names."""
    texts = []
    for _, parts in groupby(statements, lambda each: id(each.origin)):
        first, *others = parts
        text, node = first.text, first.origin
        names = [alias for each in (first, *others) for alias in aliases_of(each.node)]
        if len(names) < len(aliases_of(node)):
            above = len(text) - len(text.lstrip("\n"))
            text = "\n" * above + ast.unparse(_importing(node, names))
        texts.append(text)
    return "\n".join(texts)


def _parts(node: ast.stmt) -> list[ast.stmt]:
    """Split an import of several names into one import per name."""
    aliases = aliases_of(node)
    if len(aliases) < 2 or getattr(node, "module", "") == "__future__":
        return [node]
    return [ast.copy_location(_importing(node, [each]), each) for each in aliases]


def _importing(node: ast.stmt, names: list[ast.alias]) -> ast.stmt:
    if isinstance(node, ast.ImportFrom):
        return ast.ImportFrom(node.module, names, node.level)
    return ast.Import(names)


def names_of(node: ast.stmt) -> tuple[frozenset[str], frozenset[str]]:
    """Return the module names that a statement binds, and those that it reads.

    The compiler's symbol tables distinguish a local variable from a module variable of
    the same name.
    """
    module = symtable.symtable(ast.unparse(node), "<statement>", "exec")
    names = module.get_symbols()
    binds = {n.get_name() for n in names if n.is_assigned() or n.is_imported()}
    binds |= {"*" for alias in aliases_of(node) if alias.name == "*"}
    fields = [vars(part).items() for part in ast.walk(node)]
    hints = (v for each in fields for k, v in each if k in ("annotation", "returns"))
    # torch evaluates x: "Tensor" when it infers an operator's schema.
    reads = {"*", *re.findall(r"\w+", " ".join(" ".join(strings_of(h)) for h in hints))}
    scopes = [module]
    for scope in scopes:
        scopes += scope.get_children()
        for name in scope.get_symbols():
            # "class C: x = x" reads the module's x, yet the table calls x local.
            outer = name.is_global() or isinstance(scope, symtable.Class)
            if (name.is_referenced() and outer) or name.is_declared_global():
                reads.add(name.get_name())
    augmented = (part for part in at_import(node) if isinstance(part, ast.AugAssign))
    reads |= {ast.unparse(part.target) for part in augmented}
    return frozenset(binds), frozenset(reads)


def strings_of(root: ast.AST | None) -> Iterator[str]:
    """Yield the string constants below a node."""
    for part in ast.walk(root) if root else ():
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def at_import(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements that run when the module is imported."""
    if isinstance(node, ast.stmt):
        yield node
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.expr)):
        for child in ast.iter_child_nodes(node):
            yield from at_import(child)


def imported_by(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield top-level names of imported modules: ``a`` for ``import a.b``."""
    for node in nodes:
        module = getattr(node, "module", None)
        for name in [module] if module else [each.name for each in aliases_of(node)]:
            yield name.partition(".")[0]


def aliases_of(node: ast.AST) -> list[ast.alias]:
    return node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else []
