"""What a kernel was given: the memory behind its arguments, and that as Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch

from shrinkfx.worker.explaining.kernel_checks import LARGE

_SMALL = 64
"""Elements that are written out; more are in a file."""


@dataclass(frozen=True)
class Memory:
    """An argument: the memory behind it, and where in that it lies.

    Attributes:
        name: of the memory: arguments that share it have the same.
        all_of_it: as a vector of the argument's type.
    """

    name: str
    all_of_it: torch.Tensor
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @classmethod
    def of_all(cls, tensors: Mapping[str, torch.Tensor]) -> dict[str, Self]:
        """Copy what arguments hold, shared memory once."""
        copies: dict[int, tuple[str, torch.UntypedStorage]] = {}
        made: dict[str, Self] = {}
        for name, value in tensors.items():
            storage = value.untyped_storage()
            key = storage.data_ptr() or id(storage)
            if key not in copies:
                is_large = storage.nbytes() >= LARGE
                held = storage if is_large else storage.clone()
                copies[key] = f"memory_of_{name}", held
            of, copied = copies[key]
            whole = torch.empty(0, dtype=value.dtype).set_(copied)
            layout = (
                tuple(value.size()),
                tuple(value.stride()),
                int(value.storage_offset()),
            )
            made[name] = cls(of, whole, *layout)
        return made

    def __str__(self) -> str:
        layout = f"{self.size}, {self.stride}, {self.offset}"
        return f"part({self.name!r}, {self.all_of_it.dtype}, {layout})"


def literal(memory: torch.Tensor) -> str:
    """Write a vector of one value, a small or a very large one; '' for others."""
    values, dtype = memory, memory.dtype
    if values.nbytes >= LARGE:  # what it held is left out
        return f"torch.zeros({len(values)}, dtype={dtype})"
    if not dtype.is_complex and len(values):
        first = values[0].item()
        same = values.isnan().all() if first != first else (values == first).all()
        if same:
            return f"torch.full(({len(values)},), {_number(first)}, dtype={dtype})"
    if len(values) > _SMALL or dtype.is_complex:
        return "" if len(values) else f"torch.empty(0, dtype={dtype})"
    return f"torch.tensor([{', '.join(map(_number, values.tolist()))}], dtype={dtype})"


def _number(value: Any) -> str:
    return repr(value) if abs(value) < float("inf") else f'float("{value}")'
