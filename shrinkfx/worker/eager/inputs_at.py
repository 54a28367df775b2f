"""Inputs at requested sizes, with values like those of the failing inputs."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch
from torch import Tensor
from torch.export import ExportedProgram

from shrinkfx.errors import LoadError
from shrinkfx.worker.eager.intermediates import restride
from shrinkfx.worker.loading.load import as_inputs, import_file
from shrinkfx.worker.model import Inputs, Program, flat_inputs, user_placeholders
from shrinkfx.worker.sizes.bindings import bind_symbols, evaluate_size

_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def make_inputs_at(
    program: Program, sizes: Mapping[str, int], seed: int, file: str | None
) -> Inputs:
    """Make inputs of these sizes, the same ones for the same sizes and seed.

    Args:
        file: a ``.py`` whose ``inputs(**sizes)`` makes them; anything else is ignored.

    Raises:
        LoadError: the file has no such function, or it makes other inputs.
    """
    if file and file.endswith(".py"):
        return _from_file(program, sizes, file)
    exported, inputs = program.original, program.failing
    leaves, spec = inputs.flatten()
    nodes = user_placeholders(exported, inputs)
    numbers = _symbols(exported, inputs, sizes)
    moves = _moves(exported, inputs, numbers)
    new_leaves: list[Any] = []
    for position, (node, leaf) in enumerate(zip(nodes, leaves, strict=True)):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            new_leaves.append(evaluate_size(value, numbers))
        elif isinstance(value, Tensor) and isinstance(leaf, Tensor):
            name = json.dumps([seed, position, sorted(sizes.items())])
            new_leaves.append(
                _make_similar(leaf, value, numbers, moves, zlib.crc32(name.encode()))
            )
        else:
            new_leaves.append(leaf)
    return Inputs.unflatten(new_leaves, spec)


def _symbols(
    exported: ExportedProgram, inputs: Inputs, sizes: Mapping[str, int]
) -> dict[Any, sympy.Integer]:
    symbols = {
        symbol
        for node in user_placeholders(exported, inputs)
        for size in _sizes(node.meta.get("val"))
        for symbol in size.node.expr.free_symbols
    }
    return {symbol: sympy.Integer(sizes[str(symbol)]) for symbol in symbols}


def _sizes(value: Any) -> list[torch.SymInt]:
    sizes = value.shape if isinstance(value, Tensor) else [value]
    return [size for size in sizes if isinstance(size, torch.SymInt)]


def _moves(
    exported: ExportedProgram, inputs: Inputs, numbers: Mapping[Any, sympy.Integer]
) -> list[tuple[int, int]]:
    """List the old and the new number of each free size of the inputs."""
    before = bind_symbols(exported, flat_inputs(exported, inputs))
    return [(int(old), int(size.xreplace(numbers))) for size, old in before.items()]


def _make_similar(
    example: Tensor,
    fake: Tensor,
    numbers: dict[Any, sympy.Integer],
    moves: Sequence[tuple[int, int]],
    seed: int,
) -> Tensor:
    """Make a tensor whose values could be the example's."""
    shape = [evaluate_size(size, numbers) for size in fake.shape]
    if shape == list(example.shape):
        return example
    assert None not in shape
    generator = torch.Generator().manual_seed(seed)
    values = _values(example.detach().cpu(), shape, moves, generator)
    steps = [evaluate_size(step, numbers) for step in fake.stride()]
    stride = [step for step in steps if step is not None]
    result = restride(values, stride) if len(stride) == len(shape) else values
    return result.to(example.device)


def _values(
    example: Tensor,
    shape: Sequence[Any],
    moves: Sequence[tuple[int, int]],
    generator: torch.Generator,
) -> Tensor:
    if counted := _counts_up(example, shape):
        return counted[0]
    if not example.numel():
        return torch.zeros(tuple(shape), dtype=example.dtype)
    flat = example.flatten()

    def draw() -> Tensor:
        return flat[torch.randint(len(flat), tuple(shape), generator=generator)]

    values = draw()
    if example.dtype in _FLOATS and not _is_a_code(example):
        weight = torch.rand(tuple(shape), generator=generator, dtype=torch.float64)
        return torch.lerp(values.double(), draw().double(), weight).to(example.dtype)
    if _is_integer(example):
        values = _within(values, int(flat.max()), moves)
        if _is_sorted(example):
            values = values.sort(-1).values
            values[..., :1] = example.min()
    return values


def _is_integer(tensor: Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex()) and (
        tensor.dtype is not torch.bool
    )


def _is_a_code(example: Tensor) -> bool:
    """Return whether numbers between two elements may be meaningless, as in masks."""
    wide = example.double()
    return not bool(wide.isfinite().all()) or bool((wide == wide.round()).all())


def _within(values: Tensor, largest: int, moves: Sequence[tuple[int, int]]) -> Tensor:
    """Keep indices valid.

    If a dim shrinks, values that could index it before must still be in its bounds.
    """
    limits = [new for old, new in moves if new <= largest < old]
    if not limits:
        return values
    return torch.where(values < 0, values, values % max(1, min(limits)))


def _is_sorted(example: Tensor) -> bool:
    if not example.dim() or example.shape[-1] < 2:
        return False
    steps = example.diff(dim=-1)
    return bool((steps >= 0).all()) and bool((steps > 0).any())


def _counts_up(example: Tensor, shape: Sequence[Any]) -> list[Tensor]:
    """Continue 0, 1, 2, ... along a dim, as positions do; [] for other tensors."""
    for dim, size in enumerate(example.shape):
        if size < 2 or not _is_integer(example):
            continue
        along = [1] * example.dim()
        along[dim] = -1
        if torch.equal(
            example, torch.arange(size).view(along).expand_as(example).to(example.dtype)
        ):
            counted = torch.arange(shape[dim], dtype=example.dtype).view(along)
            return [counted.expand(*shape).contiguous()]
    return []


def _from_file(program: Program, sizes: Mapping[str, int], file: str) -> Inputs:
    """Call a user's ``inputs`` function, and check the structure and the shapes."""
    make = getattr(import_file(file), "inputs", None)
    if make is None:
        raise LoadError(file, "defines no function inputs(**sizes)", _ADVICE)
    inputs = as_inputs(file, make(**sizes))
    exported = program.original
    (leaves, spec), (_, expected) = inputs.flatten(), program.example.flatten()
    if spec != expected:
        raise LoadError(file, f"inputs() gives {spec}", f"the program takes {expected}")
    numbers = _symbols(exported, inputs, sizes)
    for node, leaf in zip(user_placeholders(exported, inputs), leaves, strict=True):
        value = node.meta.get("val")
        if isinstance(value, Tensor):
            shape = tuple(evaluate_size(size, numbers) for size in value.shape)
            if tuple(leaf.shape) != shape:
                message = f"inputs() gives {node.name} the shape {tuple(leaf.shape)}"
                raise LoadError(file, message, f"at {dict(sizes)} it has {shape}")
    return inputs


_ADVICE = "define it to take the sizes by name and to return the program's inputs"
