"""What the checked run of a kernel can find, as data and as one line of text.

The line is what a child's exception says, so it is all that ``failure/classify.py``
sees. Its forms are fixed::

    interpreter: illegal memory access: out-of-bounds load of 4 bytes in KERNEL
    (aten.index) through in_ptr0 (input 0): element 1056 of 1056 [program (3, 0, 0),
    32 lanes] at `tmp6 = tl.load(...)`

    interpreter: device-side assert in KERNEL (aten.index): index out of bounds:
    0 <= tmp4 < 10 [program (0, 0, 0), 5 lanes] at `tl.device_assert(...)`

    interpreter: misaligned address in KERNEL (aten.add) through in_ptr0 (result of
    mylib.op): declared divisible by 16, is 4 bytes past

    interpreter: expected size 4==5, stride 1==1 at dim=0 / Error in op: mylib.op

One of the hints probe says ``interpreter, compile-time benchmark:`` instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from shrinkfx.protocol.choices import Probe


class Fault(StrEnum):
    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"
    ASSERT = "assert"
    MISALIGNED = "misaligned"
    LAYOUT = "layout"


@dataclass(frozen=True)
class KernelFinding:
    """One fault of a generated kernel, or of what it was handed.

    Attributes:
        operators: the source operators of the kernel, such as ``aten.add``.
        argument: the kernel's parameter, '' for an assertion.
        role: where that came from: ``input 0``, ``weight l.bias``,
            ``result of aten.mm``.
        offset: in elements, from the argument's first one; may be negative.
        elements: how many the argument has from its first one to its end.
        item_bytes: the size of an element.
        program: its place in the grid.
        lanes: how many of the program's lanes are concerned.
        source: the line of generated code.
        values: whole numbers that the kernel held in the first lane concerned.
        configuration: which of the kernel's was run, where it is not the first.
    """

    probe: Probe
    fault: Fault
    kernel: str = ""
    operators: tuple[str, ...] = ()
    argument: str = ""
    role: str = ""
    offset: int = 0
    elements: int = 0
    item_bytes: int = 0
    program: tuple[int, int, int] = (0, 0, 0)
    lanes: int = 0
    file: str = ""
    line: int = 0
    source: str = ""
    message: str = ""
    values: tuple[tuple[str, int], ...] = ()
    configuration: str = ""

    def __str__(self) -> str:
        benchmark = self.probe is Probe.HINTS
        who = "interpreter, compile-time benchmark" if benchmark else "interpreter"
        return f"{who}: {self._what()}"

    def _what(self) -> str:
        if self.fault is Fault.LAYOUT:
            return self.message
        kernel = f"{self.kernel} ({', '.join(self.operators)})"
        through = f"through {self.argument} ({self.role})"
        lanes = f"{self.lanes} lane" + "s" * (self.lanes != 1)
        lanes += f", {self.configuration}" * bool(self.configuration)
        where = f"[program {self.program}, {lanes}] at `{self.source}`"
        if self.fault is Fault.ASSERT:
            return f"device-side assert in {kernel}: {self.message} {where}"
        if self.fault is Fault.MISALIGNED:
            return f"misaligned address in {kernel} {through}: {self.message}"
        what = f"out-of-bounds {self.fault} of {self.item_bytes} bytes"
        place = f"element {self.offset} of {self.elements}"
        return f"illegal memory access: {what} in {kernel} {through}: {place} {where}"


class Report(Exception):
    """Faults were found; the message is the first one's line."""

    def __init__(self, findings: Sequence[KernelFinding]) -> None:
        super().__init__(str(findings[0]))
        self.findings = tuple(findings)


class Unsupported(Exception):
    """The interpreter cannot answer for this program: neither found nor passed."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"interpreter: unsupported: {reason}")
        self.reason = reason
