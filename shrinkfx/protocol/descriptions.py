"""What a child says of a program, or of PyTorch here, where nothing is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shrinkfx.program.sizes import Space
from shrinkfx.protocol.answers import Answer
from shrinkfx.protocol.choices import InductorOptions
from shrinkfx.protocol.operators import FakeMismatch
from shrinkfx.protocol.record import Message
from shrinkfx.protocol.source import Source


@dataclass(frozen=True)
class Description(Answer):
    """The program after its run in eager.

    Attributes:
        skeleton: a file that holds it as JSON.
        eager_error: what eager raises, or ''.
        stopped: the operator at which it does, or ''.
        mismatches: what operators yield that is not what their fake kernels say.
        custom: operators that are not PyTorch's own.
        functional: the file's program has no in-place operators, branches or loops.
        operators: of the file's program.
    """

    skeleton: str
    eager_error: str
    stopped: str
    mismatches: tuple[FakeMismatch, ...]
    custom: tuple[str, ...]
    inputs: int
    dynamic_dims: int
    keeps_state: bool
    functional: bool = False
    operators: int = 0


@dataclass(frozen=True)
class Examined(Answer):
    """How far the examination of custom operators came.

    Attributes:
        operators: those that were called.
        over: the time was up before it had come to its end.
    """

    operators: tuple[str, ...]
    over: bool


@dataclass(frozen=True)
class Exported(Answer):
    """A graph of torch.compile's, now an exported program.

    Attributes:
        inputs: tensors that it takes.
        made_up: those of them whose values are not the failing run's.
        fixed: numbers that it was given and that are no tensor's size, as expressions:
            they are as they were.
        left_out: results that are no tensors.
    """

    inputs: int
    made_up: int
    fixed: tuple[str, ...]
    left_out: int


@dataclass(frozen=True)
class Printed(Answer):
    """A candidate that was saved, and printed if it could be.

    Attributes:
        source: None where it could not be.
        unprintable: why its source is no repro, or ''.
        two_sets: the failing inputs are not the exported ones.
        passes: it must pass on other inputs first.
        limits: the relative and absolute tolerance of each result, where those of
            ``torch.testing`` do not do.
        random: it draws random numbers.
        mutates: it changes its buffers or inputs.
        targets: what its nodes call.
        renamed: new names of inputs and weights by old ones, where they were changed.
        gpu: the number of the one that its package is loaded onto; -1 for the first, or
            none.
        is_source_archive: whether the program was saved as a source archive, because
            ``torch.export.save`` refuses it.
    """

    source: Source | None
    unprintable: str
    two_sets: bool
    passes: bool
    limits: tuple[tuple[float, ...], ...]
    operators: int
    nodes: int
    inputs: int
    dynamic_dims: int
    random: bool
    mutates: bool
    targets: tuple[str, ...]
    renamed: Mapping[str, str] = field(default_factory=dict)
    gpu: int = -1
    is_source_archive: bool = False


@dataclass(frozen=True)
class OpenSizes(Answer):
    """The sizes that a program leaves open."""

    space: Space


@dataclass(frozen=True)
class Registered(Answer):
    """What registering operators has done.

    Attributes:
        changes: what there is in PyTorch now, by its place.
        registered: new operators.
        exported: what export makes of the program, which asks no operator for values.
        outcome: what eager returns, or raises.
        modules: those beside the script that were imported.
        files: those beside the script that were used.
        elsewhere: files that lie nowhere near.
        own: places of the compiler where code that is none of PyTorch's is now.
    """

    changes: Mapping[str, str]
    registered: tuple[str, ...]
    exported: str
    outcome: str
    modules: tuple[str, ...]
    files: tuple[str, ...]
    elsewhere: tuple[str, ...]
    own: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settings(Answer):
    """Settings of Inductor as they are, the user's own among them.

    Attributes:
        values: by name; one that this version does not have is not there.
        fixed: names of those that the back end sets itself, whatever is asked for.
        for_cuda: the program is for CUDA.
    """

    values: InductorOptions
    fixed: tuple[str, ...]
    for_cuda: bool


@dataclass(frozen=True)
class Collected(Answer):
    """What ``torch.utils.collect_env`` has found.

    Attributes:
        hosts: names of this machine, which may be among that.
    """

    text: str
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Entries(Answer):
    """Entries of Inductor's tables that are none of PyTorch's.

    Attributes:
        entries: module and name of a table, and a key there, as text.
    """

    entries: tuple[tuple[str, str], ...]


class Status(StrEnum):
    """Whether a part of an environment works."""

    WORKS = "works"
    MISSING = "missing"
    BROKEN = "broken"
    NOT_TRIED = "not tried"
    """The part needs another part, which does not work."""


@dataclass(frozen=True)
class Row(Message):
    """A part of an environment, as ``shrinkfx doctor`` lists it.

    Attributes:
        detail: a version, a path or a result; or how the part fails.
        cost: what the user loses; '' if the part works.
        remedy: what to do; '' if the part works.
    """

    part: str
    status: Status
    detail: str = ""
    cost: str = ""
    remedy: str = ""

    @property
    def works(self) -> bool:
        return self.status is Status.WORKS


@dataclass(frozen=True)
class Inspected(Answer):
    """Rows of the parts that a worker inspects without a program."""

    rows: tuple[Row, ...]
