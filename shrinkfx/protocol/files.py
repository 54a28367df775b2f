"""What a child leaves in files as it goes: it need not live to answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shrinkfx.protocol.record import Message, Reported


class What(StrEnum):
    """What an operator does that it does not declare."""

    WRITES = "writes"
    SHARES = "shares"
    FAKE = "fake"
    FIXES = "fixes"


@dataclass(frozen=True)
class OperatorFinding(Reported):
    """One such thing, at the first sizes where it shows: a line of its file each."""

    operator: str
    what: What
    text: str


@dataclass(frozen=True)
class Launch(Message):
    """A launch of a kernel, and the nodes that it computes."""

    kernel: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Traces(Message):
    """What points at the nodes that a failure comes from.

    Attributes:
        launches: in the order of the compiled program's.
        message: of the exception that ended it, or ''.
        raised_at: nodes that the compiler was at work on, the innermost call's first.
        kernel: the one that it was at work on, or ''.
    """

    launches: tuple[Launch, ...] = ()
    message: str = ""
    raised_at: tuple[tuple[str, ...], ...] = ()
    kernel: str = ""


class Left(StrEnum):
    """What a check leaves in a folder for whoever reads the code of a program."""

    SOURCES = "sources"
    """Generated code, as it was written."""
    LOG = "inductor.log"
    """What is logged under ``TORCH_LOGS=+inductor,output_code``."""
    TRACE = "trace"
    """A folder of ``TORCH_TRACE``."""
    INPUTS = "inputs"
    """What a kernel was given, before it was launched."""
    KERNEL = "kernel.py"
    """A Triton kernel, alone."""
    KERNEL_DATA = "kernel_inputs.pt"
    """Its arguments, where they are too long for text."""
    KERNEL_RUN = "kernel.json"
    """A ``KernelRun``: how that has ended."""


@dataclass(frozen=True)
class KernelRun(Reported):
    """What a kernel does when it is run alone, in a process of its own.

    Attributes:
        command: that was tried.
        alike: it fails as in the program; None where it was not run.
        said: the line that tells, or why there is none.
    """

    kernel: str
    command: str
    alike: bool | None = None
    said: str = ""
