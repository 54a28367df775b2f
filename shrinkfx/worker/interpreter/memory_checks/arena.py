"""Allocate the memory of checked kernels, and record the role of each allocation."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import torch

SPARSE_BYTES = 1 << 30
"""From this size on, memory is mapped without reserve and takes only touched pages."""

_POISON_BYTE = 0x7B
UNWRITTEN = "buffer"
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


def count_spanned_elements(size: Sequence[int], stride: Sequence[int]) -> int:
    """Return the number of elements from a tensor's first to its last element."""
    if 0 in size:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))


def allocate(
    size: Sequence[int], stride: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    """Allocate a tensor of exactly the size it needs, filled with implausible values.

    Floats are NaN, so that a read of unwritten memory shows in the results.
    """
    count = count_spanned_elements(size, stride)
    if count * dtype.itemsize >= SPARSE_BYTES:
        flat = map_sparse_vector(count, dtype)
    else:
        flat = torch.empty(count, dtype=dtype)
        _poison(flat)
    return flat.as_strided(tuple(size), tuple(stride))


def map_sparse_vector(count: int, dtype: torch.dtype) -> torch.Tensor:
    """Map a vector of zeros that may exceed the memory: pages are allocated lazily."""
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


def copy_to_exact_size(value: torch.Tensor) -> torch.Tensor:
    """Copy a tensor with its strides into memory that ends at its last element.

    A tensor of ``SPARSE_BYTES`` or more is returned uncopied, because memory may not
    hold it twice.
    """
    if (
        count_spanned_elements(value.shape, value.stride()) * value.element_size()
        >= SPARSE_BYTES
    ):
        return value
    copied = allocate(value.shape, value.stride(), value.dtype)
    if copied.numel():
        drop_expanded_dims(copied).copy_(drop_expanded_dims(value.detach()))
    return copied


def drop_expanded_dims(value: torch.Tensor) -> torch.Tensor:
    """Narrow expanded dims (stride 0) to one element, so that elements are distinct."""
    for dim, step in enumerate(value.stride()):
        value = value.narrow(dim, 0, 1) if step == 0 else value
    return value


def _is_result(role: str) -> bool:
    return role in ("", UNWRITTEN) or role.startswith("result of ")


class Roles:
    """The role of each storage in the program, such as ``input 0``."""

    def __init__(self) -> None:
        self._by_storage: dict[int, str] = {}
        self._storages: dict[int, torch.UntypedStorage] = {}

    def set_role(self, value: Any, role: str) -> None:
        """Set the role of a tensor's storage.

        The storage is kept alive, because another one could get its address if it were
        freed.
        """
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            self._by_storage[storage.data_ptr()] = role
            self._storages[storage.data_ptr()] = storage

    def set_role_once(self, value: Any, role: str) -> None:
        """Set the role of a tensor's storage unless it has one."""
        if isinstance(value, torch.Tensor) and not self.get_role(value):
            self.set_role(value, role)

    def set_result_role(self, value: Any, operators: Sequence[str]) -> None:
        """Record that operators wrote a tensor; inputs keep their role."""
        if isinstance(value, torch.Tensor) and _is_result(self.get_role(value)):
            of = ", ".join(operators) or "a kernel"
            self.set_role(value, f"result of {of}")

    def get_role(self, value: torch.Tensor) -> str:
        """Return the role of a tensor's storage, or '' if it is unknown."""
        return self._by_storage.get(value.untyped_storage().data_ptr(), "")

    def clear(self) -> None:
        self._by_storage.clear()
        self._storages.clear()
