"""Parse reports of memory errors: sanitizers, red zones, glibc, PyTorch and CUDA."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from shrinkfx.failure.readers import device
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.program.display_text import line_of

_HEAP = re.compile(
    r"double free or corruption|(?:malloc|calloc|realloc|free|malloc_consolidate"
    r"|munmap_chunk|mremap_chunk|unlink_chunk|tcache_\w+)\(\): "
    r"|corrupted (?:size|double-linked|unsorted)|invalid fastbin"
    r"|malloc: Assertion|Fatal glibc error: malloc"
    r"|\*\*\* (?:stack smashing|buffer overflow) detected"
)
_OUT_OF_MEMORY = re.compile(
    r"DefaultCPUAllocator: (?:can't|not enough)|std::bad_alloc"
    r"|Tried to allocate|\bMemoryError\b"
)


def classify_memory_error(text: str, stage: Stage) -> Signature | None:
    """Classify memory errors, which can occur at any stage.

    Compilation runs kernels, too.
    """
    if died := device.classify_kernel_death(text, stage):
        return died
    if found := _HEAP.search(text):
        return Signature(Kind.IMA, stage, MEMORY_FAULT, line_of(text, found))
    if found := _OUT_OF_MEMORY.search(text):
        return Signature(Kind.OOM, stage, "", line_of(text, found))
    return None


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


# Parse reports of compute-sanitizer: the kernel, the access, the line, the thread.
#
# The patterns match the output of CUDA 12 and 13.

_REPORT = re.compile(
    r"^={9} (?:Invalid __(?P<space>\w+)__ (?P<access>\w+) of size (?P<bytes>[\d,]+)"
    r"|Uninitialized __\w+__ memory (?P<read>read) of size (?P<of>[\d,]+)"
    r"|(?:Error|ERROR): Race reported between (?P<first>\w+) access"
    r" at (?P<at>[^\n]+))",
    re.MULTILINE,
)
_BODY = re.compile(r"={9} {2,}([^\n]*)")
_PLACE = re.compile(
    r"(?P<kernel>.+?)\+0x[0-9a-f]+(?: in (?P<file>\S+):(?P<line>\d+))?"
    r"(?: \[\d+ hazards\])?$"
)
_THREAD = re.compile(r"by thread \(([\d,]+)\) in block \(([\d,]+)\)")
_GPU_ADDRESS = re.compile(
    r"(?:Address|Access (?:at|to)) (0x[0-9a-f]+)(?: is ([a-z ]+))?"
)
_NEAREST = re.compile(r"and is (.*?) the nearest allocation at 0x\w+ ?of size ([\d,]+)")
_REFUSED = re.compile(
    r"^={9} (?:Internal Sanitizer )?Error: (?!Race |process )([^\n]+)", re.MULTILINE
)
_GENERATED = re.compile(r"triton_\w+")
"""Names of Inductor's kernels.

Kernels of libraries read uninitialized memory on purpose (NVIDIA/cccl#1891).
"""

UNINITIALIZED, RACE = "read of uninitialized memory", "race"


def parse_sanitizer_report(log: str) -> MemoryReport | None:
    """Return the first report on a generated kernel, else the first illegal access."""
    reports = [*_reports(log)]
    generated = (each for each in reports if _GENERATED.match(each.kernel))
    accesses = (each for each in reports if detail(each) == MEMORY_FAULT)
    return next(generated, None) or next(accesses, None)


def detail(report: MemoryReport) -> str:
    """Return the part of a report that identifies the failure."""
    return report.kind if report.kind in (UNINITIALIZED, RACE) else MEMORY_FAULT


def find_sanitizer_refusal(log: str) -> str:
    """Return the reason why compute-sanitizer refused to run; '' if it did not."""
    found = _REFUSED.search(log)
    return f"compute-sanitizer refuses: {found[1].strip()}" if found else ""


def _reports(log: str) -> Iterator[MemoryReport]:
    for found in _REPORT.finditer(log):
        lines = [found["at"]] if found["at"] else []
        for line in log[found.end() :].splitlines()[1:]:
            body = _BODY.match(line)
            if body is None:
                break
            lines.append(body[1].strip())
        yield _report(found, lines)


def _report(found: re.Match[str], lines: list[str]) -> MemoryReport:
    text = "\n".join(lines)
    kernel, line = _find_gpu_kernel(lines)
    thread, address = _THREAD.search(text), _GPU_ADDRESS.search(text)
    nearest = _NEAREST.search(text)
    if found["first"]:
        kind, access, size = RACE, found["first"].lower(), "0"
    elif found["read"]:
        kind, access, size = UNINITIALIZED, "read", found["of"]
    else:
        what = address[2] if address and address[2] else "invalid"
        kind = f"{found['space']} {what.strip()}"
        access, size = found["access"], found["bytes"]
    return MemoryReport(
        kind=kind,
        access=access,
        bytes=int(size.replace(",", "")),
        kernel=kernel,
        line=line,
        where=f"{nearest[1]} a {nearest[2]}-byte allocation" if nearest else "",
        address=address[1] if address else "",
        thread=thread[1] if thread else "",
        block=thread[2] if thread else "",
    )


def _find_gpu_kernel(lines: list[str]) -> tuple[str, int]:
    """Return the kernel and its line; for inlined code, of the outermost frame."""
    frames = [line for line in lines if line.startswith(_GPU_FRAME)]
    for place in (*reversed(frames), *lines[:1]):
        if found := _PLACE.match(place.removeprefix(_GPU_FRAME).removeprefix("at ")):
            return found["kernel"].partition("(")[0].strip(), int(found["line"] or 0)
    return UNKNOWN_KERNEL, 0


_GPU_FRAME = "Device Frame: "


_RED_ZONE_NOTE = re.compile(r"^red zones: (tensors lie between [^\n]+)$", re.MULTILINE)


def find_red_zone_note(log: str) -> str:
    """Return the worker's sentence about red zones, or ''."""
    found = _RED_ZONE_NOTE.search(log)
    return found[1] if found else ""
