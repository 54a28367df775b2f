"""Read a report of AddressSanitizer: which kernel touched what, and in which line."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ERROR = re.compile(
    r"ERROR: AddressSanitizer: ([^\n]+?)(?: on (?:unknown )?address|\n)"
)
_ADDRESS = re.compile(r"SEGV on unknown address (0x[0-9a-f]+)")
_ACCESS = re.compile(r"(READ|WRITE) of size (\d+)|caused by a (READ|WRITE) memory")
_FRAME = re.compile(
    r"^\s+#\d+ 0x[0-9a-f]+ in (.+?) (\S+?):(\d+)(?::\d+)?$", re.MULTILINE
)
_UNLINED = re.compile(r"^\s+#\d+ 0x[0-9a-f]+ in (\w+)", re.MULTILINE)
_REGION = re.compile(r"is located (\d+ bytes [a-z ]+ \d+-byte region)")
_KERNEL = re.compile(r"\bcpp_fused_\w+|\bcpp_\w*(?:gemm|bmm|mha|flex_attention)\w*")


_NEVER_MAPPED = 0x1000
"""Bytes from address 0 on that no process has, as ``vm.mmap_min_addr`` says."""


@dataclass(frozen=True)
class MemoryReport:
    """One illegal access.

    Attributes:
        kind: AddressSanitizer's word, ``heap-buffer-overflow`` for example.
        access: ``read`` or ``write``.
        bytes: how many at once; 0 where the report does not say.
        kernel: the generated function, or where there is none the innermost one.
        line: in the generated source; 0 where the report does not say.
        where: ``0 bytes after 1024-byte region``, or ''.
        address: where the report says it: of a SIGSEGV, or of a GPU's access.
        block, thread: of a GPU's access.
    """

    kind: str
    access: str
    bytes: int
    kernel: str
    line: int
    where: str
    address: str = ""
    block: str = ""
    thread: str = ""

    @property
    def is_of_null(self) -> bool:
        """Tell whether the access is near address 0, where nothing is ever mapped."""
        return bool(self.address) and int(self.address, 16) < _NEVER_MAPPED

    def __str__(self) -> str:
        size = f" of {self.bytes} bytes" if self.bytes else ""
        line = f", line {self.line} of its source" if self.line else ""
        where = f", {self.where}" if self.where else ""
        text = f"{self.kind}: {self.access}{size} in {self.kernel}{line}{where}"
        if not self.thread:
            return text
        return f"{text}, by thread ({self.thread}) in block ({self.block})"


def parse(log: str) -> MemoryReport | None:
    """Find the first report in what a process has written."""
    error = _ERROR.search(log)
    if not error:
        return None
    report = log[error.start() :]
    stack = report.partition("\n\n")[0]
    access = _ACCESS.search(report)
    kernel, line = _kernel(stack)
    where = _REGION.search(report)
    address = _ADDRESS.search(report.partition("\n")[0])
    return MemoryReport(
        kind=error[1].strip(),
        access=(access[1] or access[3]).lower() if access else "access",
        bytes=int(access[2] or 0) if access else 0,
        kernel=kernel,
        line=line,
        where=_as_of_late(where[1]) if where else "",
        address=address[1] if address else "",
    )


def _as_of_late(where: str) -> str:
    """Say it as later versions do: before, inside of or after a region."""
    return where.replace("to the right of", "after").replace("to the left of", "before")


def _kernel(stack: str) -> tuple[str, int]:
    """Name the generated function that is nearest to the access, and the line.

    An intrinsic or a helper of ATen may lie between.
    """
    for name, _, line in _FRAME.findall(stack):
        if kernel := _KERNEL.search(name):
            return kernel[0], int(line)
    names = _UNLINED.findall(stack)
    kernels = [name for name in names if _KERNEL.fullmatch(name)]
    return (kernels or names or ["unknown"])[0], 0
