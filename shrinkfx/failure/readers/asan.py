"""Parse reports of AddressSanitizer: the kernel, the access and the source line."""

from __future__ import annotations

import re
from dataclasses import dataclass

UNKNOWN_KERNEL = "unknown"

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
"""Bytes from address 0 that no process can map (``vm.mmap_min_addr``)."""


@dataclass(frozen=True)
class MemoryReport:
    """An illegal memory access.

    Attributes:
        kind: AddressSanitizer's term, such as ``heap-buffer-overflow``.
        access: ``read`` or ``write``.
        bytes: the size of the access in bytes; 0 if the report does not state it.
        kernel: the generated function; if there is none, the innermost function.
        line: the line in the generated source; 0 if the report does not state it.
        where: the position relative to an allocation, such as ``0 bytes after 1024-byte
            region``; or ''.
        address: the address of a SIGSEGV or of an access on a GPU; '' if the report
            does not state it.
        block, thread: the block and the thread of an access on a GPU.
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
        """Whether the access is near address 0, where nothing is ever mapped."""
        return bool(self.address) and int(self.address, 16) < _NEVER_MAPPED

    def __str__(self) -> str:
        size = f" of {self.bytes} bytes" if self.bytes else ""
        line = f", line {self.line} of its source" if self.line else ""
        where = f", {self.where}" if self.where else ""
        place = "" if self.kernel == UNKNOWN_KERNEL else f" in {self.kernel}{line}"
        text = f"{self.kind}: {self.access}{size}{place}{where}"
        if not self.thread:
            return text
        return f"{text}, by thread ({self.thread}) in block ({self.block})"


def parse_asan_report(log: str) -> MemoryReport | None:
    """Parse the first report in the output of a process."""
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
        where=_modernize_wording(where[1]) if where else "",
        address=address[1] if address else "",
    )


def _modernize_wording(where: str) -> str:
    """Convert the wording of older versions to that of later ones."""
    return where.replace("to the right of", "after").replace("to the left of", "before")


def _kernel(stack: str) -> tuple[str, int]:
    """Return the innermost generated function on the stack, and the line in it.

    An intrinsic or a helper of ATen may be between this function and the access.
    """
    for name, _, line in _FRAME.findall(stack):
        if kernel := _KERNEL.search(name):
            return kernel[0], int(line)
    names = _UNLINED.findall(stack)
    kernels = [name for name in names if _KERNEL.fullmatch(name)]
    return (kernels or names or [UNKNOWN_KERNEL])[0], 0
