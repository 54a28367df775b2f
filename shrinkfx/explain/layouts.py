"""Compare the real layout of an argument with its declared layout."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from shrinkfx.findings.chain import Layout
from shrinkfx.program.sizes import evaluate, names_in
from shrinkfx.protocol.compiled_program_view import Anatomy, EagerLayout, MadeBuffer


def real_layout(recorded: Anatomy, buffer: MadeBuffer) -> EagerLayout | None:
    """Return the real layout of a buffer that an operator returns, as in eager.

    Other buffers are allocated as declared, so they have no entry.
    """
    if not buffer.handed:
        return None
    return next((real for real in recorded.real if real.node == buffer.result), None)


def read_beyond(recorded: Anatomy, name: str) -> str:
    """Describe how far beyond its end a buffer is read; '' if it is not."""
    buffer = next((b for b in recorded.buffers if b.name == name), None)
    real = real_layout(recorded, buffer) if buffer else None
    if real is None or real.nbytes >= real.declared:
        return ""
    return f"which has {real.nbytes:,} bytes but is read as {real.declared:,}"


def describe_oversized(recorded: Anatomy, argument: Layout) -> str:
    """Describe a declared layout that is larger than the real one; '' if it is not."""
    if not argument.real_shape:
        return ""
    sizes = {s.name: s.value for s in recorded.symbols if s.value is not None}
    shape = _numbers(argument.shape, sizes)
    if shape is None:
        return ""
    stride = _numbers(argument.stride, sizes)
    real, strides = argument.real_shape, argument.real_stride
    fewer = math.prod(real) < math.prod(shape)
    shorter = bool(stride) and _extent(real, strides) < _extent(shape, stride or ())
    if not fewer and not shorter:
        return ""
    label = f"{argument.role.capitalize()} {argument.name}"
    if [*real] == shape:
        declared = ", ".join(argument.stride)
        return f"{label} is declared with strides [{declared}] but has {[*strides]}."
    declared = ", ".join(argument.shape)
    return f"{label} is declared with shape [{declared}] but has {[*real]}."


def _numbers(texts: Sequence[str], sizes: Mapping[str, int]) -> list[int] | None:
    """Evaluate sizes; return None if one is unknown."""
    if not all(names_in(text) <= sizes.keys() for text in texts):
        return None
    return [evaluate(text, sizes) for text in texts]


def _extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return the number of elements from the first to the last one in memory."""
    if not all(shape):
        return 0
    pairs = zip(shape, stride, strict=True)
    return 1 + sum((size - 1) * step for size, step in pairs)
