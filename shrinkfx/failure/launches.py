"""Find the kernel launch at which a run ended, from its output or a fault address."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shrinkfx.protocol.files import Code

_PRINTED = re.compile(r"\[ (before|after)_launch: (\S+) \]")

_CALL = re.compile(r"at::_ops::(\w+)::call|aoti_torch_(?:cpu_|cuda_)?(\w+)")
"""Names of PyTorch's own operators, in the printed form and in the other form."""


def find_reached_launch(kernels: Sequence[str], printed: str) -> int | None:
    """Return the index of the launch at which a run ended; None if it is unknown.

    The output omits some launches, because some kernels print nothing and only one
    branch of two is taken. Loops and further calls start again from the first kernel.
    """
    names = [_plain(kernel) for kernel in kernels]
    place, when, is_known = -1, "", False
    for when, kernel in _PRINTED.findall(printed):
        name = _plain(kernel)
        is_known = name in names
        if when == "before" and is_known:
            place = names.index(name, place + 1 if name in names[place + 1 :] else 0)
    if when == "after":
        place += 1  # the run ended before the next launch
    return place if is_known and place < len(names) else None


_CODE = re.compile(r"guard pages: by the code at (\d+)\b")


def find_faulting_launch(
    kernels: Sequence[str], code: Sequence[Code], text: str
) -> int | None:
    """Return the index of the launch of the kernel whose code faulted.

    Args:
        code: the addresses of the kernels' code.

    Returns:
        None if the kernel is unknown or has several launches.
    """
    if (match := _CODE.search(text)) is None:
        return None
    faulting = (c.kernel for c in code if 0 <= int(match[1]) - c.start < c.size)
    kernel = next(faulting, "")
    return kernels.index(kernel) if kernels.count(kernel) == 1 else None


def ended_inside_launch(printed: str) -> bool:
    """Return whether the last printed launch did not end."""
    launches = _PRINTED.findall(printed)
    return bool(launches) and launches[-1][0] == "before"


def is_call(kernel: str) -> bool:
    """Return whether a launch is a call of one of PyTorch's own operators."""
    return _CALL.fullmatch(kernel) is not None


def _plain(kernel: str) -> str:
    """Return the common name of both forms of a call."""
    found = _CALL.fullmatch(kernel)
    name = (found[1] or found[2]) if found else kernel
    return name.removesuffix("_out") if found else name
