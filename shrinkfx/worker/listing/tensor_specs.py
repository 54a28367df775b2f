"""Tensor specs of inputs and weights, and the tensors that specs make."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram

from shrinkfx.program.listing.simple_numbers import Number
from shrinkfx.program.listing.tensor_spec_source import write_tensor_spec
from shrinkfx.program.listing.tensor_specs import (
    LISTED,
    Constant,
    Counted,
    Initializer,
    Opaque,
    Part,
    Saved,
    Seeded,
    Sparse,
    TensorSpec,
)
from shrinkfx.worker.eager.intermediates import restride, span
from shrinkfx.worker.graph.symbols import CannotRebuild
from shrinkfx.worker.loading.script_objects import script_object
from shrinkfx.worker.printing.module import attribute_of
from shrinkfx.worker.printing.tensors import ends, memory_of, unpack

_TINY = 8
"""Up to this many elements, a list is as short as a seeded initializer."""

_SAMPLE = 4096
"""Number of elements that show whether most elements of a tensor are equal."""

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer dtypes by item size, to compare elements bit for bit."""


def make_exact_spec(value: Any, key: str) -> TensorSpec:
    """Describe a tensor, or another argument of a program, by its exact values.

    Args:
        key: the key of the values, if no shorter initializer makes them.
    """
    if not isinstance(value, torch.Tensor):
        return TensorSpec((), "", Opaque(repr(value)))
    value = value.detach()
    known = TensorSpec(
        shape=tuple(value.shape),
        dtype=_dtype(value),
        fill=Saved(key),
        stride=None if value.is_contiguous() else tuple(value.stride()),
        device=str(value.device),
    )
    for fill in _plain_fills(value):
        recipe = TensorSpec(known.shape, known.dtype, fill, known.stride, known.device)
        try:
            made = make_from_spec(recipe, {})
        except (RuntimeError, OverflowError, TypeError):  # not for this dtype
            continue
        if made.dtype == value.dtype and _same_values(made, value):
            return recipe
    return known


