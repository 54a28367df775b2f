"""Records that a child writes while it runs, because it may die before it answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shrinkfx.protocol.choices import Subsystem
from shrinkfx.protocol.record import Message


@dataclass(frozen=True)
class Launch(Message):
    """A launch of a kernel, and the nodes that the kernel computes."""

    kernel: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Excerpt(Message):
    """Generated code around a line that a compiler rejects.

    Attributes:
        first: the line number of the first entry of ``lines``; ``line`` is that of the
            rejected line.
        function: the function that contains the line, or ''.
    """

    first: int
    line: int
    lines: tuple[str, ...]
    function: str = ""


@dataclass(frozen=True)
class Code(Message):
    """The addresses of a kernel's machine code in a process."""

    kernel: str
    start: int
    size: int


@dataclass(frozen=True)
class Traces(Message):
    """Evidence of the nodes that a failure comes from.

    Attributes:
        launches: kernel launches in the order of the compiled program.
        message: the message of the exception that ended compilation, or ''.
        raised_at: nodes that the compiler was processing, those of the innermost call
            first.
        kernel: the kernel that the compiler was processing, or ''.
        launch: which launch of the named kernel failed, from 1; 0 if unknown.
        excerpt: generated code that g++ rejects, or None.
        code: the addresses of kernels, if the process was about to run them.
        at_work: the operator that the compiler was processing in Inductor's graph, such
            as ``aten.lerp.Tensor``; '' if there was no single one.
    """

    launches: tuple[Launch, ...] = ()
    message: str = ""
    raised_at: tuple[tuple[str, ...], ...] = ()
    kernel: str = ""
    launch: int = 0
    excerpt: Excerpt | None = None
    code: tuple[Code, ...] = ()
    at_work: str = ""


@dataclass(frozen=True)
class Application(Message):
    """A pass that Inductor reached, or an operator that it started to lower.

    Attributes:
        number: the number of the application in its subsystem, from 0, as
            ``TORCH_BISECT_MAX`` counts.
        name: the name of the pass, or the operator's target such as
            ``aten.roll.default``.
        node: the name of the operator's node in Inductor's graph, or ''.
        origin: the target before decomposition, such as ``aten.gelu.default``, or ''.
    """

    subsystem: Subsystem
    number: int
    name: str
    node: str = ""
    origin: str = ""


LOWERING = "lowering"
"""A file that exists in a server's folder while the server makes its first lowering."""


class ArtifactFile(StrEnum):
    """The files that a check leaves in a folder for a reader of the generated code."""

    SOURCES = "sources"
    """Generated code, as Inductor wrote it."""
    LOG = "inductor.log"
    """The log of ``TORCH_LOGS=+inductor,output_code``."""
    TRACE = "trace"
    """The folder of ``TORCH_TRACE``."""
