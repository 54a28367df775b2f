"""Tensors as Python expressions: from a seed, exactly, or from a file."""

from __future__ import annotations

import base64
import math
import zlib
from typing import Any

import torch

from shrinkfx.protocol.source import Expression
from shrinkfx.worker.eager.intermediates import span

_SMALL = 64
"""Elements that are still readable one by one."""

_TINY = 8
"""Elements that are as short written out as drawn from a seed."""

_TEXT_BYTES = 16 * 1024
"""Compressed text that a file may hold and still be pasted into an issue."""

_WORTH_PACKING_BYTES = 512 * 1024
"""Above this not even zeros compress into so little text."""


def write_tensor(value: Any, device: str = "") -> Expression:
    """Write a tensor; ``device`` is where it goes, if that is not where it is."""
    if not isinstance(value, torch.Tensor):
        return Expression(repr(value), repr(value))
    device = device or str(value.device)
    view = f'.to("{device}")' if device != "cpu" else ""
    flat = value.detach()
    if not flat.is_contiguous():
        # The memory behind the view, then the view: strides are kept exactly.
        shape, stride = tuple(flat.shape), tuple(flat.stride())
        view += f".as_strided({shape}, {stride})"
        flat = flat.as_strided((span(flat),), (1,))
    flat = flat.cpu().contiguous()
    # Contiguous may still mean any step in a dim of one element.
    flat = flat.as_strided(flat.shape, torch.empty(flat.shape, device="meta").stride())
    exact = _short(flat) or _listed(flat) or _packed(flat)
    seeded = _short(flat) or (exact if flat.numel() <= _TINY else _seeded(flat))
    return Expression(seeded + view, exact + view if exact else "")


def _short(tensor: torch.Tensor) -> str:
    """Write what is empty, constant or a range; '' otherwise."""
    shape, dtype = tuple(tensor.shape), tensor.dtype
    if tensor.numel() == 0:
        return f"torch.empty({shape}, dtype={dtype})"
    flat = tensor.flatten()
    # Half and quarter types have few operators; equal bytes are equal values.
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
    """Read what is packed, as a repro does."""
    raw = bytearray(zlib.decompress(base64.b85decode(text)))
    return torch.frombuffer(raw, dtype=dtype).reshape(shape)


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """Look at a tensor as what it is in memory: not every dtype has arithmetic."""
    # A copy: one element is contiguous with any stride, but no view of bytes.
    copied = tensor.resolve_conj().clone(memory_format=torch.contiguous_format)
    return copied.flatten().view(torch.uint8)


_FEW_OPERATORS = (torch.uint16, torch.uint32, torch.uint64)


def ends(tensor: torch.Tensor) -> tuple[int, int]:
    """Find the least and the largest of whole numbers."""
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
