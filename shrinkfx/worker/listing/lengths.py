"""Lengths, offsets and counts: filled again where eager refuses those that there are.

    segment_reduce(x, lengths=[4, 9, 2])  ->  of an x of 5 rows: [4, 1, 0]

Which numbers an operator takes it does not say. So these are tried, those that are near
to what is there first, and eager answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import torch
from torch import Tensor

from shrinkfx.program.listing.changes import Refill
from shrinkfx.program.listing.listing import Listing, Run
from shrinkfx.program.listing.recipes import Constant, Counted, Fill, Recipe, Saved
from shrinkfx.worker.listing.recipes import exact_recipe, few_numbers
from shrinkfx.worker.listing.slices import Slices
from shrinkfx.worker.listing.stepwise import Place, Trace

_MOST_TOTALS = 6
"""Sizes that lengths are tried to add up to, or offsets to end at."""


def refills(
    listing: Listing,
    trace: Trace,
    saved: Mapping[str, Tensor],
    place: Place,
    totals: Sequence[int],
) -> Iterator[Refill]:
    """List fills for what the whole numbers that a statement reads are made of.

    Args:
        totals: the sizes of its operands.
    """
    block, name = place
    slices = Slices({}, saved, listing, Run.EXAMPLE, trace)
    statement = listing.block(block).statement(name)
    read = [n for n in sorted(statement.reads) if _is_exact(trace, (block, n))]
    names = dict.fromkeys(g for n in read for g in slices.givens((block, n)))
    for given in map(listing.find, names):
        run = None if len(given.recipes) == 1 else Run.EXAMPLE
        recipe = given.recipe()
        for fill in dict.fromkeys(_fills(recipe, saved, totals)):
            if fill != recipe.fill:
                yield Refill(given.name, fill, run)


def _is_exact(trace: Trace, place: Place) -> bool:
    value = trace.values.get(place)
    return value is not None and value.exact


def _fills(
    recipe: Recipe, saved: Mapping[str, Tensor], totals: Sequence[int]
) -> Iterator[Fill]:
    """Have the numbers add up to a total, or be no larger than it."""
    numbers = few_numbers(recipe, saved)
    if numbers is None or not numbers.numel() or numbers.dtype is torch.bool:
        return
    most = torch.iinfo(numbers.dtype).max
    held = dict.fromkeys(total for total in totals if total <= most)
    for total in islice(held, _MOST_TOTALS):
        if total == numbers.numel():
            yield Constant(1)
        near = _adding_up(numbers, total), numbers.clamp(max=total)
        for other in (*near, _spread(numbers, total)):
            fill = exact_recipe(other, "").fill
            if not isinstance(fill, Saved):
                yield fill
    yield from (Constant(0), Constant(1), Counted())


def _adding_up(numbers: Tensor, total: int) -> Tensor:
    """Keep the first ones up to a total; the next one has what is left of it.

    Of what adds up to less the last one has more.
    """
    ends = numbers.clamp(min=0).flatten().cumsum(0).clamp(max=total)
    ends[-1] = total
    lengths = torch.diff(ends, prepend=torch.zeros(1, dtype=ends.dtype))
    return lengths.reshape(numbers.shape).to(numbers.dtype)


def _spread(numbers: Tensor, total: int) -> Tensor:
    """Share a total out, so that nothing is of no length where that can be."""
    count = numbers.numel()
    shares = total // count + (torch.arange(count) < total % count).long()
    return shares.reshape(numbers.shape).to(numbers.dtype)
