"""Tensor specs as Python expressions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shrinkfx.program.listing.simple_numbers import Number
from shrinkfx.program.listing.tensor_specs import (
    LISTED,
    Constant,
    Counted,
    Opaque,
    Saved,
    Seeded,
    Sparse,
    TensorSpec,
)


def write_tensor_spec(recipe: TensorSpec, device: str = "") -> str:
    """Return a Python expression that creates the tensor.

    Args:
        device: the device, if it is not that of the spec.

    >>> write_recipe(Recipe((2, 3), "float32", Constant(1.0)))
    'torch.ones((2, 3))'
    """
    if isinstance(recipe.fill, Opaque):
        return recipe.fill.text
    device = device or recipe.device
    text = _in_memory(recipe)
    text += f'.to("{device}")' if device != "cpu" else ""
    if recipe.stride is not None and not isinstance(recipe.fill, Saved):
        text += f".as_strided({recipe.shape}, {recipe.stride})"
    return text


def _in_memory(recipe: TensorSpec) -> str:
    """Return an expression for the storage: one-dimensional if the spec has strides."""
    shape = recipe.shape if recipe.stride is None else (recipe.span,)
    dtype = "" if recipe.dtype == "float32" else f", dtype=torch.{recipe.dtype}"
    match recipe.fill:
        case Constant(value):
            return _constant(shape, value, recipe.dtype)
        case Counted():
            count = math.prod(shape)
            flat = f"torch.arange({count}" + (
                ")" if recipe.dtype == "int64" else f", dtype=torch.{recipe.dtype})"
            )
            return flat if len(shape) == 1 else f"{flat}.reshape({shape})"
        case Seeded("randint", low, high):
            kind = "" if recipe.dtype == "int64" else f", dtype=torch.{recipe.dtype}"
            return f"torch.randint({low}, {high}, {shape}{kind})"
        case Seeded(draw):
            drawn = recipe.dtype in ("float32", "float64", "complex64", "complex128")
            if drawn:
                return f"torch.{draw}({shape}{dtype})"
            return f"torch.{draw}({shape}).to(torch.{recipe.dtype})"
        case Sparse(base, elements):
            return _sparse(shape, base, elements, recipe.dtype)
        case Saved(key):
            text = f'data["{key}"]' + _first_of(recipe.shape)
            return text if recipe.stride is not None else f"{text}.contiguous()"
    raise TypeError(f"no recipe: {recipe.fill!r}")


def _constant(shape: tuple[int, ...], value: Number, dtype: str) -> str:
    kind = "" if dtype == "float32" else f", dtype=torch.{dtype}"
    if repr(value) in ("0", "1", "0.0", "1.0", "False", "True"):  # not -0.0
        return f"torch.{'ones' if value else 'zeros'}({shape}{kind})"
    kind = f", dtype=torch.{dtype}"
    return f"torch.full({shape}, {_number(value)}{kind})"


def _sparse(
    shape: tuple[int, ...],
    base: Number,
    elements: Sequence[tuple[int, Number]],
    dtype: str,
) -> str:
    count = math.prod(shape)
    if count <= LISTED:
        values = [base] * count
        for place, value in elements:
            values[place] = value
        return f"torch.tensor({_nested(values, shape)}, dtype=torch.{dtype})"
    places = ", ".join(str(place) for place, _ in elements)
    texts = ", ".join(_number(value) for _, value in elements)
    args = f"torch.tensor([{places}]), torch.tensor([{texts}], dtype=torch.{dtype})"
    return f"{_constant(shape, base, dtype)}.put_({args})"


def _nested(values: Sequence[Number], shape: tuple[int, ...]) -> str:
    if not shape:
        return _number(values[0])
    step = len(values) // shape[0] if shape[0] else 0
    rows = (values[i * step : (i + 1) * step] for i in range(shape[0]))
    return f"[{', '.join(_nested(row, shape[1:]) for row in rows)}]"


def _number(value: Number) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, complex):  # its repr has no infinity, and loses -0.0
        return f"complex({_number(value.real)}, {_number(value.imag)})"
    return repr(value)


def _first_of(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(f':{size}' for size in shape)}]" if shape else ""
