"""What a compiled program is made of, as the worker leaves it in a file."""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.protocol.operators import FakeMismatch
from shrinkfx.protocol.record import Reported


@dataclass(frozen=True)
class GivenInput(Reported):
    """An input or weight, as it is declared and as it was given.

    Attributes:
        name: of its placeholder.
        code: what generated code calls it.
        target: what a module calls a weight: ``blocks.3.weight``; '' of an input.
        role: ``input``, ``weight`` or what else it is.
        shape: as declared, in symbols; so are the strides.
        real_shape: as given; empty where that is not known, or of a scalar.
    """

    name: str
    code: str
    target: str
    role: str
    shape: tuple[str, ...]
    stride: tuple[str, ...]
    dtype: str
    device: str
    real_shape: tuple[int, ...] = ()
    real_stride: tuple[int, ...] = ()


@dataclass(frozen=True)
class Carrier(Reported):
    """A dim of an input that carries a symbol, and what is declared there."""

    input: str
    dim: int
    size: str


@dataclass(frozen=True)
class Symbol(Reported):
    """A size that is not fixed.

    Attributes:
        least: the range that is declared; '' where there is none.
        value: in the run that failed; None where that depends on data.
        guards: conditions on it that the program holds.
    """

    name: str
    least: str
    most: str
    value: int | None
    carriers: tuple[Carrier, ...] = ()
    guards: tuple[str, ...] = ()


@dataclass(frozen=True)
class LineOrigin(Reported):
    """Which nodes of the program a line of generated code was written for.

    Attributes:
        variable: that it assigns, or ''.
        expression: what it assigns, or the line.
    """

    variable: str
    expression: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class KernelText(Reported):
    """A generated kernel.

    Attributes:
        first_line: of ``text`` in its file as AOTInductor would write it; 0: unknown.
        inside: it is of a graph within the program, whose nodes have names of its own.
    """

    name: str
    text: str
    origins: tuple[LineOrigin, ...] = ()
    first_line: int = 0
    inside: bool = False


@dataclass(frozen=True)
class KernelLaunch(Reported):
    """A launch in the program's order, and what the wrapper passes."""

    kernel: str
    arguments: tuple[str, ...]
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class MadeBuffer(Reported):
    """A buffer between kernels, as it is declared.

    Attributes:
        nodes: what it is computed by.
        result: the node that it is the result of; '' of a part on the way to one.
        instead_of: the buffer whose memory it is written over, or ''.
        handed: an operator that was called has made it and its memory, however that
            lies; all other memory is made as it is declared.
    """

    name: str
    nodes: tuple[str, ...]
    result: str
    shape: tuple[str, ...]
    stride: tuple[str, ...]
    dtype: str
    instead_of: str = ""
    handed: bool = False


@dataclass(frozen=True)
class EagerLayout(Reported):
    """How a node's value lies in memory in eager.

    Attributes:
        nbytes: from its first element to its last.
        declared: the same as declared; 0 where that depends on data.
    """

    node: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    nbytes: int = 0
    declared: int = 0


@dataclass(frozen=True)
class EagerState(Reported):
    """What a buffer holds in eager before the last call of a program.

    Attributes:
        input: its placeholder.
        call: from 1.
        written: the node whose value is written into it after each call.
        least: its smallest element, as a number is printed; so is ``most``.
    """

    input: str
    call: int
    written: str
    least: str
    most: str


@dataclass(frozen=True)
class EagerRange(Reported):
    """What a node's whole numbers lie between in eager."""

    node: str
    least: int
    most: int


@dataclass(frozen=True)
class StrayAccess(Reported):
    """What the interpreter has found, in numbers.

    Attributes:
        fault: ``load``, ``store``, ``assert`` and so on.
        user: it is a kernel of the user's.
        made_up: so are its arguments: AOTInductor timed it while it compiled.
        line: of ``text``, from 0; -1 where it is not known.
        text: of the kernel that was run.
        argument: its parameter; '' of an assertion.
        values: ``name=4``: whole numbers of the kernel in the first lane concerned.
        launch: which of its kernel's launches it was, from 1.
    """

    fault: str
    kernel: str
    user: bool
    line: int
    text: str
    argument: str = ""
    role: str = ""
    offset: int = 0
    elements: int = 0
    item_bytes: int = 0
    lanes: int = 0
    program: tuple[int, ...] = ()
    grid: tuple[int, ...] = ()
    launch: int = 0
    message: str = ""
    values: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    made_up: bool = False


@dataclass(frozen=True)
class TimedSize(Reported):
    """A size that AOTInductor times a kernel with, and that is not its graph's.

    Attributes:
        name: what the wrapper passes: ``ps0``.
        graph: that the kernel is of; '' for the program itself.
        stands_for: what ``name`` is in that graph: ``s27*s77``.
        meant: what that is at the sizes that AOTInductor knows.
        asked: the graph in whose table it was looked up instead.
        there: what ``name`` is in that one; '' if it has none.
        value: what the kernel is timed with.
        is_fallback: that is Inductor's number for a size that it does not know.
    """

    kernel: str
    name: str
    graph: str
    stands_for: str
    meant: int
    asked: str
    there: str
    value: int
    is_fallback: bool


UNTOLD = "untold"
"""A file in the folder for it: why nothing of it is known."""


@dataclass(frozen=True)
class Anatomy(Reported):
    """What a compiled program is made of.

    Attributes:
        launches: in the order of the program.
        eager: of nodes that hold whole numbers, in the last call.
        states: of buffers that are written, where there is more than one call.
        real: of nodes whose operators hand memory of their own to what is compiled.
        untrue: results of operators that are not what is declared of them.
        stray: what the interpreter has found, or None.
        guards_unknown: why nobody knows the guards on its symbols, or ''.
        timed: sizes that kernels are timed with while it is compiled.
    """

    inputs: tuple[GivenInput, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    kernels: tuple[KernelText, ...] = ()
    launches: tuple[KernelLaunch, ...] = ()
    buffers: tuple[MadeBuffer, ...] = ()
    eager: tuple[EagerRange, ...] = ()
    states: tuple[EagerState, ...] = ()
    real: tuple[EagerLayout, ...] = ()
    untrue: tuple[FakeMismatch, ...] = ()
    stray: StrayAccess | None = None
    guards_unknown: str = ""
    timed: tuple[TimedSize, ...] = ()

    def kernel(self, name: str) -> KernelText | None:
        return next((k for k in self.kernels if k.name == name), None)
