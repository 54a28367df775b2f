"""Specialized sizes of a candidate: numbers, independent dims, or ranges.

Such a candidate is printed and exported again. Therefore only the declarations of its
inputs change, and the example, whose sizes must fit the declarations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Specialisation
from shrinkfx.worker.sizes.bindings import SizesByName, sizes_of

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
