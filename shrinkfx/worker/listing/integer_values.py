"""Whole numbers that a program computes from its inputs, evaluated in eager.

The smallest and largest numbers stand for all numbers that are drawn from a seed, and
for the rows that a loop body receives one by one.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from shrinkfx.program.listing.printed_program import (
    MAIN,
    InputOrWeight,
    PrintedProgram,
    Run,
    Statement,
)
from shrinkfx.program.listing.tensor_specs import Opaque, Saved, Seeded, TensorSpec
from shrinkfx.worker.listing.describe import has_integer_dtype, make_from_spec
from shrinkfx.worker.listing.eager_statement import Names, list_reads, scope_of
from shrinkfx.worker.listing.fakes import Place, Trace

_MOST_ELEMENTS = 1 << 20
"""Maximal number of elements of a value that is computed."""


@dataclass(frozen=True)
class IntegerValues:
    """The values of a run, each computed from the values that it reads.

    Values that a loop carries are their initial values.
    """

    computed: dict[Hashable, Tensor | None]
    saved: Mapping[str, Tensor]
    listing: PrintedProgram
    run: Run
    trace: Trace

    def tensor(self, place: Place) -> Tensor | None:
        """Compute a value; None if it depends on more than whole numbers."""
        key = self._key(place)
        if key not in self.computed:
            self.computed[key] = self._compute(place)
        return self.computed[key]

    def givens(self, place: Place) -> tuple[str, ...]:
        """List the inputs and weights that a value is computed from."""
        if entry := self._given(place):
            return (entry.name,)
        if passed := self._handed(place):
            return self.givens(passed)
        found: dict[str, None] = {}
        statement = self._statement(place)
        for read in statement.reads if statement else ():
            found |= dict.fromkeys(self.givens((place[0], read)))
        return tuple(sorted(found))

    def _given(self, place: Place) -> InputOrWeight | None:
        block, name = place
        entries = self.listing.given if block == MAIN else ()
        return next((each for each in entries if each.spelling == name), None)

    def _statement(self, place: Place) -> Statement | None:
        block, name = place
        found = (s for s in self.listing.block(block).statements if s.name == name)
        return next((line for line in found if line.yields), None)

    def _handed(self, place: Place) -> Place | None:
        """Find the operand that the caller passes for an argument of a block."""
        block, name = place
        caller = self.trace.callers.get(block)
        arguments = self.listing.block(block).arguments
        if caller is None or name not in arguments:
            return None
        line = self._statement(caller)
        operands = list_block_operands(line.code) if line else ()
        if len(operands) != len(arguments):
            return None
        operand = operands[arguments.index(name)]
        return (caller[0], operand) if operand else None

    def _key(self, place: Place) -> Hashable:
        if entry := self._given(place):
            return entry.recipe(self.run)
        if passed := self._handed(place):
            value = self.trace.values.get(place)
            shapes = value and tuple(tuple(t.shape) for t in value.tensors())
            return "handed", shapes, self._key(passed)
        statement = self._statement(place)
        if statement is None:
            return place
        reads = list_reads(statement)
        return statement.code, *(self._key((place[0], read)) for read in reads)

    def _compute(self, place: Place) -> Tensor | None:
        value = self.trace.values.get(place)
        if value is None or any(t.numel() > _MOST_ELEMENTS for t in value.tensors()):
            return None
        if entry := self._given(place):
            return _make_extremes(entry.recipe(self.run), self.saved)
        if passed := self._handed(place):
            values = self.tensor(passed)
            return None if values is None else _rowwise(values, value.what)
        statement = self._statement(place)
        if statement is None:
            return None
        read = {}
        for other in list_reads(statement):
            known = self.trace.values.get((place[0], other))
            if known is None:
                return None
            made = self.tensor((place[0], other)) if known.tensors() else known.what
            if made is None:
                return None
            read[other] = made
        return _evaluated(statement.code, read)


@cache
def list_block_operands(code: str) -> tuple[str, ...]:
    """List the names that a call passes to its blocks; '' for operands without one.

    The operands are the items of lists, or if there are none, the arguments after the
    last block.
    """
    call = ast.parse(code, mode="eval").body
    if not isinstance(call, ast.Call):
        return ()
    kinds = ast.Tuple, ast.List
    lists = [each for each in call.args if isinstance(each, kinds)]
    if lists:
        return tuple(_name(item) for each in lists for item in each.elts)
    blocks = [n for n, each in enumerate(call.args) if isinstance(each, ast.Attribute)]
    after = call.args[blocks[-1] + 1 :] if blocks else []
    return tuple(_name(each) for each in after if not isinstance(each, ast.Constant))


def _name(item: ast.expr) -> str:
    has_name = isinstance(item, (ast.Name, ast.Attribute))
    return ast.unparse(item) if has_name else ""


def _rowwise(values: Tensor, received: object) -> Tensor | None:
    """Return a row of the shape that a body receives, with the extremes of all rows."""
    if not isinstance(received, Tensor) or not values.numel():
        return None
    if values.shape == received.shape:
        return values
    places = torch.arange(received.numel()).reshape(received.shape) % 2
    ends = torch.stack([values.min(), values.max()])
    return ends[places].to(values.dtype)


def _evaluated(code: str, read: Names) -> Tensor | None:
    if "cuda" in code:
        return None
    try:
        with torch.no_grad():
            made = eval(code, scope_of(read))
    except Exception:  # noqa: BLE001 - eager says it again where it is run
        return None
    is_integer = isinstance(made, Tensor) and not made.is_floating_point()
    return made if is_integer else None


def _make_extremes(recipe: TensorSpec, saved: Mapping[str, Tensor]) -> Tensor | None:
    """Make whole numbers by spec; for seeded ones only the smallest and largest."""
    if isinstance(recipe.fill, Opaque) or not has_integer_dtype(recipe):
        return None
    match recipe.fill:
        case Seeded("randint", low, high):
            places = torch.arange(math.prod(recipe.shape)) % 2
            drawn = low + places * (max(high, low + 1) - 1 - low)
            return drawn.to(getattr(torch, recipe.dtype)).reshape(recipe.shape)
        case Seeded():
            return None
        case Saved(key) if key not in saved:
            return None
    made: Tensor = make_from_spec(replace(recipe, device="cpu"), saved)
    return made
