"""The dynamic sizes of a candidate, and how they can still be specialized.

The symbols of a candidate are those in the shapes of its inputs, and those that its
operators read as numbers. A size such as ``2*s0 + 1`` of an input is dynamic as well:
it may become a dim of its own, which does not need ``s0``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shrinkfx.program.edits import Specialisation
from shrinkfx.program.skeleton import FreeSize, Role, Skeleton
from shrinkfx.program.walks import reached


@dataclass(frozen=True)
class DynamicSizes:
    """The dynamic sizes of a candidate, and the specializations so far.

    Attributes:
        known: what the program declares about each size, by its expression in shapes.
        of_inputs: the sizes in the shapes of inputs, each once.
        read: the sizes of the tensors that carry the numbers which operators read.
        specialised: the specializations so far.
    """

    known: Mapping[str, FreeSize]
    of_inputs: tuple[str, ...]
    read: tuple[str, ...]
    specialised: Mapping[str, Specialisation]

    def specialisations(self) -> dict[str, list[Specialisation]]:
        """List the open sizes with their possible specializations, the strictest first.

        A size that differs between the passing and the failing run stays dynamic.
        """
        modes: dict[str, list[Specialisation]] = {}
        for symbol in sorted(self._symbols() - self.specialised.keys()):
            agrees = self.known[symbol].passing == self.known[symbol].failing
            modes[symbol] = [Specialisation.STATIC if agrees else Specialisation.NARROW]
        for size in self._derived():
            known = self.known[size]
            if size not in self.specialised and known.passing != known.failing:
                modes[size] = [Specialisation.PLAIN]
        return modes

    def in_effect(self) -> dict[str, Specialisation]:
        """Return the specializations of sizes that still exist."""
        present = self._symbols() | set(self._derived())
        return {size: how for size, how in self.specialised.items() if size in present}

    def openness(self) -> int:
        """Return the openness of all sizes; each specialization lowers it."""
        sizes = [*self._symbols(), *self._derived()]
        return sum(_OPEN[self.specialised.get(size)] for size in sizes)

    def _symbols(self) -> set[str]:
        """Collect the symbols, including specialized ones."""
        computed = (
            s
            for s in self.of_inputs
            if self.specialised.get(s) is not Specialisation.PLAIN
        )
        sizes = (*computed, *self.read)
        return {symbol for size in sizes for symbol in self.known[size].symbols}

    def _derived(self) -> list[str]:
        """List the sizes of inputs that are computed from open symbols."""
        return [
            size
            for size in self.of_inputs
            if self.known[size].symbols != (size,)
            and any(
                self.specialised.get(symbol) is not Specialisation.STATIC
                for symbol in self.known[size].symbols
            )
        ]


_OPEN: Mapping[Specialisation | None, int] = {
    None: 2,
    Specialisation.NARROW: 1,
    Specialisation.PLAIN: 1,
    Specialisation.STATIC: 0,
}


def find_dynamic_sizes(
    skeleton: Skeleton,
    inputs: Iterable[str],
    operands: Iterable[str],
    specialised: Mapping[str, Specialisation],
) -> DynamicSizes:
    """Find the dynamic sizes in the inputs of a program and in its operands.

    Args:
        operands: the operands of all operators.
        specialised: the specializations so far.
    """
    read = _carriers(skeleton, operands) if skeleton.sizes else ()
    return DynamicSizes(
        skeleton.sizes,
        _sizes_of(skeleton, inputs),
        _sizes_of(skeleton, read),
        specialised,
    )


def _sizes_of(skeleton: Skeleton, values: Iterable[str]) -> tuple[str, ...]:
    """List the dynamic sizes in the shapes of values, each once."""
    nodes = (skeleton.node(name) for name in values)
    shapes = (node.value.shape for node in nodes if node.value is not None)
    sizes = dict.fromkeys(size for shape in shapes for size in shape)
    return tuple(size for size in sizes if size in skeleton.sizes)


def _carriers(skeleton: Skeleton, operands: Iterable[str]) -> list[str]:
    """List the tensors that carry the numbers among operands."""

    def above(name: str) -> tuple[str, ...]:
        node = skeleton.node(name)
        return node.operands if node.role is Role.SIZE else ()

    return [value for name in reached(operands, above) for value in above(name)]
