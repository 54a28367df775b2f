"""The space of a program's dynamic sizes: symbols, ranges and conditions."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import CodeType

from shrinkfx.program.record import Record

Sizes = tuple[int, ...]
"""A number for each symbol of a ``Space``, in its order."""

UNBOUNDED = 4096
"""The largest size to try if a program declares no upper bound."""


@dataclass(frozen=True)
class Symbol(Record):
    """A dynamic size of a program.

    Attributes:
        high: the largest declared size, or None.
        exported: the size in the example inputs.
    """

    name: str
    low: int
    high: int | None
    exported: int


@dataclass(frozen=True)
class Place(Record):
    """A place of a size: a dim of an input, or an input that is a number.

    Attributes:
        dim: None for a number.
        size: an expression over symbols, such as ``2*s0 + 1``.
    """

    input: str
    dim: int | None
    size: str

    def describe(self, symbol: str) -> str:
        """Describe the place of a symbol, and its expression there."""
        where = self.input if self.dim is None else f"dim {self.dim} of {self.input}"
        return where if self.size == symbol else f"{where} (= {self.size})"


@dataclass(frozen=True)
class Space(Record):
    """All sizes at which a program may run.

    Attributes:
        conditions: expressions that hold for all permitted sizes.
        tensors: the numbers of elements of the program's tensors, as expressions.
    """

    symbols: tuple[Symbol, ...]
    places: tuple[Place, ...] = ()
    conditions: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(symbol.name for symbol in self.symbols)

    def named(self, sizes: Sizes) -> dict[str, int]:
        return dict(zip(self.names, sizes, strict=True))

    @cached_property
    def exported(self) -> Sizes:
        return tuple(symbol.exported for symbol in self.symbols)

    def admits(self, sizes: Sizes) -> bool:
        """Return whether the program declares that it accepts these sizes."""
        inside = all(
            symbol.low <= size <= _high(symbol)
            for symbol, size in zip(self.symbols, sizes, strict=True)
        )
        named = self.named(sizes)
        return inside and all(_holds(c, named) for _, c in self._conditions)

    def elements(self, sizes: Sizes) -> int:
        """Return the number of elements of the largest tensor at these sizes."""
        named = self.named(sizes)
        return max((int(_value(t, named)) for t in self._tensors), default=0)

    @cached_property
    def allowed(self) -> tuple[Sequence[int], ...]:
        """The sizes of each symbol that its own range and conditions permit."""
        return tuple(self._allowed(symbol) for symbol in self.symbols)

    def _allowed(self, symbol: Symbol) -> Sequence[int]:
        sizes = range(symbol.low, _high(symbol) + 1)
        codes = [code for names, code in self._conditions if names == {symbol.name}]
        if not codes or len(sizes) > _LISTED:
            return sizes
        return [s for s in sizes if all(_holds(c, {symbol.name: s}) for c in codes)]

    @cached_property
    def _conditions(self) -> list[tuple[set[str], CodeType]]:
        return [(names_in(text), _compiled(text)) for text in self.conditions]

    @cached_property
    def _tensors(self) -> list[CodeType]:
        return [_compiled(text) for text in self.tensors]

    def describe(self, sizes: Sizes) -> str:
        """Describe sizes, including those computed from symbols."""
        named = self.named(sizes)
        derived = dict.fromkeys(p.size for p in self.places if p.size not in named)
        texts = [f"{name}={size}" for name, size in named.items()]
        texts += [f"{size}={_value(_compiled(size), named)}" for size in derived]
        return ", ".join(texts)


_LISTED = 1 << 20
"""The largest number of sizes of a symbol that are tested one by one."""


def _high(symbol: Symbol) -> int:
    return max(symbol.low, UNBOUNDED) if symbol.high is None else symbol.high


def sizes_near_export(space: Space) -> list[Sizes]:
    """Pick a few permitted sizes other than the exported ones.

    First change all symbols at once, each by a different step, then a single one.
    Tensors become no more than a few times as large.
    """
    steps = [(1, 1), (2, 0), (1, -1)]
    joint = [
        tuple(
            _nearest(allowed, symbol.exported * factor + step * (1 + place))
            for place, (symbol, allowed) in enumerate(
                zip(space.symbols, space.allowed, strict=True)
            )
        )
        for factor, step in steps
    ]
    alone = [
        (*space.exported[:place], size, *space.exported[place + 1 :])
        for place, size in enumerate(joint[0])
    ]
    most = 4 * max(space.elements(space.exported), 1 << 16)
    return [
        sizes
        for sizes in dict.fromkeys([*joint, *alone])
        if sizes != space.exported
        and space.admits(sizes)
        and space.elements(sizes) <= most
    ][:_NEAR]


_NEAR = 3


def _nearest(allowed: Sequence[int], wanted: int) -> int:
    if isinstance(allowed, range):
        return min(max(wanted, allowed[0]), allowed[-1])
    return min(allowed, key=lambda size: abs(size - wanted))


def outside(space: Space) -> list[Sizes]:
    """List sizes just outside the declared ranges, one symbol at a time.

    The values are 0, 1, one below the minimum and one above the maximum; first with the
    other symbols as exported, then with them at their minimum.
    """
    smallest = tuple(symbol.low for symbol in space.symbols)
    outliers: dict[Sizes, None] = {}
    for base, index in itertools.product(
        dict.fromkeys((space.exported, smallest)), range(len(space.symbols))
    ):
        for size in _beyond(space.symbols[index]):
            outliers[(*base[:index], size, *base[index + 1 :])] = None
    return list(outliers)


def _beyond(symbol: Symbol) -> Iterable[int]:
    below = {size for size in (0, 1, symbol.low - 1) if 0 <= size < symbol.low}
    return sorted(below) + ([] if symbol.high is None else [symbol.high + 1])


# --- expressions

_FUNCTIONS = {"min": min, "max": max}
_PARTS = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Call),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Pow),
    *(ast.UnaryOp, ast.USub, ast.Not, ast.BoolOp, ast.And, ast.Or),
    *(ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
)


def _parsed(text: str) -> ast.Expression:
    """Parse arithmetic on names and numbers; refuse anything else.

    The text comes from a file, so it is not trusted.

    Raises:
        ValueError: the text is something else.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"a size of {len(text)} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (RecursionError, MemoryError) as error:
        raise ValueError(f"a size nested without end: {text:.60}") from error
    for node in ast.walk(tree):
        if not isinstance(node, _PARTS):
            raise ValueError(f"{type(node).__name__} in a size: {text}")
        if isinstance(node, ast.Call) and (
            not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS
        ):
            raise ValueError(f"a call in a size: {text}")
        if isinstance(node, ast.Constant) and not isinstance(node.value, int):
            raise ValueError(f"{node.value!r} in a size: {text}")
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            _check_power(node, text)
    return tree


