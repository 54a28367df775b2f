"""Find the machine code of kernels, and excerpts of code that a compiler rejects."""

from __future__ import annotations

import contextlib
import os
import re
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from shrinkfx.failure.readers.compilers import parse_gcc_error
from shrinkfx.program.display_text import printable
from shrinkfx.protocol.files import Code, Excerpt

_SECTION = struct.Struct("<IIQQQQIIQQ")
"""Elf64_Shdr; its fields 5 to 7, counted from 1, are offset, size and link."""

_SYMBOL = struct.Struct("<IBBHQQ")
"""Elf64_Sym: name, info, other, section, value, size."""

_SYMBOLS, _FUNCTION_SYMBOL = 2, 2
"""SHT_SYMTAB, STT_FUNC."""

_64_BITS_LITTLE = b"\x7fELF\x02\x01"


def locate_kernels(kernels: Collection[str], folder: Path) -> tuple[Code, ...]:
    """Return the address ranges of kernels, and of their parts that threads run.

    Args:
        folder: the folder below which the library was loaded.
    """
    ranges = []
    for base, library in _loaded_from(folder):
        for name, value, size in _functions(library.read_bytes()):
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


class _Section(NamedTuple):
    type: int
    offset: int
    size: int
    link: int


def _functions(elf: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield the name, address offset and size in bytes of a library's functions."""
    if not elf.startswith(_64_BITS_LITTLE):
        return
    (start,) = struct.unpack_from("<Q", elf, 0x28)
    entry, number = struct.unpack_from("<HH", elf, 0x3A)
    sections = []
    for place in range(start, start + entry * number, entry):
        _, kind, _, _, offset, size, link, *_ = _SECTION.unpack_from(elf, place)
        sections.append(_Section(kind, offset, size, link))
    for section in sections:
        if section.type != _SYMBOLS:
            continue
        names = sections[section.link].offset
        table = elf[section.offset : section.offset + section.size]
        for name, info, _, _, value, size in _SYMBOL.iter_unpack(table):
            if info & 0xF == _FUNCTION_SYMBOL and size:
                end = elf.index(b"\0", names + name)
                yield elf[names + name : end].decode(errors="replace"), value, size


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
        file=Path(error.file).name,
        first=first,
        line=error.line,
        lines=tuple(printable(line[:_MAX_CHARACTERS]) for line in shown),
        function=(_FUNCTION.findall(above) or [""])[-1],
    )
