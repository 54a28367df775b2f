"""Source code of a printed program: exactly its statements and tensor specs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import torch

from shrinkfx.program.listing.printed_program import (
    Block,
    InputOrWeight,
    PrintedProgram,
    Run,
)
from shrinkfx.program.listing.tensor_spec_source import write_tensor_spec
from shrinkfx.program.listing.tensor_specs import Saved, TensorSpec
from shrinkfx.protocol.source import Expression, Input, Source, Weight
from shrinkfx.worker.listing.tensor_specs import make_from_spec
from shrinkfx.worker.printing.graph import write_class
from shrinkfx.worker.printing.tensors import write_tensor

IN_FILE = Expression("", "")
"""The expression for a value that the script reads from its data file by name."""

_DEVICE = re.compile(r"torch\.device\([^()]*\)")


def print_listing(
    listing: PrintedProgram, saved: Mapping[str, torch.Tensor], device: str = ""
) -> Source:
    """Print a program as source.

    Args:
        saved: saved values by key; the script holds short ones in packed form.
        device: the target device, if it differs from the current one.

    Raises:
        CannotRebuild: no values are saved under a key.
    """
    return _Printer(
        lambda recipe: _written(recipe, saved, device), device
    ).print_source(listing)


def statements_of(listing: PrintedProgram) -> Source:
    """Print only the statements, and the declarations of dims."""
    return _Printer(lambda recipe: IN_FILE, "").print_source(listing)


class _Printer:
    def __init__(self, write: Callable[[TensorSpec], Expression], device: str) -> None:
        self._write = write
        self._device = device

    def print_source(self, listing: PrintedProgram) -> Source:
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

    def _weight(self, weight: InputOrWeight) -> Weight:
        return Weight(weight.name, weight.kind, self._write(weight.recipe()))

    def _input(self, entry: InputOrWeight) -> Input:
        texts = {run: self._write(recipe) for run, recipe in entry.recipes}
        failing, passing = texts.get(Run.FAILING), texts.get(Run.PASSING)
        return Input(entry.name, texts[Run.EXAMPLE], failing, passing)

    def _class(self, block: Block) -> str:
        members = dict(block.members)
        return write_class(block.name, block.arguments, members, self._lines(block))

    def _lines(self, block: Block) -> list[str]:
        lines = [statement.line() for statement in block.statements]
        device = f'torch.device("{self._device}")'
        return [_DEVICE.sub(device, line) if self._device else line for line in lines]


def collect_file_values(
    listing: PrintedProgram, saved: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return the values that the script reads from its data file, by name."""
    found = {}
    for entry in listing.given:
        for run, recipe in entry.recipes:
            if _written(recipe, saved, "") == IN_FILE:
                prefix = run if entry.is_input else "weight"
                found[f"{prefix}_{entry.name}"] = make_from_spec(recipe, saved)
    return found


def _written(
    recipe: TensorSpec, saved: Mapping[str, torch.Tensor], device: str
) -> Expression:
    if not isinstance(recipe.fill, Saved):
        text = write_tensor_spec(recipe, device)
        return Expression(text, text)
    text = write_tensor(make_from_spec(recipe, saved), device or recipe.device).exact
    return Expression(text, text)


def _dynamic_shapes(inputs: Sequence[InputOrWeight]) -> str:
    specs = [_spec(entry) for entry in inputs]
    if all(spec == "None" for spec in specs):
        return "None"
    return f"({', '.join(specs)}{',' if len(specs) == 1 else ''})"


def _spec(entry: InputOrWeight) -> str:
    dims = [f"{dim}: {expr}" for dim, expr in entry.open_dims]
    return "{" + ", ".join(dims) + "}" if dims else "None"