def _check_power(power: ast.BinOp, text: str) -> None:
    """Refuse powers that would take hours to compute, such as a tower of them."""
    exponent = getattr(power.right, "value", None)
    small = isinstance(exponent, int) and exponent <= _MOST_TIMES
    if not small or any(isinstance(node, ast.Pow) for node in ast.walk(power.left)):
        raise ValueError(f"a large power in a size: {text}")


_MOST_CHARACTERS = 10_000
_MOST_TIMES = 16
"""The largest exponent in a size."""


def names_in(text: str) -> set[str]:
    """Return the symbols of an expression."""
    nodes = ast.walk(_parsed(text))
    return {n.id for n in nodes if isinstance(n, ast.Name)} - _FUNCTIONS.keys()


def evaluate(text: str, sizes: Mapping[str, int]) -> int:
    """Evaluate an expression over symbols."""
    return int(_value(_compiled(text), sizes))


def holds(condition: str, sizes: Mapping[str, int]) -> bool:
    """Return whether a condition on symbols holds."""
    return _holds(_compiled(condition), sizes)


def _compiled(text: str) -> CodeType:
    return compile(_parsed(text), "<size>", "eval")


def _value(code: CodeType, sizes: Mapping[str, int]) -> int:
    value: int = eval(code, {"__builtins__": {}, **_FUNCTIONS}, dict(sizes))
    return value


def _holds(code: CodeType, sizes: Mapping[str, int]) -> bool:
    try:
        return bool(_value(code, sizes))
    except ZeroDivisionError:
        return False
