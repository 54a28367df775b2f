"""The memory that checked kernels work on, and where each piece came from."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import torch

SPARSE_BYTES = 1 << 30
"""From here on, memory is mapped and only takes what is touched."""

_POISON_BYTE = 0x7B
UNWRITTEN = "buffer"
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


def span(size: Sequence[int], stride: Sequence[int]) -> int:
    """Count the elements from the first to the last that such a tensor has."""
    if 0 in size:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))


def allocate(
    size: Sequence[int], stride: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    """Make a tensor of exactly the size it needs, holding what no program would.

    Floats are NaN: what is read and was never written shows in the results.
    """
    count = span(size, stride)
    if count * dtype.itemsize >= SPARSE_BYTES:
        flat = sparse(count, dtype)
    else:
        flat = torch.empty(count, dtype=dtype)
        _poison(flat)
    return flat.as_strided(tuple(size), tuple(stride))


def sparse(count: int, dtype: torch.dtype) -> torch.Tensor:
    """Make a vector of zeros larger than memory may be: pages come when touched."""
    memory = mmap.mmap(
        -1,
        max(1, count) * dtype.itemsize,
        flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE,
        prot=mmap.PROT_READ | mmap.PROT_WRITE,
    )
    return torch.frombuffer(memory, dtype=dtype, count=count)


def _poison(flat: torch.Tensor) -> None:
    if flat.dtype.is_floating_point or flat.dtype.is_complex:
        flat.fill_(float("nan"))
    elif flat.dtype is torch.bool:
        flat.fill_(True)
    else:
        flat.view(torch.uint8).fill_(_POISON_BYTE)


def exact(value: torch.Tensor) -> torch.Tensor:
    """Copy a tensor, strides kept, into memory that ends where it does.

    One that memory would not hold twice is handed back as it is.
    """
    if span(value.shape, value.stride()) * value.element_size() >= SPARSE_BYTES:
        return value
    made = allocate(value.shape, value.stride(), value.dtype)
    if made.numel():
        distinct(made).copy_(distinct(value.detach()))
    return made


def distinct(value: torch.Tensor) -> torch.Tensor:
    """Take each element of an expanded tensor once: together they are one."""
    for dim, step in enumerate(value.stride()):
        value = value.narrow(dim, 0, 1) if step == 0 else value
    return value


def _is_result(role: str) -> bool:
    return role in ("", UNWRITTEN) or role.startswith("result of ")


class Roles:
    """What each piece of memory is to the program."""

    def __init__(self) -> None:
        self._by_storage: dict[int, str] = {}
        self._kept: dict[int, torch.UntypedStorage] = {}

    def name(self, value: Any, role: str) -> None:
        """Say what a tensor's memory holds from now on.

        The storage is kept: freed, its address could be another's.
        """
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            self._by_storage[storage.data_ptr()] = role
            self._kept[storage.data_ptr()] = storage

    def name_once(self, value: Any, role: str) -> None:
        if isinstance(value, torch.Tensor) and not self.of(value):
            self.name(value, role)

    def name_result(self, value: Any, operators: Sequence[str]) -> None:
        """Say that a tensor now holds what operators computed; inputs stay inputs."""
        if isinstance(value, torch.Tensor) and _is_result(self.of(value)):
            of = ", ".join(operators) or "a kernel"
            self.name(value, f"result of {of}")

    def of(self, value: torch.Tensor) -> str:
        return self._by_storage.get(value.untyped_storage().data_ptr(), "")

    def clear(self) -> None:
        self._by_storage.clear()
        self._kept.clear()
