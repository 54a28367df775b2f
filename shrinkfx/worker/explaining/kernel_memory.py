"""Copy the memory behind a kernel's arguments, and write it as Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch

from shrinkfx.worker.explaining.kernel_checks import LARGE

_SMALL = 64
"""Up to this many elements are written as literals; more go into a file."""


@dataclass(frozen=True)
class ArgumentMemory:
    """The memory behind an argument, and the argument's position in it.

    Attributes:
        name: the name of the memory; arguments that share memory have the same.
        all_of_it: the memory as a vector of the argument's dtype.
        size, stride, offset: the argument's view of the memory, in elements.
    """

    name: str
    all_of_it: torch.Tensor
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @classmethod
    def copy_arguments(cls, tensors: Mapping[str, torch.Tensor]) -> dict[str, Self]:
        """Copy the memory of arguments, shared memory once."""
        copies: dict[int, tuple[str, torch.UntypedStorage]] = {}
        arguments: dict[str, Self] = {}
        for name, value in tensors.items():
            storage = value.untyped_storage()
            key = storage.data_ptr() or id(storage)
            if key not in copies:
                is_large = storage.nbytes() >= LARGE
                content = storage if is_large else storage.clone()
                copies[key] = f"memory_of_{name}", content
            memory_name, copied = copies[key]
            vector = torch.empty(0, dtype=value.dtype).set_(copied)
            layout = (
                tuple(value.size()),
                tuple(value.stride()),
                int(value.storage_offset()),
            )
            arguments[name] = cls(memory_name, vector, *layout)
        return arguments

    def __str__(self) -> str:
        """Write the argument as a call of the script's function ``part``."""
        layout = f"{self.size}, {self.stride}, {self.offset}"
        return f"part({self.name!r}, {self.all_of_it.dtype}, {layout})"


def write_literal(memory: torch.Tensor) -> str:
    """Write a vector as Python, or return '' if it must go into a file.

    Constant vectors, small vectors, and very large ones, whose content is dropped, are
    written.
    """
    values, dtype = memory, memory.dtype
    if values.nbytes >= LARGE:  # its content is dropped
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
