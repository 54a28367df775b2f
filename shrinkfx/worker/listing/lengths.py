"""New values for lengths, offsets and counts that eager refuses.

    segment_reduce(x, lengths=[4, 9, 2])  ->  of an x of 5 rows: [4, 1, 0]

A schema does not say which numbers an operator accepts. Therefore a repair tries some,
those close to the current values first, and eager accepts or refuses them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import torch
from torch import Tensor

from shrinkfx.program.listing.changes import Refill
from shrinkfx.program.listing.printed_program import PrintedProgram, Run
from shrinkfx.program.listing.tensor_specs import (
    Constant,
    Counted,
    Initializer,
    Saved,
    TensorSpec,
)
from shrinkfx.worker.listing.integer_values import IntegerValues
from shrinkfx.worker.listing.program_trace import Place, Trace
from shrinkfx.worker.listing.tensor_specs import make_exact_spec, make_few_integers

_MOST_TOTALS = 6
"""Maximal number of sizes to try as the sum of lengths, or the last offset."""


def propose_length_refills(
    listing: PrintedProgram,
    trace: Trace,
    saved: Mapping[str, Tensor],
    place: Place,
    totals: Sequence[int],
) -> Iterator[Refill]:
    """Yield refills for the inputs of the whole numbers that a statement reads.

    Args:
        totals: the sizes of its operands.
    """
    block, name = place
    slices = IntegerValues({}, saved, listing, Run.EXAMPLE, trace)
    statement = listing.block(block).statement(name)
    read = [n for n in sorted(statement.reads) if _is_exact(trace, (block, n))]
    names = dict.fromkeys(g for n in read for g in slices.givens((block, n)))
    for entry in map(listing.find, names):
        run = None if len(entry.recipes) == 1 else Run.EXAMPLE
        recipe = entry.recipe()
        for fill in dict.fromkeys(_fills(recipe, saved, totals)):
            if fill != recipe.fill:
                yield Refill(entry.name, fill, run)


def _is_exact(trace: Trace, place: Place) -> bool:
    value = trace.values.get(place)
    return value is not None and value.exact


def _fills(
    recipe: TensorSpec, saved: Mapping[str, Tensor], totals: Sequence[int]
) -> Iterator[Initializer]:
    """Yield initializers whose numbers add up to a total, or do not exceed it."""
    numbers = make_few_integers(recipe, saved)
    if numbers is None or not numbers.numel() or numbers.dtype is torch.bool:
        return
    limit = torch.iinfo(numbers.dtype).max
    feasible = dict.fromkeys(total for total in totals if total <= limit)
    for total in islice(feasible, _MOST_TOTALS):
        if total == numbers.numel():
            yield Constant(1)
        near = _truncate_to_total(numbers, total), numbers.clamp(max=total)
        for other in (*near, _spread(numbers, total)):
            fill = make_exact_spec(other, "").fill
            if not isinstance(fill, Saved):
                yield fill
    yield from (Constant(0), Constant(1), Counted())


def _truncate_to_total(numbers: Tensor, total: int) -> Tensor:
    """Keep the first lengths up to a total; the next length takes the rest.

    If the lengths add up to less, the last length takes the difference.
    """
    ends = numbers.clamp(min=0).flatten().cumsum(0).clamp(max=total)
    ends[-1] = total
    lengths = torch.diff(ends, prepend=torch.zeros(1, dtype=ends.dtype))
    return lengths.reshape(numbers.shape).to(numbers.dtype)


def _spread(numbers: Tensor, total: int) -> Tensor:
    """Divide a total evenly, so that no length is 0 if possible."""
    count = numbers.numel()
    shares = total // count + (torch.arange(count) < total % count).long()
    return shares.reshape(numbers.shape).to(numbers.dtype)
