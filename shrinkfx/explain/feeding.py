"""Find which kernels produce the inputs of another one, from the wrapper code."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

_CALL = re.compile(
    r"^\s*(?:AOTI_TORCH_ERROR_CODE_CHECK\(|call_|\w+ = )?([\w.]+)\((.*)$"
)
_BUFFER = re.compile(r"\b(buf\d+)(?:_handle)?\b")
_RUN, _EXTERN = ".run", "extern_kernels."


def find_feeding_kernels(
    wrapper: str, kernels: Collection[str], target: str
) -> tuple[str, ...]:
    """Return the kernels that produced a buffer of ``target``: the first users of each.

    Inductor writes a buffer only once, because reused memory gets another name.

    Args:
        wrapper: AOTInductor's C++ code, or Inductor's Python code.
        kernels: the names of the kernels that it launches, as far as they are known.
    """
    *before, (_, wanted) = _until(wrapper, kernels, target) or [("", frozenset())]
    found: list[str] = []
    for kernel, buffers in before:
        if buffers & wanted:
            wanted = wanted - buffers
            found.append(kernel)
    return tuple(kernel for kernel in dict.fromkeys(found) if kernel != target)


def find_reused_buffers(
    wrapper: str, kernels: Collection[str], kernel: str
) -> frozenset[str]:
    """Return the buffers of a kernel that an earlier one used: they are no results."""
    *before, (_, used) = _until(wrapper, kernels, kernel) or [("", frozenset())]
    return used & frozenset().union(*(buffers for _, buffers in before))


def _until(
    wrapper: str, kernels: Collection[str], kernel: str
) -> list[tuple[str, frozenset[str]]]:
    """Return the launches with their buffers, up to the last launch of a kernel."""
    launches = list(_launches(wrapper, kernels))
    places = [n for n, (name, _) in enumerate(launches) if name == kernel]
    return launches[: places[-1] + 1] if places else []


def _launches(
    wrapper: str, kernels: Collection[str]
) -> Iterator[tuple[str, frozenset[str]]]:
    for line in wrapper.splitlines():
        if called := _CALL.match(line):
            name = called[1].removesuffix(_RUN)
            known = name in kernels or name.startswith(_EXTERN)
            if known or called[1].endswith(_RUN):
                yield name, frozenset(_BUFFER.findall(line))
