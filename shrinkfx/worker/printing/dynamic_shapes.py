"""Declarations of dynamic dims in printed programs, as ``torch.export.Dim``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

import sympy
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from shrinkfx.worker.graph.specialise import SpecializedSizes
from shrinkfx.worker.private_api.graph_api import ValueRanges, bound_sympy
from shrinkfx.worker.sizes.bindings import determines_symbol

_AUTO, _DYNAMIC = "torch.export.Dim.AUTO", "torch.export.Dim.DYNAMIC"
_COMPUTED = "size"
"""Prefix of the names of computed sizes."""


def dynamic_shapes(
    exported: ExportedProgram,
    settled: SpecializedSizes | None,
    loose: Set[str] = frozenset(),
) -> tuple[list[str], str]:
    """Print the declarations of dynamic dims.

    A dim that is a symbol is declared by name. A dim that is linear in a symbol is
    declared as an expression of the symbol, even if no other dim has it. Any other dim,
    such as ``(s0 - 1)//2``, has a name of its own, because a reduced program need not
    compute it from ``s0``.

    Args:
        loose: sizes that are not declared by name; only their ranges are declared.

    Returns:
        Statements that declare dims, and an expression for ``dynamic_shapes``.
    """
    dims = _Dims(exported, settled, loose)
    specs = [dims.print_input(node) for node in _user_inputs(exported)]
    if all(spec == "None" for spec in specs):
        return [], "None"
    comma = "," if len(specs) == 1 else ""
    return list(dims.statements.values()), f"({', '.join(specs)}{comma})"


def choose_names_to_drop(refused: Set[str]) -> Set[str]:
    """Choose the names to give up among those that export refuses.

    Names of computed sizes go first, because another dim contradicts them, and they say
    least.
    """
    computed = {n for n in refused if re.fullmatch(rf"{_COMPUTED}\d+", n)}
    return computed or refused


def user_input_names(exported: ExportedProgram) -> list[str]:
    """List the names of a program's inputs, including constant inputs."""
    specs = exported.graph_signature.input_specs
    return [spec.arg.name for spec in specs if spec.kind is InputKind.USER_INPUT]


def _user_inputs(exported: ExportedProgram) -> Iterator[fx.Node]:
    names = set(user_input_names(exported))
    for node in exported.graph.nodes:
        if node.op == "placeholder" and node.name in names:
            yield node


class _Dims:
    """The dims that are declared so far.

    Attributes:
        statements: the declarations, by the size that they declare.
    """

    def __init__(
        self,
        exported: ExportedProgram,
        settled: SpecializedSizes | None,
        loose: Set[str],
    ) -> None:
        self._ranges = exported.range_constraints
        self._loose = loose
        self._settled = settled or SpecializedSizes.make_empty()
        self._names: dict[str, str] = {}
        self.statements: dict[str, str] = {}

    def print_input(self, node: fx.Node) -> str:
        """Print the dynamic dims of an input, or the declaration of a number."""
        if isinstance(node.meta.get("val"), torch.SymInt):
            return _DYNAMIC
        sizes = enumerate(getattr(node.meta.get("val"), "shape", ()))
        dims = [f"{d}: {self._dim(s)}" for d, s in sizes if not self._is_static(s)]
        return "{" + ", ".join(dims) + "}" if dims else "None"

    def _is_static(self, size: int | torch.SymInt) -> bool:
        return not isinstance(size, torch.SymInt) or self._settled.is_static(size)

    def _dim(self, size: torch.SymInt) -> str:
        if str(size) in self._settled.ranges:
            return self._named(str(size), *self._settled.ranges[str(size)])
        expression = size.node.expr
        if free_unbacked_symbols(size):
            return _AUTO
        if isinstance(expression, sympy.Symbol):
            return self._symbol(expression)
        for symbol in expression.free_symbols:
            if str(symbol) in self._loose:
                continue  # nothing can be computed from a dim without a name
            if determines_symbol(expression, symbol) and expression.diff(symbol) > 0:
                return str(expression).replace(str(symbol), self._symbol(symbol))
        return self._print_computed(expression)

    def _print_computed(self, expression: sympy.Expr) -> str:
        """Print a computed size under a name of its own."""
        if self._name(str(expression)) in self._loose:
            return _AUTO
        span = bound_sympy(expression, self._ranges)
        return self._within(str(expression), span)

    def _symbol(self, symbol: sympy.Symbol) -> str:
        if str(symbol) in self._settled.ranges:
            return self._named(str(symbol), *self._settled.ranges[str(symbol)])
        allowed = self._ranges.get(symbol)
        if allowed is None:
            return self._named(str(symbol), 0, None)
        return self._within(str(symbol), allowed)

    def _within(self, size: str, allowed: ValueRanges[sympy.Expr]) -> str:
        finite = getattr(allowed.upper, "is_Integer", False)
        low = int(allowed.lower) if allowed.lower > 0 else 0
        return self._named(size, low, int(allowed.upper) if finite else None)

    def _name(self, size: str) -> str:
        """Choose the name of a size; the choice ignores which sizes are loose."""
        if size.isidentifier():
            return size
        return self._names.setdefault(size, f"{_COMPUTED}{len(self._names)}")

    def _named(self, size: str, low: int, high: int | None) -> str:
        """Print a dim, and record its declaration; a loose dim has none."""
        span = [f"min={low}"] if low > 0 else []
        span += [] if high is None else [f"max={high}"]
        if size in self._loose:
            return f"{_AUTO}({', '.join(span)})" if span else _AUTO
        name = self._name(size)
        if size not in self.statements:
            arguments = ", ".join([f'"{name}"', *span])
            self.statements[size] = f"{name} = torch.export.Dim({arguments})"
        return self.statements[size].partition(" ")[0]
