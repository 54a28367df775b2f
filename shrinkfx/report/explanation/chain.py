"""From a kernel's failure back to the inputs: the links, and their words."""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.protocol.record import Message
from shrinkfx.report.explanation.code import CodeLine
from shrinkfx.report.explanation.operators import Operator


@dataclass(frozen=True)
class Layout(Message):
    """A tensor, as it is declared and as it was.

    Attributes:
        name: of the input, weight or buffer.
        role: ``input``, ``weight``, ``value`` or ``buffer``; the third is one that
            another part of the program made, which stands for it here.
        made_by: the operators that it is the result of; empty for an input.
        made_in: the kernel that wrote it, or ''.
        state: what a buffer held that earlier calls have written, in words; or ''.
        real_shape: empty where it is not known; in eager, if an operator has made it.
    """

    name: str
    role: str
    shape: tuple[str, ...]
    stride: tuple[str, ...]
    dtype: str
    device: str = ""
    real_shape: tuple[int, ...] = ()
    real_stride: tuple[int, ...] = ()
    made_by: tuple[Operator, ...] = ()
    made_in: str = ""
    state: str = ""

    def __str__(self) -> str:
        kind = f"{self.dtype}[{', '.join(self.shape)}]"
        if self.state:
            return f"{self.role} {self.name} {kind} ({self.state})"
        if self.made_by:
            first, *more = self.made_by
            by = f"{first} and {len(more)} more" if more else str(first)
            return f"{self.role} {self.name} {kind}, computed by {by}"
        return f"{self.role} {self.name} {kind}"


@dataclass(frozen=True)
class Step(Message):
    """A line that an index was computed by.

    Attributes:
        value: what it gave in the run that failed; None where that is not known.
        operators: which the line was written for.
        reads: what it loads, by the kernel's parameter.
    """

    code: str
    value: int | None
    operators: tuple[Operator, ...] = ()
    parameter: str = ""
    reads: Layout | None = None


_UNBOUNDED = ("int_oo", "oo")
"""What torch writes for a size that may be as large as it likes."""


@dataclass(frozen=True)
class SizeSymbol(Message):
    """A size that is not fixed: who carries it, and what is declared of it.

    Attributes:
        whole_input: which carries it in the input program, in ``whole_dim``; '' where
            that is ``input`` itself, or not known.
    """

    name: str
    value: int | None
    least: str
    most: str
    input: str
    dim: int | None
    size: str
    guards: tuple[str, ...] = ()
    whole_input: str = ""
    whole_dim: int | None = None

    def __str__(self) -> str:
        value = "" if self.value is None else f" = {self.value}"
        carried = self.size if self.size == self.name else f"{self.size}, {self.name}"
        where = f"dim {self.dim} of {self.input} ({carried}{value})"
        if self.dim is None:
            where = f"{self.name}{value}, which is no input size"
        declared = f", declared {self._range()}" if self.least else ""
        whole = f"dim {self.whole_dim} of {self.whole_input} in the input program"
        return where + declared + (f", {whole}" if self.whole_input else "")

    def _range(self) -> str:
        if self.most in _UNBOUNDED:
            return f"{self.least} or more"
        return f"{self.least}..{self.most}"


@dataclass(frozen=True)
class Limit(Message):
    """What an index was to be below.

    Attributes:
        code: as the kernel has it: ``ks0``, or a number.
        passed: what the wrapper passes for it, or ''.
    """

    code: str
    passed: str
    value: int | None
    symbols: tuple[SizeSymbol, ...] = ()


@dataclass(frozen=True)
class Access(Message):
    """An access out of its memory.

    Attributes:
        does: ``load`` or ``store``; '' where only the address is known.
        offset: in elements from the argument's first one; None where it is not known.
        elements: that the argument has; as it is declared, where no more is known.
    """

    does: str
    parameter: str
    argument: Layout | None
    offset: int | None
    elements: int | None
    item_bytes: int = 0
    lanes: int = 0
    program: tuple[int, ...] = ()
    address: str = ""


@dataclass(frozen=True)
class Refusal(Message):
    """What a compiled program that checks its inputs says of one."""

    what: str
    input: Layout | None
    dim: int | None
    expected: str
    given: str
    symbols: tuple[SizeSymbol, ...] = ()


@dataclass(frozen=True)
class Chain(Message):
    """From a kernel's failure back to the inputs; what is not known is empty.

    Attributes:
        eager_fails: eager fails on the original as well.
        kernel: its name, and which launch it was, from 1, of how many.
        fused: the operators in it.
        code: lines around the one at fault; ``file`` that their numbers are of, as
            ``text_of`` takes it.
        index: the value that was refused, and what the code calls it.
        steps: how that was computed, from loads to the line at fault.
        sizes: that it is computed from, beside the limit's.
        guilty: several only where nothing tells them apart.
        dies: the operators that its line is written for, guilty or not; all of the
            kernel's where that is not known.
        cause: at most three sentences.
        unknown: what could not be told, and why.
    """

    eager_fails: bool = False
    kernel: str = ""
    launch: int = 0
    launches: int = 0
    grid: tuple[int, ...] = ()
    fused: tuple[Operator, ...] = ()
    code: tuple[CodeLine, ...] = ()
    file: str = ""
    index: str = ""
    value: int | None = None
    limit: Limit | None = None
    steps: tuple[Step, ...] = ()
    sizes: tuple[SizeSymbol, ...] = ()
    access: Access | None = None
    refusal: Refusal | None = None
    inputs: tuple[Layout, ...] = ()
    guilty: tuple[Operator, ...] = ()
    dies: tuple[Operator, ...] = ()
    cause: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
