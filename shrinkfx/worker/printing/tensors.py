"""Tensors as Python expressions: from a seed, exact, or from a file."""

from __future__ import annotations

import base64
import math
import zlib
from typing import Any

import torch

from shrinkfx.protocol.source import Expression
from shrinkfx.worker.eager.intermediates import span

_SMALL = 64
"""Maximal number of elements to write out one by one."""

_TINY = 8
"""Up to this many elements, a list is as short as a seeded expression."""

_TEXT_BYTES = 16 * 1024
"""Maximal compressed text of a tensor in a script that fits into an issue."""

_WORTH_PACKING_BYTES = 512 * 1024
"""Tensors above this size are not packed: even zeros would not fit."""


def write_tensor(value: Any, device: str = "") -> Expression:
    """Print a tensor, or another value.

    Args:
        device: the target device, if it differs from the tensor's.
    """
    if not isinstance(value, torch.Tensor):
        return Expression(repr(value), repr(value))
    device = device or str(value.device)
    view = f'.to("{device}")' if device != "cpu" else ""
    flat = value.detach()
    if not flat.is_contiguous():
        # Print the memory, then a view of it, so that strides are exact.
        shape, stride = tuple(flat.shape), tuple(flat.stride())
        view += f".as_strided({shape}, {stride})"
        flat = flat.as_strided((span(flat),), (1,))
    flat = flat.cpu().contiguous()
    # A contiguous tensor may have any stride in a dim of size 1.
    flat = flat.as_strided(flat.shape, torch.empty(flat.shape, device="meta").stride())
    exact = _short(flat) or _listed(flat) or _packed(flat)
    seeded = _short(flat) or (exact if flat.numel() <= _TINY else _seeded(flat))
    return Expression(seeded + view, exact + view if exact else "")


def _short(tensor: torch.Tensor) -> str:
    """Print an empty or constant tensor or a range; return '' for others."""
    shape, dtype = tuple(tensor.shape), tensor.dtype
    if tensor.numel() == 0:
        return f"torch.empty({shape}, dtype={dtype})"
    flat = tensor.flatten()
    # float16 and float8 have few operators; equal bytes are equal values.
    raw = flat.view(torch.uint8).reshape(flat.numel(), -1)
    if not dtype.is_complex and bool((raw == raw[0]).all()):
        return f"torch.full({shape}, {_number(flat[0].item())}, dtype={dtype})"
    if dtype == torch.int64 and torch.equal(flat, torch.arange(flat.numel())):
        view = "" if len(shape) == 1 else f".reshape{shape}"
        return f"torch.arange({flat.numel()}){view}"
    return ""


def _listed(tensor: torch.Tensor) -> str:
    if tensor.numel() > _SMALL:
        return ""
    return f"torch.tensor({_nested(tensor.tolist())}, dtype={tensor.dtype})"


def _number(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _nested(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_nested(v) for v in value)}]"
    return _number(value)


def _packed(tensor: torch.Tensor) -> str:
    flat = tensor.reshape(-1).view(torch.uint8)
    if flat.numel() > _WORTH_PACKING_BYTES:
        return ""
    raw = bytes(flat.tolist())
    text = base64.b85encode(zlib.compress(raw, 9)).decode()
    if len(text) > _TEXT_BYTES:
        return ""
    return f'unpack("{text}", {tensor.dtype}, {tuple(tensor.shape)})'


def unpack(text: str, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """Unpack a packed tensor, as a repro does."""
    raw = bytearray(zlib.decompress(base64.b85decode(text)))
    return torch.frombuffer(raw, dtype=dtype).reshape(shape)


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements as bytes, because not every dtype has arithmetic."""
    # Copy, because bytes cannot view one element with any stride.
    copied = tensor.resolve_conj().clone(memory_format=torch.contiguous_format)
    return copied.flatten().view(torch.uint8)


_FEW_OPERATORS = (torch.uint16, torch.uint32, torch.uint64)
"""Dtypes without ``aminmax``."""


def ends(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the smallest and the largest element of an integer tensor."""
    if tensor.dtype in _FEW_OPERATORS:
        values = tensor.flatten().tolist()
        return min(values), max(values)
    low, high = torch.aminmax(tensor)
    return int(low), int(high)


def _seeded(tensor: torch.Tensor) -> str:
    shape, dtype = tuple(tensor.shape), tensor.dtype
    if dtype == torch.bool:
        return f"torch.randint(0, 2, {shape}, dtype=torch.bool)"
    if not dtype.is_floating_point and not dtype.is_complex:
        low, high = ends(tensor)
        return f"torch.randint({low}, {high + 1}, {shape}, dtype={dtype})"
    if dtype.is_complex:
        return f"torch.randn({shape}, dtype={dtype})"
    plain = dtype in (torch.float32, torch.float64)
    draw = "rand" if bool((tensor.to(torch.float32) >= 0).all()) else "randn"
    kind = f", dtype={dtype}" if dtype is torch.float64 else ""
    cast = "" if plain else f".to({dtype})"
    return f"torch.{draw}({shape}{kind}){cast}"
