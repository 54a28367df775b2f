"""Removable dims of size 1 of inputs and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.listing.printed_program import InputOrWeight, PrintedProgram
from shrinkfx.program.listing.strides import is_usual
from shrinkfx.program.listing.tensor_specs import Opaque, Saved, TensorSpec


def needless(listing: PrintedProgram) -> list[tuple[str, int]]:
    """List the removable dims, each with its input or weight; one dim must stay."""
    return [
        (tensor.name, dim)
        for tensor in listing.given
        for dim in range(len(tensor.recipe().shape))
        if _can_go(tensor, dim)
    ]


def squeeze_dim(tensor: InputOrWeight, dim: int) -> InputOrWeight:
    """Remove a dim of size 1, in all runs.

    Raises:
        InvalidEdit: the dim is dynamic, has another size, is the only one, or belongs
            to saved values.
    """
    if not _can_go(tensor, dim):
        raise InvalidEdit(f"{tensor.name} needs its dim {dim}")
    for run, recipe in tensor.recipes:
        tensor = tensor.with_recipe(run, _without(recipe, dim))
    dims = ((d - (d > dim), how) for d, how in tensor.open_dims)
    return replace(tensor, open_dims=tuple(dims))


def _can_go(tensor: InputOrWeight, dim: int) -> bool:
    recipes = [recipe for _, recipe in tensor.recipes]
    return dim not in dict(tensor.open_dims) and all(
        not isinstance(recipe.fill, (Opaque, Saved))
        and len(recipe.shape) > 1
        and recipe.shape[dim : dim + 1] == (1,)
        for recipe in recipes
    )


def _without(recipe: TensorSpec, dim: int) -> TensorSpec:
    shape = _cut(recipe.shape, dim)
    if recipe.stride is None:
        return replace(recipe, shape=shape)
    stride = _cut(recipe.stride, dim)
    return replace(
        recipe, shape=shape, stride=None if is_usual(shape, stride) else stride
    )


def _cut(items: Sequence[int], place: int) -> tuple[int, ...]:
    return (*items[:place], *items[place + 1 :])
