"""Which kernels make what another one takes, read off the code that launches them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

_CALL = re.compile(r"^\s*(?:call_)?([\w.]+)\((.*)\);?$")
_BUFFER = re.compile(r"\bbuf\d+\b")
_RUN = ".run"


def feeding(wrapper: str, kernels: Collection[str], guilty: str) -> tuple[str, ...]:
    """Name the kernels that made a buffer of ``guilty``: the first that have it.

    Inductor writes to none again, but gives memory that it reuses another name.

    Args:
        wrapper: AOTInductor's C++ code, or Inductor's Python code.
        kernels: those that it launches, as far as they are known.
    """
    launches = list(_launches(wrapper, kernels))
    places = [n for n, (kernel, _) in enumerate(launches) if kernel == guilty]
    if not places:
        return ()
    _, wanted = launches[places[-1]]
    found: list[str] = []
    for kernel, buffers in launches[: places[-1]]:
        if buffers & wanted:
            wanted = wanted - buffers
            found.append(kernel)
    return tuple(kernel for kernel in dict.fromkeys(found) if kernel != guilty)


def _launches(
    wrapper: str, kernels: Collection[str]
) -> Iterator[tuple[str, frozenset[str]]]:
    for line in wrapper.splitlines():
        if called := _CALL.match(line):
            name = called[1].removesuffix(_RUN)
            if name in kernels or called[1].endswith(_RUN):
                yield name, frozenset(_BUFFER.findall(called[2]))
