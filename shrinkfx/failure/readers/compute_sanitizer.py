"""Parse reports of compute-sanitizer: the kernel, the access, the line, the thread.

The patterns match the output of CUDA 12 and 13. In reports of older versions, the
address precedes the kernel, and there is no distance to an allocation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from shrinkfx.failure.readers.asan import UNKNOWN_KERNEL, MemoryReport
from shrinkfx.failure.signature import MEMORY_FAULT

_REPORT = re.compile(
    r"^={9} (?:Invalid __(?P<space>\w+)__ (?P<access>\w+) of size (?P<bytes>[\d,]+)"
    r"|Uninitialized __\w+__ memory (?P<read>read) of size (?P<of>[\d,]+)"
    r"|(?:Error|ERROR): Race reported between (?P<first>\w+) access"
    r" at (?P<at>[^\n]+))",
    re.MULTILINE,
)
_BODY = re.compile(r"={9} {2,}([^\n]*)")
_PLACE = re.compile(
    r"(?:0x[0-9a-f]+ in (?P<old_file>[^\s:]+):(?P<old_line>\d+):(?P<old>[^\n]+)"
    r"|0x[0-9a-f]+ in (?P<older>[^\n]+)"
    r"|(?P<kernel>.+?)\+0x[0-9a-f]+(?: in (?P<file>\S+):(?P<line>\d+))?)"
    r"(?: \[\d+ hazards\])?$"
)
_THREAD = re.compile(r"by thread \(([\d,]+)\) in block \(([\d,]+)\)")
_ADDRESS = re.compile(r"(?:Address|Access (?:at|to)) (0x[0-9a-f]+)(?: is ([a-z ]+))?")
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
    kernel, line = _kernel(lines)
    thread, address = _THREAD.search(text), _ADDRESS.search(text)
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


def _kernel(lines: list[str]) -> tuple[str, int]:
    """Return the kernel and its line; for inlined code, of the outermost frame."""
    frames = [line for line in lines if line.startswith(_FRAME)]
    for place in (*reversed(frames), *lines[:1]):
        if found := _PLACE.match(place.removeprefix(_FRAME).removeprefix("at ")):
            name = found["kernel"] or found["old"] or found["older"]
            number = found["line"] or found["old_line"] or "0"
            return name.partition("(")[0].strip(), int(number)
    return UNKNOWN_KERNEL, 0


_FRAME = "Device Frame: "
