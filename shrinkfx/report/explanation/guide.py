"""What the flags of PyTorch's debugging guide say of a minimum: a row each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
    """A flag, and what it has said.

    Attributes:
        flag: with its value, as in a shell; '' for none.
        command: what a user types.
        failure: how it has failed, in a line; '' if it has not.
        said: the lines of its output that tell.
        why: there is no answer, or it was not asked; else ''.
    """

    flag: str
    command: str
    outcome: Outcome
    failure: str = ""
    said: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Value(Message):
    """What a kernel was given, as the intermediate value printer says.

    Attributes:
        argument: ``arg0_1``, or ``buf2``; that of Inductor's wrapper.
        minimum, maximum, mean: as they are printed, '' where they are not.
        number: instead of all that, for what is no tensor.
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
        said = f"{self.kernel} receives {self.argument}: {self.dtype}{[*self.shape]}"
        if self.minimum:
            said += f", from {self.minimum} to {self.maximum}, mean {self.mean}"
        return said


@dataclass(frozen=True)
class LeftFile(Message):
    """A file that was left for whoever reads on.

    Attributes:
        name: below the folder of all of them.
        what: it is.
    """

    name: str
    bytes: int
    what: str


@dataclass(frozen=True)
class KernelAlone(Message):
    """What ``kernel.py`` does.

    Attributes:
        command: that was tried.
        alike: it fails as in the program; None where that is not known.
        said: the line that tells.
    """

    kernel: str
    command: str
    alike: bool | None
    said: str

    def __str__(self) -> str:
        how = {True: "fails alike", False: "behaves differently", None: "was not run"}
        return f"kernel.py: {self.kernel} alone {how[self.alike]}: {self.said}"


@dataclass(frozen=True)
class Guide(Message):
    """What the flags of PyTorch's debugging guide say of a minimum.

    Attributes:
        last_launch: the kernel that ran, or had run last, when it failed; or ''.
        values: what the guilty kernel and those that feed it were given.
        files: what was left, if that was asked for.
        left_out: what was not left, or not found, and why.
    """

    rows: tuple[Row, ...] = ()
    last_launch: str = ""
    values: tuple[Value, ...] = ()
    kernel_alone: KernelAlone | None = None
    files: tuple[LeftFile, ...] = ()
    left_out: tuple[str, ...] = ()
