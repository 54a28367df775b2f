"""The compiled-program view: a worker's records about a compiled program."""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.protocol.record import Message, Reported


@dataclass(frozen=True)
class GivenInput(Reported):
    """An input or weight: its declaration and its actual layout.

    Attributes:
        name: the name of its placeholder.
        code: its name in generated code.
        target: the module attribute of a weight, such as ``blocks.3.weight``; '' for an
            input.
        role: ``input``, ``weight`` or another role.
        shape: the declared shape, in symbols; ``stride`` likewise.
        real_shape: the actual shape; empty for a scalar, or if it is unknown.
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
class SizeSymbol(Message):
    """A dynamic size, the input that carries it, and its declared range.

    Attributes:
        name: of the symbol, such as ``s77``.
        value: in the failing run; None if not known.
        least, most: the declared range.
        input, dim: the input and its dim that carry the symbol.
        size: the expression of that dim.
        whole_input: the input of the input program that carries it, in dim
            ``whole_dim``; '' if that is ``input`` itself, or not known.
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
        declared = f", declared as {self._range()}" if self.least else ""
        whole = f"dim {self.whole_dim} of {self.whole_input} in the input program"
        return where + declared + f"; it is {whole}" * bool(self.whole_input)

    @property
    def declaration(self) -> str:
        """What the exported program declares, and the size in the failing run."""
        if self.dim is None or not self.least:
            return str(self)
        where = f"dim {self.dim} of {self.input} ({self.name})"
        value = "" if self.value is None else f", and the failing run has {self.value}"
        return f"the range {self._range()} for {where}{value}"

    @property
    def is_out_of_range(self) -> bool:
        """Whether the size in the failing run is known to break the declaration."""
        bounds = (self.least, self.most)
        if self.value is None or not all(bound.isdecimal() for bound in bounds):
            return False
        return not int(self.least) <= self.value <= int(self.most)

    def _range(self) -> str:
        if self.most in ("int_oo", "oo"):  # as torch prints an unbounded size
            return f"{self.least} or more"
        return f"{self.least}..{self.most}"


@dataclass(frozen=True)
class LineOrigin(Reported):
    """The program nodes that a line of generated code was written for.

    Attributes:
        variable: the variable that the line assigns, or ''.
        expression: the assigned expression; the whole line if it assigns nothing.
    """

    variable: str
    expression: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class KernelText(Reported):
    """A generated kernel.

    Attributes:
        first_line: the line number at which ``text`` starts in the file that
            AOTInductor would write; 0 if unknown.
        inside: whether the kernel belongs to a subgraph of the program, whose nodes
            have their own names.
    """

    name: str
    text: str
    origins: tuple[LineOrigin, ...] = ()
    first_line: int = 0
    inside: bool = False


@dataclass(frozen=True)
class KernelLaunch(Reported):
    """A kernel launch, in program order, and the arguments that the wrapper passes."""

    kernel: str
    arguments: tuple[str, ...]
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class MadeBuffer(Reported):
    """A buffer between kernels, as it is declared.

    Attributes:
        nodes: the nodes that compute it.
        result: the node whose result it holds; '' for an intermediate part of a result.
        instead_of: the buffer whose memory it reuses, or ''.
    """

    name: str
    nodes: tuple[str, ...]
    result: str
    shape: tuple[str, ...]
    stride: tuple[str, ...]
    dtype: str
    instead_of: str = ""


@dataclass(frozen=True)
class EagerRange(Reported):
    """The smallest and the largest element of a node's integer value in eager mode."""

    node: str
    least: int
    most: int


@dataclass(frozen=True)
class KernelFault(Reported):
    """A fault of a generated kernel, or of a value that was passed to generated code.

    Attributes:
        kernel: the kernel, or '' for a value that was passed to generated code.
        argument: the kernel's parameter; '' for an assertion.
        role: the origin of the argument: ``input 0``, ``weight l.bias``, ``result of
            aten.mm``.
        offset: the accessed element, counted from the argument's first element; may be
            negative.
        elements: the number of elements from the argument's first element to the end of
            its storage.
        item_bytes: the size of an element in bytes.
        program: the program's position in the grid.
        lanes: the number of lanes of the program that have the fault.
        message: the text of an assertion or of a wrong layout.
    """

    kernel: str = ""
    argument: str = ""
    role: str = ""
    offset: int = 0
    elements: int = 0
    item_bytes: int = 0
    program: tuple[int, ...] = (0, 0, 0)
    lanes: int = 0
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class StrayAccess(KernelFault):
    """A finding of the interpreter, in numbers.

    Attributes:
        fault: ``load``, ``store``, ``assert`` and so on.
        user: whether the kernel is the user's.
        made_up: whether AOTInductor made up the arguments, because it benchmarked the
            kernel during compilation.
        line: the index of the failing line in ``text``, from 0; -1 if unknown.
        text: the source of the kernel that ran.
        values: integers of the kernel in the first lane concerned, as ``name=4``.
        launch: the number of the launch among those of this kernel, from 1.
    """

    fault: str
    user: bool
    line: int
    text: str
    grid: tuple[int, ...] = ()
    launch: int = 0
    values: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    made_up: bool = False


def describe_index(index: int, elements: int) -> str:
    """State an index of an argument, and whether it is out of bounds."""
    side = "past the end" if index >= elements else "inside"
    side = "before the start" if index < 0 else side
    return f"index {index}, {side} of its {elements} element{'s' * (elements != 1)}"


REASON_FILE = "untold"
"""The file that states why there is no compiled-program view, in the folder for it."""


@dataclass(frozen=True)
class Anatomy(Reported):
    """The parts of a compiled program: inputs, symbols, kernels, launches and buffers.

    Attributes:
        launches: kernel launches in program order.
        eager: value ranges of nodes that hold integers, in the last call.
        out_of_bounds: the finding of the interpreter, or None.
        guards_unknown: the reason why the guards on symbols are unknown, or ''.
    """

    inputs: tuple[GivenInput, ...] = ()
    symbols: tuple[SizeSymbol, ...] = ()
    kernels: tuple[KernelText, ...] = ()
    launches: tuple[KernelLaunch, ...] = ()
    buffers: tuple[MadeBuffer, ...] = ()
    eager: tuple[EagerRange, ...] = ()
    out_of_bounds: StrayAccess | None = None
    guards_unknown: str = ""

    def kernel(self, name: str) -> KernelText | None:
        return next((k for k in self.kernels if k.name == name), None)
