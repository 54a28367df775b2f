"""Symbolic sizes of a candidate: after cuts, and specialized."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from shrinkfx.errors import ShrinkfxError
from shrinkfx.program.apply import find_retyped_values
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Specialisation
from shrinkfx.program.skeleton import Role
from shrinkfx.worker.eager.intermediates import EagerValues, Scalar
from shrinkfx.worker.private_api.graph_api import FakeTensor
from shrinkfx.worker.sizes.bindings import SizesByName, determines_symbol, sizes_of

# A symbol such as ``s0`` is bound by an input that has it as a dim. If a candidate
# cuts the last such input, it keeps a program input that has the symbol. A size that
# no value determines any more becomes the number that it was.


class CannotRebuild(ShrinkfxError):
    """The candidate is not a valid program; the message is the reason."""


class Symbols:
    """The symbols of one candidate.

    Attributes:
        literals: numbers for values that nothing determines any more.
        stale: the metadata of the remaining nodes does not describe the new program.

    Args:
        settled: the specialized sizes; static symbols among them are numbers.
    """

    def __init__(
        self,
        candidate: Candidate,
        nodes: Mapping[str, fx.Node],
        values: EagerValues,
        settled: SpecializedSizes,
    ) -> None:
        self._candidate = candidate
        self._nodes = nodes
        self._values = values
        self._binders: dict[sympy.Expr, tuple[fx.Node, int]] = {}
        self.literals: dict[str, Scalar] = {}
        self._settled = settled
        self.stale = bool(candidate.sizes or find_retyped_values(candidate))

    def bind(self, node: fx.Node) -> None:
        """Register an input of the new graph, so that sizes can be read from it."""
        for dim, size in enumerate(_dims(node.meta["val"])):
            if isinstance(size, sympy.Expr):
                self._binders.setdefault(size, (node, dim))

    def take_literal(self, name: str) -> bool:
        """Replace a number that was read from data by its value.

        Returns:
            Whether the value is known.
        """
        if self._candidate.skeleton.node(name).value is not None:
            return False
        number = self._values.scalar(name)
        if number is not None:
            self.literals[name] = number
            self.stale = True
        return number is not None

    def carriers(self, inputs: Iterable[str]) -> list[str]:
        """Choose program inputs that bind the symbols that nothing else binds.

        Re-export replaces a symbol that is not itself a size of any input by a new
        symbol; a size that is computed from it becomes a literal.
        """
        bound: set[Any] = set(self._settled.numbers)
        needed: set[Any] = set()
        strides: set[Any] = set()
        for name in inputs:
            value = self._nodes[name].meta.get("val")
            if not isinstance(value, torch.Tensor):
                raise CannotRebuild(f"{name} is a {type(value).__name__}, not a tensor")
            bound |= set(_plain_dims(value)) - free_unbacked_symbols(value)
            needed |= symbols_in(self._settled.list_free_sizes(value))
            if not self._candidate.sizes:  # else they are those of the example
                strides |= symbols_in(value.stride())
        for name in self._candidate.operators:
            for size in self._sizes_of(name):
                symbols = symbols_in([self._nodes[size].meta["val"]])
                if self.can_be_read(size):
                    continue
                if all(s in bound or self._find_carrier(s) for s in symbols):
                    needed |= symbols
                elif not self.take_literal(size):
                    raise CannotRebuild(f"nothing determines the size {size}")
        carriers: list[str] = []
        for symbol in sorted((needed | strides) - bound, key=str):
            carrier = self._find_carrier(symbol)
            self.stale |= carrier is None and symbol in needed
            if carrier and carrier not in [*carriers, *inputs]:
                carriers.append(carrier)
        return carriers

    def is_computed(self, name: str) -> bool:
        """Return whether an input has a size from which its symbol cannot be computed.

        A call checks such a size only if an earlier input determines the symbol.
        """
        value = self._nodes[name].meta["val"]
        sizes = _dims(value) if isinstance(value, torch.Tensor) else []
        return any(
            not any(determines_symbol(size, symbol) for symbol in size.free_symbols)
            for size in sizes
            if isinstance(size, sympy.Expr)
        )

    def _find_carrier(self, symbol: sympy.Symbol) -> str | None:
        """Find the program input that has the symbol as a dim, or is the symbol.

        The last choice is an input with a size such as ``2*s0 + 1``, which determines
        ``s0``.
        """
        placeholders = [n for n in self._nodes.values() if n.op == "placeholder"]
        values = {n.name: n.meta["val"] for n in placeholders}
        inputs = self._candidate.skeleton.inputs
        for name in inputs:
            if symbol in _plain_dims(values[name]):
                return name
        for name, value in values.items():
            if isinstance(value, torch.SymInt) and value.node.expr == symbol:
                return name
        for name in inputs:
            if any(determines_symbol(size, symbol) for size in _dims(values[name])):
                return name
        return None

    def make_carrier(self, size: torch.SymInt) -> torch.Tensor:
        """Return a fake tensor that has an input number as its dim."""
        values = (n.meta.get("val") for n in self._nodes.values())
        mode = next(v.fake_mode for v in values if isinstance(v, FakeTensor))
        with mode:
            return torch.empty(size, dtype=torch.bool)

    def _sizes_of(self, name: str) -> list[str]:
        skeleton = self._candidate.skeleton
        return [
            v
            for v in self._candidate.operands(name)
            if skeleton.node(v).role is Role.SIZE
        ]

    def can_be_read(self, size: str) -> bool:
        """Return whether a size can be read from remaining values and inputs."""
        skeleton = self._candidate.skeleton
        operands = skeleton.node(size).operands
        for name in operands:
            if skeleton.node(name).role is Role.SIZE:
                if not self.can_be_read(name):
                    return False
            elif (
                skeleton.producer(name) not in self._candidate.keep
                and name not in self._candidate.feeds
                and name not in self.literals
            ):
                return False
        return bool(operands)

    def is_arithmetic(self, size: str) -> bool:
        """Return whether a size is computed from sizes, and not read from a value."""
        skeleton = self._candidate.skeleton
        operands = skeleton.node(size).operands
        return bool(operands) and all(
            skeleton.node(name).role is Role.SIZE for name in operands
        )

    def compute(self, graph: fx.Graph, expression: sympy.Expr) -> fx.Node | int:
        """Write the operators that compute a size from the dims of inputs."""
        expression = expression.xreplace(self._settled.numbers)
        if expression.is_Integer:
            return int(expression)
        if expression in self._binders:
            node, dim = self._binders[expression]
            size = torch.ops.aten.sym_size.int
            return _call(graph, size, node, dim, value=node.meta["val"].shape[dim])
        if isinstance(expression, sympy.Symbol):
            return self._solve(graph, expression)
        function = _ARITHMETIC.get(type(expression).__name__)
        if function is None:
            raise CannotRebuild(f"a size of the form {expression} cannot be computed")
        result, *rest = [self.compute(graph, part) for part in expression.args]
        for part in rest:
            value = function(_val(result), _val(part))
            result = _call(graph, function, result, part, value=value)
        return result

    def _solve(self, graph: fx.Graph, symbol: sympy.Symbol) -> fx.Node:
        """Compute a symbol from a size such as ``2*s0 + 1``."""
        for size in self._binders:
            if determines_symbol(size, symbol):
                factor, offset = int(size.diff(symbol)), int(size.subs(symbol, 0))
                total = self.compute(graph, size)
                value = _val(total) - offset
                part = _call(graph, operator.sub, total, offset, value=value)
                value = value // factor
                return _call(graph, operator.floordiv, part, factor, value=value)
        raise CannotRebuild(f"no input has the size {symbol}")


def _call(graph: fx.Graph, function: Any, *args: Any, value: Any) -> fx.Node:
    node = graph.call_function(function, args)
    node.meta["val"] = value
    return node


_ARITHMETIC = {
    "Add": operator.add,
    "Mul": operator.mul,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "Pow": operator.pow,
    "PowByNatural": operator.pow,
    "Max": torch.sym_max,
    "Min": torch.sym_min,
}


def _val(part: fx.Node | int) -> Any:
    return part.meta["val"] if isinstance(part, fx.Node) else part


def _dims(value: torch.Tensor) -> list[Any]:
    return [s.node.expr if isinstance(s, torch.SymInt) else s for s in value.shape]


def _plain_dims(value: torch.Tensor) -> list[sympy.Symbol]:
    return [s for s in _dims(value) if isinstance(s, sympy.Symbol)]


def symbols_in(sizes: Iterable[Any]) -> set[Any]:
    """Return the symbols in sizes."""
    found: set[Any] = set()
    for size in sizes:
        if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            found |= size.node.expr.free_symbols
    return found


# Specialized sizes of a candidate: numbers, independent dims, or ranges.
#
# Such a candidate is printed and exported again. Therefore only the declarations of
# its inputs change, and the example, whose sizes must fit the declarations.

_LEAST = 2
"""Smallest size of a dynamic dim in the example; export takes 0 and 1 as static."""


@dataclass(frozen=True)
class SpecializedSizes:
    """The specialized sizes of a candidate.

    Attributes:
        numbers: the values of static symbols.
        ranges: the smallest and largest value of each size with a range of its own, by
            its expression in the program.
    """

    numbers: Mapping[Any, sympy.Integer]
    ranges: Mapping[str, tuple[int, int]]
    _example: Mapping[Any, sympy.Integer]
    _chosen: Mapping[str, int]

    @classmethod
    def from_candidate(
        cls, candidate: Candidate, example: SizesByName
    ) -> SpecializedSizes:
        """Collect the specialized sizes of a candidate.

        Args:
            example: the sizes in the program's own example.
        """
        numbers, ranges, chosen = {}, {}, {}
        known = candidate.skeleton.sizes
        for symbol in {s for size in example for s in size.free_symbols}:
            if candidate.sizes.get(str(symbol)) is Specialisation.STATIC:
                numbers[symbol] = sympy.Integer(known[str(symbol)].failing)
        for size, how in candidate.sizes.items():
            if how is not Specialisation.STATIC:
                passing, failing = known[size].passing, known[size].failing
                high = max(passing, failing, _LEAST)
                ranges[size] = min(passing, failing), high
                # The size of the passing run makes the shortest example.
                chosen[size] = passing if passing >= _LEAST else high
        symbols = {s: n for s, n in example.items() if isinstance(s, sympy.Symbol)}
        narrow = {s: sympy.Integer(chosen[str(s)]) for s in symbols if str(s) in chosen}
        return cls(numbers, ranges, {**symbols, **narrow, **numbers}, chosen)

    @classmethod
    def make_empty(cls) -> SpecializedSizes:
        """Return an object for a candidate without specialized sizes."""
        return cls({}, {}, {}, {})

    def list_free_sizes(self, value: torch.Tensor) -> list[torch.SymInt]:
        """List the free sizes of an input that have no range of their own."""
        return [size for size in sizes_of(value) if str(size) not in self.ranges]

    def is_static(self, size: int | torch.SymInt) -> bool:
        """Return whether a size is a number now."""
        if isinstance(size, int):
            return True
        return bool(size.node.expr.xreplace(self.numbers).is_number)

    def example(
        self, fake: torch.Tensor, values: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """Choose an example value: one of ``values`` if its shape fits, else zeros.

        Args:
            values: the values of the input in other runs.
        """
        pairs = zip(fake.shape, values[-1].shape, strict=True)
        shape = [self._number(size, actual) for size, actual in pairs]
        fitting = (value for value in values if list(value.shape) == shape)
        found = next(fitting, None)
        return _zeros(shape, values[-1]) if found is None else found

    def _number(self, size: int | torch.SymInt, actual: int) -> int:
        if isinstance(size, int):
            return size
        if str(size) in self._chosen:
            return self._chosen[str(size)]
        number = size.node.expr.xreplace(self._example)
        return int(number) if number.is_number else actual


def _zeros(shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """Make zeros, with the dims in the memory order of another tensor."""
    strides = like.stride()
    stride, step = [0] * len(shape), 1
    outer_first = sorted(range(len(shape)), key=lambda dim: -strides[dim])
    for dim in reversed(outer_first):
        stride[dim] = step
        step *= max(1, shape[dim])
    made = torch.empty_strided(
        tuple(shape), tuple(stride), dtype=like.dtype, device=like.device
    )
    return made.zero_()
