"""Which launch a run has come to: as it prints, or by the code that has faulted."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shrinkfx.protocol.files import Code

_PRINTED = re.compile(r"\[ (before|after)_launch: (\S+) \]")

_CALL = re.compile(r"at::_ops::(\w+)::call|aoti_torch_(?:cpu_|cuda_)?(\w+)")
"""What PyTorch's own operators are called where they are printed, and elsewhere."""


def reached(kernels: Sequence[str], printed: str) -> int | None:
    """Find the launch at which a run has ended, by its place; None if it is not known.

    Some kernels print nothing, and one branch of two is taken: what is printed
    leaves some out. Loops, and further calls, begin again.
    """
    names = [_plain(kernel) for kernel in kernels]
    place, when, is_known = -1, "", False
    for when, kernel in _PRINTED.findall(printed):
        name = _plain(kernel)
        is_known = name in names
        if when == "before" and is_known:
            place = names.index(name, place + 1 if name in names[place + 1 :] else 0)
    if when == "after":
        place += 1  # it ended on the way to the next one
    return place if is_known and place < len(names) else None


_CODE = re.compile(r"guard pages: by the code at (\d+)\b")


def strayed(kernels: Sequence[str], code: Sequence[Code], said: str) -> int | None:
    """Find the launch of the kernel whose code has faulted, by its place.

    Args:
        code: where that of kernels lay.

    Returns:
        None where it is not known, or the kernel has several launches.
    """
    if (told := _CODE.search(said)) is None:
        return None
    found = (c.kernel for c in code if 0 <= int(told[1]) - c.start < c.size)
    kernel = next(found, "")
    return kernels.index(kernel) if kernels.count(kernel) == 1 else None


def is_inside(printed: str) -> bool:
    """Tell whether the last launch that was printed has not ended."""
    said = _PRINTED.findall(printed)
    return bool(said) and said[-1][0] == "before"


def is_call(kernel: str) -> bool:
    """Tell whether a launch is the call of an operator of PyTorch's."""
    return _CALL.fullmatch(kernel) is not None


def _plain(kernel: str) -> str:
    """Name a call as both do."""
    found = _CALL.fullmatch(kernel)
    name = (found[1] or found[2]) if found else kernel
    return name.removesuffix("_out") if found else name