def _same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Compare bit for bit, except that all NaNs are equal."""
    return one.shape == other.shape and torch.equal(_bits(one), _bits(other))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    found = memory_of(tensor).reshape(-1, tensor.element_size())
    if tensor.is_floating_point():
        known = tensor.double() if tensor.element_size() == 1 else tensor
        found[known.flatten().isnan()] = 0xFF  # float8 has few operators
    return found


def saved_weights(exported: ExportedProgram) -> dict[str, torch.Tensor]:
    """Return the weights that a program holds, by the keys of tensor specs."""
    stores = {**exported.constants, **exported.state_dict}
    return {
        key_of_weight(attribute_of(target)): value.detach()
        for target, value in stores.items()
        if isinstance(value, torch.Tensor)
    }


def key_of_weight(attribute: str) -> str:
    """Return the key of a weight in tensor specs."""
    return f"weight_{attribute}"


def choose_seeded_initializer(value: Any, recipe: TensorSpec) -> Seeded | None:
    """Return a seeded initializer of the same range; None if a list is as short."""
    long = isinstance(recipe.fill, (Sparse, Saved)) and recipe.span > _TINY
    if not long or not isinstance(value, torch.Tensor):
        return None
    value = value.detach().cpu()
    if value.dtype == torch.bool:
        return Seeded("randint", 0, 2)
    if value.is_floating_point():
        positive = bool((value.to(torch.float32) >= 0).all())
        return Seeded("rand" if positive else "randn")
    if value.is_complex():
        return Seeded("randn")
    low, high = ends(value)
    return Seeded("randint", low, high + 1)


def make_from_spec(
    recipe: TensorSpec, saved: Mapping[str, torch.Tensor], device: str = ""
) -> Any:
    """Make the tensor of a spec, as its source text does.

    Args:
        device: the target device, if it differs from the spec's.

    Raises:
        CannotRebuild: the values are not saved, or fewer are saved.
    """
    if isinstance(recipe.fill, Saved):
        if recipe.fill.key not in saved:
            raise CannotRebuild(f"no values are saved as {recipe.fill.key}")
        value = saved[recipe.fill.key]
        if isinstance(recipe.fill, Part):
            value = _fill_around_parts(recipe.fill, value)
        return _cut(recipe, value).to(device or recipe.device)
    scope = {"torch": torch, "unpack": unpack, "script_object": script_object}
    return eval(write_tensor_spec(recipe, device), scope)


def has_integer_dtype(recipe: TensorSpec) -> bool:
    """Return whether a spec has an integer or bool dtype."""
    dtype = getattr(torch, recipe.dtype)
    return not dtype.is_floating_point and not dtype.is_complex


def make_few_integers(
    recipe: TensorSpec, saved: Mapping[str, torch.Tensor]
) -> torch.Tensor | None:
    """Make a tensor of whole numbers, if they are few, known, and not seeded.

    Returns:
        None for other specs, and for more than ``_SAMPLE`` elements.
    """
    if isinstance(recipe.fill, (Opaque, Seeded)) or recipe.device != "cpu":
        return None
    if not has_integer_dtype(recipe) or recipe.span > _SAMPLE:
        return None
    try:
        made: torch.Tensor = make_from_spec(recipe, saved)
    except (CannotRebuild, RuntimeError, OverflowError, TypeError):
        return None  # reported where the tensor is made
    return made


def list_saved_part(
    recipe: TensorSpec, saved: Mapping[str, torch.Tensor]
) -> TensorSpec:
    """Write out the values of a partly saved tensor, if they are few."""
    if not isinstance(recipe.fill, Part) or recipe.fill.key not in saved:
        return recipe
    try:
        exact = make_exact_spec(make_from_spec(recipe, saved, "cpu"), recipe.fill.key)
    except (CannotRebuild, RuntimeError):  # no such part
        return recipe
    known = not isinstance(exact.fill, Saved) and exact.stride == recipe.stride
    return replace(recipe, fill=exact.fill) if known else recipe


def _fill_around_parts(fill: Part, value: torch.Tensor) -> torch.Tensor:
    """Replace all values outside of the saved parts by the base number.

    Raises:
        CannotRebuild: fewer values are saved.
    """
    flat = _cut(TensorSpec(fill.shape, _dtype(value), fill), value).flatten()
    filled = torch.full_like(flat, fill.base)
    for start, stop in fill.parts:
        filled[start:stop] = flat[start:stop]
    return filled.reshape(fill.shape)


def _dtype(value: torch.Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _cut(recipe: TensorSpec, value: torch.Tensor) -> torch.Tensor:
    """Take the first elements of each dim, in the layout of the spec.

    A tensor that already fits the spec is not copied, because it may be gigabytes.

    Raises:
        CannotRebuild: fewer values are saved.
    """
    fits = len(recipe.shape) == value.dim()
    cut = value[tuple(map(slice, recipe.shape))] if fits else value
    if cut.shape != recipe.shape:
        known = f"{tuple(value.shape)} are saved and not {recipe.shape}"
        raise CannotRebuild(f"the values of {known}")
    dtype: torch.dtype = getattr(torch, recipe.dtype)
    stride = None if value.is_contiguous() else value.stride()
    if (cut.shape, dtype, recipe.stride) == (value.shape, value.dtype, stride):
        return value.detach()
    cut = cut.detach().to(dtype)
    if recipe.stride is None:
        return cut.clone(memory_format=torch.contiguous_format)
    return restride(cut, recipe.stride)


def _plain_fills(value: torch.Tensor) -> Iterator[Initializer]:
    """Yield initializers that may make the values, the simplest first."""
    if value.numel() == 0:
        yield Constant(0)
        return
    first, last = (_number(value[(at,) * value.dim()]) for at in (0, -1))
    if first is not None and _is_same_number(first, last):
        yield Constant(first)
    memory = value.as_strided((span(value),), (1,)).cpu()
    head = memory[:2].to(torch.float64 if not value.is_complex() else memory.dtype)
    if memory.numel() > 1 and head.tolist() == [0, 1]:
        yield Counted()
    if fill := _sparse(memory):
        yield fill


def _sparse(memory: torch.Tensor) -> Sparse | None:
    """Return the most common number and the exceptions to it, if these are few."""
    listed = memory.numel() <= LISTED
    places = list(range(memory.numel())) if listed else _unusual(memory)
    if places is None:
        return None
    numbers = [(place, _number(memory[place])) for place in places]
    if listed:
        base = _most([number for _, number in numbers])
    else:
        usual = (place for place in range(LISTED + 1) if place not in places)
        base = _number(memory[next(usual)])
    exceptions = [(place, n) for place, n in numbers if not _is_same_number(n, base)]
    if base is None or any(n is None for _, n in exceptions):
        return None
    return Sparse(base, tuple((place, n) for place, n in exceptions if n is not None))


def _unusual(memory: torch.Tensor) -> list[int] | None:
    """List the elements that differ from most others; None if there are many."""
    kind = _INTEGERS.get(memory.element_size())
    if kind is None:
        return None
    integers = memory.view(kind)
    sample = integers[:_SAMPLE]
    usual = sample.mode().values
    for part in (sample, integers):
        found = (part != usual).nonzero().flatten()
        if found.numel() > LISTED:
            return None
    places: list[int] = found.tolist()
    return places


def _most(numbers: Sequence[Number | None]) -> Number | None:
    """Return the most common number.

    Numbers are compared as text, because 0.0 equals -0.0, and NaN does not equal NaN.
    """
    by_text = {repr(number): number for number in numbers}
    return by_text[Counter(map(repr, numbers)).most_common(1)[0][0]]


def _is_same_number(number: Number | None, other: Number | None) -> bool:
    return repr(number) == repr(other)


def _number(one: torch.Tensor) -> Number | None:
    """Read an element; None for a complex number with an infinite or NaN part."""
    number: Number = one.flatten().tolist()[0]
    if isinstance(number, complex):
        finite = math.isfinite(number.real) and math.isfinite(number.imag)
        return number if finite else None
    return math.nan if number != number else number  # equal to itself
