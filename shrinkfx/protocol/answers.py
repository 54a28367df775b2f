"""What a worker says: that it is ready, how a child ended, and what that has said.

Each task names the record of ``Answer`` that it is answered with; ``Raised``,
``Invalid``, ``Unresolved``, ``Stopped`` and ``NotSanitized`` may be there instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shrinkfx.program.beside import Beside
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.listing import Listing
from shrinkfx.program.sizes import Space
from shrinkfx.protocol.choices import Backend, Build, InductorOptions, Step
from shrinkfx.protocol.record import Message, Named, Reported
from shrinkfx.protocol.source import Source


@dataclass(frozen=True)
class Answer(Named):
    """What a child says itself; see its subclasses."""


@dataclass(frozen=True)
class Raised(Answer):
    """It has raised an exception.

    Attributes:
        frames: ``torch/_inductor/ir.py:freeze``, from the outside in.
        notes: those of the exception.
    """

    type: str
    message: str
    frames: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Invalid(Answer):
    """There is nothing to judge: no program could be made of the candidate."""

    why: str


@dataclass(frozen=True)
class Unresolved(Answer):
    """It cannot be told."""

    why: str


@dataclass(frozen=True)
class Stopped(Answer):
    """The step of the build that was asked about has passed; nothing after was done."""

    why: str


@dataclass(frozen=True)
class NotSanitized(Answer):
    """There is no AddressSanitizer here."""

    why: str


@dataclass(frozen=True)
class Done(Answer):
    """It is done, and there is no more to say."""


@dataclass(frozen=True)
class Description(Answer):
    """The program after its run in eager.

    Attributes:
        skeleton: a file that holds it as JSON.
        eager_error: what eager raises, or ''.
        stopped: the operator at which it does, or ''.
        mismatches: what operators yield that is not what their fake kernels say,
            in words.
        mismatched: the names of those.
        custom: operators that are not PyTorch's own.
        functional: the file's program has no in-place operators, branches or loops.
    """

    skeleton: str
    eager_error: str
    stopped: str
    mismatches: tuple[str, ...]
    mismatched: tuple[str, ...]
    custom: tuple[str, ...]
    inputs: int
    dynamic_dims: int
    keeps_state: bool
    functional: bool = False


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
class Difference(Message):
    """A result that is not eager's.

    Attributes:
        what: ``metadata``, ``values`` or ``nan``.
        besides: what other results show: ``nan`` where this one's values are wrong but
            finite, ``values`` where it is the other way round; else ''.
    """

    what: str
    text: str
    besides: str = ""


@dataclass(frozen=True)
class Checked(Answer):
    """The program was compiled, and it ran, if that was asked.

    Attributes:
        difference: how its results differ from eager's, or None: it passes.
        differing: names of results that do, where inner values are compared.
        values_skipped: results that were not compared: eager disagrees with itself.
        unseen: what the interpreter has not run, kernel by kernel, and why.
        refused: what it raised at sizes that it does not declare, or ''.
    """

    difference: Difference | None = None
    differing: tuple[str, ...] = ()
    values_skipped: int = 0
    unseen: tuple[str, ...] = ()
    refused: str = ""


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
    """

    changes: Mapping[str, str]
    registered: tuple[str, ...]
    exported: str
    outcome: str
    modules: tuple[str, ...]
    files: tuple[str, ...]
    elsewhere: tuple[str, ...]


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
class Listed(Answer):
    """A candidate as statements.

    Attributes:
        listing: with the very values that it is given; long ones lie in a file.
        seeded: what draws values from a seed instead, of inputs and weights that have
            no plain ones; of the same dtype and range.
        data: that file; '' where there is none.
    """

    listing: Listing
    seeded: Rewrite
    data: str


@dataclass(frozen=True)
class Typed(Message):
    """What a value of a listing is, at the sizes of its example.

    Attributes:
        block: of the statement that yields it, or whose argument it is.
    """

    block: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str


@dataclass(frozen=True)
class Fitted(Answer):
    """Which rewrites make a valid program, as far as fake tensors tell.

    Attributes:
        fits: for each rewrite that was asked about all changes that it takes, those
            included that follow from it; None where it makes no valid program.
        values: what the values of the listing are as it is.
        misfit: why fake tensors do not run it as it is, or ''. Then what changes no
            type fits, and nothing else.
    """

    fits: tuple[Rewrite | None, ...]
    values: tuple[Typed, ...]
    misfit: str = ""


INSTEAD = (Raised, Invalid, Unresolved, Stopped, NotSanitized)
"""What may be there in the place of a task's own answer."""


@dataclass(frozen=True)
class Built(Message):
    """What the fast build has done.

    Attributes:
        step: that it came to.
        fallback: why it was done the stock way after all, or ''.
    """

    build: Build
    step: Step
    fallback: str = ""


@dataclass(frozen=True)
class Ending(Reported):
    """How a child ended, and what it said before.

    Attributes:
        how: ``exit``, ``signal``, ``timeout``, ``late`` (by the clock), ``memory`` or
            ``cancelled``; ``server`` where that has died and cannot tell; ``lost``
            where something else in it has waited for the child.
        code: the exit status or the signal's number.
        stage: the last stage that the child noted.
        answer: the child's own, or None if it came to none.
        log: the end of its stdout and stderr.
        runs: how often it came to running the program, the last time included.
        built: None where there was no fast build.
        operator: the one that eager was at when it was described, or ''.
        waited_s: of its seconds, those in which it waited for a core or a disk.
        runnable: threads on the machine meanwhile, its own among them.
    """

    how: str
    code: int = 0
    stage: str = "start"
    answer: Answer | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0
    log: str = ""
    runs: int = 1
    built: Built | None = None
    operator: str = ""
    waited_s: float = 0.0
    runnable: int = 0

    @property
    def raised(self) -> Raised | None:
        """The exception that ended it, or None."""
        return self.answer if isinstance(self.answer, Raised) else None


@dataclass(frozen=True)
class Ready(Reported):
    """The server's first answer: loaded, or why not.

    Attributes:
        error: '' or what went wrong, with the subject at fault.
        preload_files: the Python file behind each preload, '' where it is
            installed or a library.
        environment: variables that the device makes necessary.
        backend: the one chosen.
        for_cuda: the program is for CUDA, wherever it lies now.
        ignored_options: Inductor options that the back end sets otherwise itself.
        gpu: where the program runs, in words; '' where it needs none.
        no_guard_pages: why there are none although they were asked for, or ''.
        beside: what the preloads have used that is not installed.
        stem: the process that was left behind to become another server, or 0.
    """

    error: str = ""
    subject: str = ""
    advice: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    preload_files: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    backend: str = Backend.AOTI
    for_cuda: bool = False
    gpu: str = ""
    ignored_options: tuple[str, ...] = ()
    no_guard_pages: str = ""
    beside: Beside = field(default_factory=Beside)
    stem: int = 0
