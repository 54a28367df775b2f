"""Read the integers that a kernel holds in one lane."""

from __future__ import annotations

from typing import Any


def read_integers(frame: Any, lanes: Any) -> tuple[tuple[str, int], ...]:
    """Return the integer variables of a kernel's frame, by name, in one lane.

    Args:
        lanes: a bool array; the values are those of its first true lane.
    """
    import numpy as np

    if frame is None or not np.any(lanes):
        return ()
    first = tuple(np.argwhere(lanes)[0])
    integers = {}
    for name, local in frame.f_locals.items():
        value = getattr(local, "value", local)  # unwrap a tl.constexpr
        data = getattr(getattr(local, "handle", None), "data", value)
        if not isinstance(data, (int, np.ndarray, np.integer)):
            continue
        numbers = np.asarray(data)
        if numbers.dtype.kind not in "iu":
            continue
        try:
            integers[name] = int(np.broadcast_to(numbers, np.shape(lanes))[first])
        except ValueError:  # another shape, so it has no such lane
            continue
    return tuple(integers.items())
