"""Statements of a printed program, and their leaves, which an edit can replace.

A statement is Python in the normal form of ``ast.unparse``. Its leaves are the
arguments of the call and their parts, numbered from 0 in text order:

    view = torch.ops.aten.view.default(x, [2, 12])     0: x   1: [2, 12]   2: 2   3: 12
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, cached_property
from typing import Any, Self

from shrinkfx.errors import InvalidEdit

RETURN = "return"
"""The name of the statement that ends a block."""


class LeafKind(StrEnum):
    """The kind of a leaf."""

    VALUE = "value"
    """A name, or an attribute of ``self``: a value that is defined before."""
    NUMBER = "number"
    """A literal: number, truth value, None or string."""
    WORD = "word"
    """A name in torch, such as ``torch.float32``."""
    LIST = "list"
    """A list, tuple or dict; its items are leaves, too."""
    SIZE = "size"
    """An expression such as ``x.shape[0]``; its operands are leaves, too."""


@dataclass(frozen=True)
class Leaf:
    """A leaf of a statement.

    Attributes:
        text: the present text.
        parent: the number of the list that contains it, or None.
        keyword: the keyword that it is passed by, or None.
    """

    number: int
    kind: LeafKind
    text: str
    parent: int | None = None
    keyword: str | None = None

    @property
    def weight(self) -> int:
        """The complexity: all names are equal, and 2 is less than 5."""
        match self.kind:
            case LeafKind.VALUE:
                return 2
            case LeafKind.LIST:
                return 1
        if self.text in _USUAL:
            return 1
        is_integer = self.text.isdecimal()
        length = int(self.text).bit_length() if is_integer else len(self.text)
        return 2 + min(length, 16)


_USUAL = frozenset({"0", "1", "None", "False", "True", "torch.float32"})


@dataclass(frozen=True)
class Statement:
    """One line of a block.

    Attributes:
        name: the value that it defines; for a statement without a value, its callee;
            for the last one, ``RETURN``.
        code: the right side; the whole line of a statement without a value; the
            returned expression of the last one.
        origin: the user's line that it comes from, or ''.
        acts: whether it has side effects, according to the worker.
    """

    name: str
    code: str
    origin: str = ""
    acts: bool = False

    @classmethod
    def parse_line(cls, line: str) -> Self:
        """Parse a line, with its comment.

        Raises:
            ValueError: the line is no such statement.
        """
        tree = ast.parse(line).body
        match tree:
            case [ast.Assign([ast.Name(name)], value)]:
                pass
            case [ast.Return(ast.expr() as value)]:
                name = RETURN
            case [ast.Expr(ast.Call(function) as value)]:
                name = ast.unparse(function)
            case _:
                raise ValueError(f"no statement of a program: {line:.80}")
        rest = line.encode()[tree[0].end_col_offset or 0 :].decode()
        return cls(name, ast.unparse(value), rest.strip().removeprefix("# "))

    @property
    def yields(self) -> bool:
        """Whether it defines a value."""
        return self.name.isidentifier() and self.name != RETURN

    @cached_property
    def callee(self) -> str:
        """The callee, such as ``torch.ops.aten.add.Tensor``; '' if there is none."""
        tree = _tree(self.code)
        return ast.unparse(tree.func) if isinstance(tree, ast.Call) else ""

    @property
    def is_operator(self) -> bool:
        """Whether it is an operator, and no projection or arithmetic on sizes."""
        return self.yields and self.callee.startswith(("torch.ops.", "torch.cond"))

    @property
    def may_have_effects(self) -> bool:
        """Whether it may have side effects.

        The worker reports side effects. In addition, in-place operators end in an
        underscore, assertions have it in their names, and methods of objects may do
        anything.
        """
        parts = self.callee.split(".")
        named = parts[0] == "self" or any(map(_ACTS.search, parts[-2:]))
        return self.acts or named

    @cached_property
    def weight(self) -> int:
        """The complexity of all leaves, plus a constant."""
        return 8 + sum(leaf.weight for leaf in self.leaves)

    @cached_property
    def total(self) -> int:
        """The sum of the integers: 974 weighs as much as 975, but its sum is lower."""
        return sum(int(x.text) for x in self.leaves if x.text.isdecimal())

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(leaf for leaf, _ in _leaves(_tree(self.code)))

    @cached_property
    def reads(self) -> frozenset[str]:
        """The names that it reads; an attribute of ``self`` as ``self.name``."""
        names = set()
        tree = _tree(self.code)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and _is_self(node.value):
                names.add(f"self.{node.attr}")
            elif isinstance(node, ast.Name) and node.id not in _WORDS:
                names.add(node.id)
        return frozenset(names)

    def written(self, texts: Mapping[int, str]) -> Self:
        """Replace leaves by texts; '' removes an argument or an item of a list.

        Raises:
            InvalidEdit: there is no such leaf, the text is no expression, or the leaf
                cannot be removed.
        """
        tree = ast.parse(self.code, mode="eval").body
        leaves = {leaf.number: node for leaf, node in _leaves(tree)}
        if missing := sorted(texts.keys() - leaves.keys()):
            raise InvalidEdit(f"{self.name} has no leaf {missing[0]}")
        wanted = {id(leaves[number]): text for number, text in texts.items()}
        return replace(self, code=ast.unparse(_Writer(wanted).visit(tree)))

    def to_json(self) -> list[str | bool]:
        """Return the fields; ``acts`` only if it is true."""
        return [self.name, self.code, self.origin, *([True] if self.acts else [])]

    def line(self) -> str:
        """Return the line, with its comment."""
        if self.name == RETURN:
            code = f"return {self.code}"
        else:
            code = f"{self.name} = {self.code}" if self.yields else self.code
        return f"{code}  # {self.origin}" if self.origin else code


_ACTS = re.compile(r"[^_]_$|^__i\w+__$|_mutation$|assert")
"""Patterns in names of mutating operators: ``add_``, ``__ior__``; not ``__or__``."""

_WORDS = frozenset({"torch", "self", "operator", "math", "float", "slice"})


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


@cache
def _tree(code: str) -> ast.expr:
    return ast.parse(code, mode="eval").body


def _leaves(tree: ast.expr) -> Iterator[tuple[Leaf, ast.expr]]:
    """Yield the numbered leaves of an expression; the callee is not a leaf."""
    count = 0

    def walk(
        node: ast.expr, parent: int | None = None, keyword: str | None = None
    ) -> Iterator[tuple[Leaf, ast.expr]]:
        nonlocal count
        number, kind = count, _kind(node)
        count += 1
        yield Leaf(number, kind, ast.unparse(node), parent, keyword), node
        if kind in (LeafKind.LIST, LeafKind.SIZE):
            for child in _parts(node):
                yield from walk(child, number)

    if isinstance(tree, ast.Call) and _kind(tree) is LeafKind.SIZE:
        for argument in tree.args:
            yield from walk(argument)
        for word in tree.keywords:
            yield from walk(word.value, keyword=word.arg)
    else:
        yield from walk(tree)


def _parts(node: ast.expr) -> list[ast.expr]:
    """List the parts of an expression, in text order."""
    callee = node.func if isinstance(node, ast.Call) else None
    parts = [part for part in ast.iter_child_nodes(node) if part is not callee]
    nodes = [p.value if isinstance(p, ast.keyword) else p for p in parts]
    operands = [part for part in nodes if isinstance(part, ast.expr)]
    return sorted(operands, key=lambda part: (part.lineno, part.col_offset))


def _kind(node: ast.expr) -> LeafKind:
    match node:
        case ast.Name() | ast.Attribute(ast.Name("self")):
            return LeafKind.VALUE
        case ast.Constant() | ast.UnaryOp(ast.USub(), ast.Constant()):
            return LeafKind.NUMBER
        case ast.Call(ast.Name("float")):
            return LeafKind.NUMBER
        case ast.Attribute() if ast.unparse(node).startswith("torch."):
            return LeafKind.WORD
        case ast.Call(ast.Attribute(ast.Name("torch"), "device")):
            return LeafKind.WORD
        case ast.List() | ast.Tuple() | ast.Dict():
            return LeafKind.LIST
    return LeafKind.SIZE


class _Writer(ast.NodeTransformer):
    """Replace some expressions."""

    def __init__(self, wanted: Mapping[int, str]) -> None:
        self._wanted = wanted

    def visit(self, node: ast.AST) -> Any:  # noqa: ANN401 - as its base has it
        text = self._wanted.get(id(node))
        if text is None:
            return super().visit(node)
        if not text:
            raise InvalidEdit("that cannot be taken away")
        try:
            return ast.parse(text, mode="eval").body
        except SyntaxError as error:
            raise InvalidEdit(f"no expression: {text:.80}") from error

    def visit_List(self, node: ast.List) -> ast.AST:
        node.elts = self._kept(node.elts)
        return self.generic_visit(node)

    def visit_Tuple(self, node: ast.Tuple) -> ast.AST:
        node.elts = self._kept(node.elts)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.args = self._kept(node.args)
        node.keywords = [k for k in node.keywords if self._is_kept(k.value)]
        return self.generic_visit(node)

    def _kept(self, items: list[ast.expr]) -> list[ast.expr]:
        return [item for item in items if self._is_kept(item)]

    def _is_kept(self, node: ast.expr) -> bool:
        return self._wanted.get(id(node)) != ""
