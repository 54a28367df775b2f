"""What a child leaves in files as it goes: it need not live to answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shrinkfx.protocol.choices import Subsystem
from shrinkfx.protocol.record import Message, Reported


@dataclass(frozen=True)
class Launch(Message):
    """A launch of a kernel, and the nodes that it computes."""

    kernel: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Excerpt(Message):
    """Lines of generated code around one that a compiler refuses.

    Attributes:
        first: the number of the first of ``lines``; ``line`` that of the one at fault.
        function: that holds it, or ''.
    """

    file: str
    first: int
    line: int
    lines: tuple[str, ...]
    function: str = ""


@dataclass(frozen=True)
class Code(Message):
    """Where a kernel's machine code lies in a process, by addresses."""

    kernel: str
    start: int
    size: int


@dataclass(frozen=True)
class Traces(Message):
    """What points at the nodes that a failure comes from.

    Attributes:
        launches: in the order of the compiled program's.
        message: of the exception that ended it, or ''.
        raised_at: nodes that the compiler was at work on, the innermost call's first.
        kernel: the one that it was at work on, or ''.
        launch: which of the launches of the kernel that is named, from 1; 0: unknown.
        excerpt: generated code that g++ refuses, or None.
        code: of kernels, where the process was about to run them.
        at_work: what the compiler was at work on calls in Inductor's graph:
            ``aten.lerp.Tensor``; '' where it is no single one.
        is_own: code of a user's own has put that into the graph.
    """

    launches: tuple[Launch, ...] = ()
    message: str = ""
    raised_at: tuple[tuple[str, ...], ...] = ()
    kernel: str = ""
    launch: int = 0
    excerpt: Excerpt | None = None
    code: tuple[Code, ...] = ()
    at_work: str = ""
    is_own: bool = False


@dataclass(frozen=True)
class Application(Message):
    """A pass that Inductor has come to, or an operator that it has come to lower.

    Attributes:
        number: from 0, among those of its subsystem, as ``TORCH_BISECT_MAX`` counts.
        name: of the pass; or what the operator calls, ``aten.roll.default``.
        node: the operator's in Inductor's graph, or ''.
        origin: what that was before it was decomposed: ``aten.gelu.default``; or ''.
    """

    subsystem: Subsystem
    number: int
    name: str
    node: str = ""
    origin: str = ""


LOWERING = "lowering"
"""A file in a server's folder while the server itself makes its first lowering."""


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
    ORIGINAL = "original"
    """Kernels of the program that was reduced."""
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
