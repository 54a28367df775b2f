"""The whole numbers that a kernel holds in one of a program's lanes."""

from __future__ import annotations

from typing import Any


def values(frame: Any, lanes: Any) -> tuple[tuple[str, int], ...]:
    """Read them off the kernel's frame, by their names, in the first lane.

    Args:
        lanes: tells which are meant.
    """
    import numpy as np

    if frame is None or not np.any(lanes):
        return ()
    first = tuple(np.argwhere(lanes)[0])
    found = {}
    for name, known in frame.f_locals.items():
        value = getattr(known, "value", known)  # of a constant of Triton's
        data = getattr(getattr(known, "handle", None), "data", value)
        if not isinstance(data, (int, np.ndarray, np.integer)):
            continue
        numbers = np.asarray(data)
        if numbers.dtype.kind not in "iu":
            continue
        try:
            found[name] = int(np.broadcast_to(numbers, np.shape(lanes))[first])
        except ValueError:  # of another shape: no lane of it is this one
            continue
    return tuple(found.items())
