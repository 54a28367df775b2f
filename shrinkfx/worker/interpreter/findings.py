"""The faults that a checked kernel run can find, as data and as one line of text.

The line is the message of the exception that ends a child, so it is all that
``failure/classify.py`` sees. Its forms are fixed::

    interpreter: illegal memory access: out-of-bounds load of 4 bytes in KERNEL
    (aten.index) through `in_ptr0` (input 0): index 1056, past the end of its 1056
    elements [program (3, 0, 0), 32 lanes] at `tmp6 = tl.load(...)`

    interpreter: device-side assert in KERNEL (aten.index): index out of bounds:
    0 <= tmp4 < 10 [program (0, 0, 0), 5 lanes] at `tl.device_assert(...)`

    interpreter: misaligned address in KERNEL (aten.add) through `in_ptr0` (result of
    mylib.op): declared divisible by 16, but is 4 bytes past a multiple

    interpreter: expected size 4==5, stride 1==1 at dim=0 / Error in op: mylib.op

A finding of the hints probe starts with ``interpreter, compile-time benchmark:``
instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from shrinkfx.protocol.choices import Probe
from shrinkfx.protocol.compiled_program_view import KernelFault, describe_index


class Fault(StrEnum):
    """The kinds of faults that the checks of the interpreter find."""

    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"
    ASSERT = "assert"
    MISALIGNED = "misaligned"
    LAYOUT = "layout"


@dataclass(frozen=True, kw_only=True)
class KernelFinding(KernelFault):
    """One fault, with the probe that found it and its place in the generated code.

    Attributes:
        operators: the kernel's source operators, such as ``aten.add``.
        source: the line of generated code.
        values: the integers that the kernel held in the first lane with the fault.
        configuration: the launch configuration, where it is not the kernel's first.
    """

    probe: Probe
    fault: Fault
    operators: tuple[str, ...] = ()
    file: str = ""
    line: int = 0
    source: str = ""
    values: tuple[tuple[str, int], ...] = ()
    configuration: str = ""

    def __str__(self) -> str:
        benchmark = self.probe is Probe.HINTS
        prefix = "interpreter, compile-time benchmark" if benchmark else "interpreter"
        return f"{prefix}: {self._what()}"

    def _what(self) -> str:
        if self.fault is Fault.LAYOUT:
            return self.message
        kernel = f"{self.kernel} ({', '.join(self.operators)})"
        through = f"through `{self.argument}` ({self.role})"
        lanes = f"{self.lanes} lane" + "s" * (self.lanes != 1)
        lanes += f", {self.configuration}" * bool(self.configuration)
        where = f"[program {self.program}, {lanes}] at `{self.source}`"
        if self.fault is Fault.ASSERT:
            return f"device-side assert in {kernel}: {self.message} {where}"
        if self.fault is Fault.MISALIGNED:
            return f"misaligned address in {kernel} {through}: {self.message}"
        what = f"out-of-bounds {self.fault} of {self.item_bytes} bytes"
        place = describe_index(self.offset, self.elements)
        return f"illegal memory access: {what} in {kernel} {through}: {place} {where}"


class Report(Exception):
    """The checks found faults; the message is the line of the first finding."""

    def __init__(self, findings: Sequence[KernelFinding]) -> None:
        super().__init__(str(findings[0]))
        self.findings = tuple(findings)


class Unsupported(Exception):
    """The interpreter cannot run this program, so it neither failed nor passed."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"interpreter: unsupported: {reason}")
        self.reason = reason
