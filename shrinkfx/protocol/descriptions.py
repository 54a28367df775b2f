"""Answers of tasks that describe a program or the environment, without a check."""

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
    """A program after its run in eager mode.

    Attributes:
        skeleton: the path of a JSON file with the skeleton.
        eager_error: the error that eager raises, or ''.
        stopped: the operator that raises it, or ''.
        mismatches: results of operators that disagree with their fake kernels.
        custom: operators that are not part of PyTorch.
        functional: whether the program in the file has no in-place operators, branches
            or loops.
        operators: the number of operators of the program in the file.
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
    """How far the test of custom operators got.

    Attributes:
        operators: the operators that were called.
        over: whether the time limit ended the test early.
    """

    operators: tuple[str, ...]
    over: bool


@dataclass(frozen=True)
class Exported(Answer):
    """A graph of torch.compile, exported as a program.

    Attributes:
        inputs: the number of its tensor inputs.
        made_up: the number of inputs whose values are not those of the failing run.
        fixed: integer arguments that are not sizes of tensors, as expressions; they are
            constants in the exported program.
        left_out: the number of results that are not tensors, and so are omitted.
    """

    inputs: int
    made_up: int
    fixed: tuple[str, ...]
    left_out: int


@dataclass(frozen=True)
class Printed(Answer):
    """A candidate that was saved and, if possible, printed.

    Attributes:
        source: the printed source; None if the candidate cannot be printed.
        unprintable: the reason why the source is not a repro, or ''.
        two_sets: whether the failing inputs differ from the exported ones.
        passes: whether the program must pass on other inputs first.
        limits: the relative and absolute tolerance of each result, if those of
            ``torch.testing`` do not suffice.
        random: whether the program draws random numbers.
        mutates: whether the program changes its buffers or inputs.
        targets: the operators that its nodes call.
        renamed: old names of inputs and weights -> new names, for renamed ones.
        gpu: the number of the GPU that its package is loaded onto; -1 for the first GPU
            or for none.
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
    """The dynamic sizes of a program."""

    space: Space


@dataclass(frozen=True)
class Registered(Answer):
    """The effects of registering operators.

    Attributes:
        changes: what a place in PyTorch holds now, by place.
        registered: the new operators.
        exported: the result of exporting the program, which asks no operator for
            values.
        outcome: what eager returns or raises.
        modules: names of the imported modules that are not installed, other than the
            script.
        files: names of the used files in the folder of the script.
        elsewhere: paths of the used files in other folders.
        own: places of the compiler that now hold code from outside PyTorch.
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
    """The current settings of Inductor, including the user's own.

    Attributes:
        values: settings by name; settings that this version does not have are missing.
        fixed: names of the settings that the backend always sets itself.
        for_cuda: whether the program is for CUDA.
    """

    values: InductorOptions
    fixed: tuple[str, ...]
    for_cuda: bool


@dataclass(frozen=True)
class Collected(Answer):
    """The output of ``torch.utils.collect_env``.

    Attributes:
        hosts: names of this machine, which may occur in ``text``.
    """

    text: str
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Entries(Answer):
    """Entries of Inductor's tables that do not come from PyTorch.

    Attributes:
        entries: module and name of a table, and a key in the table, as text.
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
    """The rows of the environment that a worker inspects without a program."""

    rows: tuple[Row, ...]
