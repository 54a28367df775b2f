"""Strides of tensors, in elements."""

from __future__ import annotations

from collections.abc import Sequence


def storage_span(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return the number of elements in memory from a tensor's first one to its last."""
    if not all(shape):
        return 0
    steps = zip(shape, stride, strict=True)
    return 1 + sum((size - 1) * step for size, step in steps)


def dense(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return strides without gaps, with dims in the order of old strides; 0 stays 0.

    None if these are the contiguous strides.
    """
    steps = [0] * len(shape)
    step = 1
    for dim in sorted(range(len(shape)), key=lambda d: (stride[d], -d)):
        if stride[dim]:
            steps[dim], step = step, step * max(1, shape[dim])
    return None if 0 in shape or is_usual(shape, steps) else tuple(steps)


def resized_strides(
    shape: tuple[int, ...], stride: tuple[int, ...], new: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return strides for other sizes, in the order of old strides; None if contiguous.

    A gap after a dim stays, in proportion to the dim. Strides of 0 and strides of
    overlapping dims are unchanged.
    """
    steps = list(stride)
    reach = new_reach = 1
    for dim in sorted(range(len(shape)), key=lambda d: (stride[d], -d)):
        step = stride[dim]
        if step and shape[dim] == 1:  # the stride of a dim of size 1 has no effect
            step = max(step, reach)
        if step < reach:
            continue
        gap = -(-(step - reach) * new_reach // reach)
        steps[dim] = new_reach + gap
        reach, new_reach = step * max(1, shape[dim]), steps[dim] * max(1, new[dim])
    return None if 0 in new or is_usual(new, steps) else tuple(steps)


def is_usual(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Return whether strides are those of a contiguous tensor."""
    dims = zip(shape, stride, row_major(shape), strict=True)
    return all(size == 1 or actual == usual for size, actual, usual in dims)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    steps = [1]
    for size in reversed(shape[1:]):
        steps.insert(0, steps[0] * max(1, size))
    return tuple(steps) if shape else ()
