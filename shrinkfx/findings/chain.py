"""The chain from a kernel's failure back to the inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from shrinkfx.findings.code import CodeLine
from shrinkfx.findings.operators import Operator
from shrinkfx.protocol.compiled_program_view import SizeSymbol as SizeSymbol
from shrinkfx.protocol.record import Message


@dataclass(frozen=True)
class Layout(Message):
    """A tensor with its declared and its actual layout.

    Attributes:
        name: of the input, weight or buffer.
        role: ``input``, ``weight``, ``value`` or ``buffer``; a ``value`` is an input of
            the reduced program that an operator of the input program computes.
        made_by: the operators that compute it; empty for an input.
        made_in: the kernel that wrote it, or ''.
        real_shape: the actual shape, that of eager for a computed tensor; empty if not
            known.
        real_stride: the actual strides, likewise.
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

    @property
    def named(self) -> str:
        """Its role and name in the reduced program, where a value is an input."""
        return f"{'input' if self.role == 'value' else self.role} {self.name}".strip()

    def __str__(self) -> str:
        text = f"{self.named} {self.dtype}[{', '.join(self.shape)}]"
        if not self.made_by:
            return text
        first, *more = self.made_by
        by = f"{first} and {len(more)} more" if more else str(first)
        if self.role == "value":
            return f"{text}, which is the result of {by} in the input program"
        return f"{text}, computed by {by}"


@dataclass(frozen=True)
class Step(Message):
    """A line of code that contributes to an index.

    Attributes:
        value: the result in the failing run; None if not known.
        operators: the operators that the line was generated for.
        parameter: the kernel's parameter that the line loads from, or ''.
        reads: the tensor that the line loads from.
    """

    code: str
    value: int | None
    operators: tuple[Operator, ...] = ()
    parameter: str = ""
    reads: Layout | None = None


@dataclass(frozen=True)
class Limit(Message):
    """The exclusive upper bound of an index.

    Attributes:
        code: the bound in the kernel: ``ks0``, or a number.
        passed: the wrapper's argument for it, or ''.
    """

    code: str
    passed: str
    value: int | None
    symbols: tuple[SizeSymbol, ...] = ()


@dataclass(frozen=True)
class Access(Message):
    """An out-of-bounds access.

    Attributes:
        does: ``load`` or ``store``; '' if only the address is known.
        parameter: the kernel's parameter that is accessed.
        argument: the tensor that was passed for it.
        offset: elements from the start of the argument; None if not known.
        elements: number of elements of the argument; the declared number if the actual
            one is not known.
        lanes: number of lanes of the ``program`` that are out of bounds.
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
class InputRejection(Message):
    """The message of a compiled program that rejects one of its inputs."""

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"given": "actual"}

    what: str
    input: Layout | None
    dim: int | None
    expected: str
    actual: str
    symbols: tuple[SizeSymbol, ...] = ()


@dataclass(frozen=True)
class Chain(Message):
    """The chain from a kernel's failure back to the inputs; unknown parts are empty.

    Attributes:
        eager_fails: eager fails on the input program as well.
        kernel: name of the kernel; ``launch`` is the number of the launch, from 1, of
            ``launches``.
        fused: the operators fused into the kernel.
        code: lines around the failing one.
        file: the file that the line numbers refer to, as ``text_of`` takes it.
        index: the code of the invalid index; ``value`` is its value.
        steps: the lines that compute the index, from loads to the failing line.
        sizes: the dynamic sizes that the index depends on, besides those of the limit.
        culprits: the culprit operators; several only if nothing distinguishes them.
        dies: the operators that the failing line was generated for, at fault or not;
            all of the kernel's if not known.
        cause: at most three sentences.
        unknown: what could not be determined, and why.
    """

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"guilty": "culprits"}

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
    refusal: InputRejection | None = None
    inputs: tuple[Layout, ...] = ()
    culprits: tuple[Operator, ...] = ()
    dies: tuple[Operator, ...] = ()
    cause: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
