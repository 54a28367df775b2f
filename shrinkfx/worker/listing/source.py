"""Source code of a printed program: exactly its statements and tensor specs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import torch

from shrinkfx.program.listing.listing import Block, Given, Listing, Run
from shrinkfx.program.listing.recipe_text import write_recipe
from shrinkfx.program.listing.recipes import Recipe, Saved
from shrinkfx.protocol.source import Expression, Input, Source, Weight
from shrinkfx.worker.listing.recipes import make
from shrinkfx.worker.printing.graph import write_class
from shrinkfx.worker.printing.tensors import write_tensor

IN_FILE = Expression("", "")
"""The expression for a value that the script reads from its data file by name."""

_DEVICE = re.compile(r"torch\.device\([^()]*\)")


def source_of(
    listing: Listing, saved: Mapping[str, torch.Tensor], device: str = ""
) -> Source:
    """Print a program as source.

    Args:
        saved: saved values by key; the script holds short ones in packed form.
        device: the target device, if it differs from the current one.

    Raises:
        CannotRebuild: no values are saved under a key.
    """
    return _Printer(lambda recipe: _written(recipe, saved, device), device).of(listing)


def statements_of(listing: Listing) -> Source:
    """Print only the statements, and the declarations of dims."""
    return _Printer(lambda recipe: IN_FILE, "").of(listing)


class _Printer:
    def __init__(self, write: Callable[[Recipe], Expression], device: str) -> None:
        self._write = write
        self._device = device

    def of(self, listing: Listing) -> Source:
        main = listing.main
        inputs = [listing.find(name) for name in main.arguments]
        return Source(
            weights=tuple(map(self._weight, listing.weights)),
            inputs=tuple(map(self._input, inputs)),
            branches=tuple(map(self._class, listing.blocks[:-1])),
            members=dict(main.members),
            body=tuple(self._lines(main)),
            dims=tuple(dim.line() for dim in listing.dims),
            dynamic_shapes=_dynamic_shapes(inputs),
        )

    def _weight(self, given: Given) -> Weight:
        return Weight(given.name, given.kind, self._write(given.recipe()))

    def _input(self, given: Given) -> Input:
        texts = {run: self._write(recipe) for run, recipe in given.recipes}
        failing, passing = texts.get(Run.FAILING), texts.get(Run.PASSING)
        return Input(given.name, texts[Run.EXAMPLE], failing, passing)

    def _class(self, block: Block) -> str:
        members = dict(block.members)
        return write_class(block.name, block.arguments, members, self._lines(block))

    def _lines(self, block: Block) -> list[str]:
        lines = [statement.line() for statement in block.statements]
        there = f'torch.device("{self._device}")'
        return [_DEVICE.sub(there, line) if self._device else line for line in lines]


def values_in_file(
    listing: Listing, saved: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return the values that the script reads from its data file, by name."""
    found = {}
    for given in listing.given:
        for run, recipe in given.recipes:
            if _written(recipe, saved, "") == IN_FILE:
                prefix = run if given.is_input else "weight"
                found[f"{prefix}_{given.name}"] = make(recipe, saved)
    return found


def _written(
    recipe: Recipe, saved: Mapping[str, torch.Tensor], device: str
) -> Expression:
    if not isinstance(recipe.fill, Saved):
        text = write_recipe(recipe, device)
        return Expression(text, text)
    text = write_tensor(make(recipe, saved), device or recipe.device).exact
    return Expression(text, text)


def _dynamic_shapes(inputs: Sequence[Given]) -> str:
    specs = [_spec(given) for given in inputs]
    if all(spec == "None" for spec in specs):
        return "None"
    return f"({', '.join(specs)}{',' if len(specs) == 1 else ''})"


def _spec(given: Given) -> str:
    dims = [f"{dim}: {how}" for dim, how in given.open_dims]
    return "{" + ", ".join(dims) + "}" if dims else "None"
