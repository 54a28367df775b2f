"""Find the machine code of kernels, and excerpts of code that a compiler rejects."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path

from shrinkfx.failure.readers.compilers import parse_gcc_error
from shrinkfx.program.display_text import printable
from shrinkfx.protocol.files import Code, Excerpt


def locate_kernels(kernels: Collection[str], folder: Path) -> tuple[Code, ...]:
    """Return the address ranges of kernels, and of their parts that threads run.

    Args:
        folder: the folder below which the library was loaded.
    """
    ranges = []
    for base, library in _loaded_from(folder):
        for name, value, size in _functions(library):
            kernel = name.partition(".")[0]  # g++ names a part ``kernel._omp_fn.0``
            if kernel in kernels:
                ranges.append(Code(kernel, base + value, size))
    return tuple(ranges)


def _loaded_from(folder: Path) -> Iterator[tuple[int, Path]]:
    """Yield the base address and path of each loaded library below a folder."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, _, offset, _, _, *path = line.split(maxsplit=5)
        name = path[0] if path and int(offset, 16) == 0 else ""
        if name.startswith(f"{folder}{os.sep}") and name.endswith(".so"):
            yield int(place.partition("-")[0], 16), Path(name)


def _functions(library: Path) -> Iterator[tuple[str, int, int]]:
    """Yield the name, address offset and size in bytes of a library's functions.

    ``nm`` is a part of the binutils, without which g++ makes no library.
    """
    argv = ["nm", "--print-size", "--defined-only", "--format=posix", str(library)]
    listed = subprocess.run(argv, capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        name, kind, value, *size = line.split()
        if kind in "Tt" and size:
            yield name, int(value, 16), int(size[0], 16)


# Excerpts of generated code that the C++ compiler rejects.

_CONTEXT_LINES = 3
"""The number of lines shown before and after the rejected line."""

_MAX_CHARACTERS = 400
_FUNCTION = re.compile(r"\bvoid +([\w:]+)\(")


def read_excerpt(message: str) -> Excerpt | None:
    """Return the lines around the line that g++ rejects; None if it names no line.

    A check calls this before the generated file is deleted.
    """
    error = parse_gcc_error(message)
    if error is None or not error.file:
        return None
    lines: list[str] = []
    with contextlib.suppress(OSError):
        text = Path(error.file).read_text(errors="replace")
        lines = text.split("\n")
    if not 0 < error.line <= len(lines):
        return None
    first = max(1, error.line - _CONTEXT_LINES)
    shown = lines[first - 1 : error.line + _CONTEXT_LINES]
    above = "\n".join(lines[: error.line])
    return Excerpt(
        first=first,
        line=error.line,
        lines=tuple(printable(line[:_MAX_CHARACTERS]) for line in shown),
        function=(_FUNCTION.findall(above) or [""])[-1],
    )
