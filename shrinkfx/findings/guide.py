"""The results of the flags of PyTorch's debugging guide on a reduced program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from shrinkfx.protocol.files import KernelAlone
from shrinkfx.protocol.record import Message


class Outcome(StrEnum):
    """What a program does under a flag."""

    SAME = "same failure"
    OTHER = "another failure"
    PASSES = "passes"
    OPEN = "no answer"
    NOT_ASKED = "not asked"


@dataclass(frozen=True)
class Row(Message):
    """A flag and its result.

    Attributes:
        flag: with its value, as in a shell; '' for none.
        command: the command that a user types.
        failure: the failure in one line; '' for none.
        output: the relevant lines of the output.
        why: why there is no result, or the flag was not tested; otherwise ''.
    """

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"said": "output"}

    flag: str
    command: str
    outcome: Outcome
    failure: str = ""
    output: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Value(Message):
    """An argument of a kernel, as the intermediate value printer reports it.

    Attributes:
        argument: the name in Inductor's wrapper: ``arg0_1``, or ``buf2``.
        minimum, maximum, mean: as printed, or ''.
        number: the value of an argument that is no tensor; the other fields are then
            empty.
    """

    kernel: str
    argument: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    elements: int = 0
    minimum: str = ""
    maximum: str = ""
    mean: str = ""
    number: str = ""

    def __str__(self) -> str:
        if self.number:
            return f"{self.kernel} receives {self.argument}: {self.number}"
        text = f"{self.kernel} receives {self.argument}: {self.dtype}{[*self.shape]}"
        if self.minimum:
            text += f", from {self.minimum} to {self.maximum}, mean {self.mean}"
        return text


@dataclass(frozen=True)
class LeftFile(Message):
    """A file that was written for further analysis.

    Attributes:
        name: relative to the folder of these files.
        what: a description of the file.
    """

    name: str
    bytes: int
    what: str


@dataclass(frozen=True)
class Guide(Message):
    """The results of the flags of PyTorch's debugging guide on a reduced program.

    Attributes:
        last_launch: the last kernel that was launched before the failure, or ''.
        values: the arguments of the failing kernel and of the kernels that feed it.
        files: the files that were written, if requested.
        left_out: files that were not written or not found, and why.
    """

    rows: tuple[Row, ...] = ()
    last_launch: str = ""
    values: tuple[Value, ...] = ()
    kernel_alone: KernelAlone | None = None
    files: tuple[LeftFile, ...] = ()
    left_out: tuple[str, ...] = ()
