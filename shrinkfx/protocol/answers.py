"""Answers of a worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.printed_program import PrintedProgram
from shrinkfx.program.sizes import Space
from shrinkfx.program.uninstalled_files import UninstalledFiles
from shrinkfx.protocol.choices import Backend, Build, InductorOptions, Step
from shrinkfx.protocol.operators import FakeMismatch
from shrinkfx.protocol.record import Message, Named, Reported
from shrinkfx.protocol.source import Source

# Each task names the subclass of ``Answer`` that it expects; instead of it,
# ``Raised``, ``Invalid``, ``Unresolved``, ``Stopped`` or ``NotSanitized`` may come.


@dataclass(frozen=True)
class Answer(Named):
    """The answer of a child process; see the subclasses."""


@dataclass(frozen=True)
class Raised(Answer):
    """The child raised an exception.

    Attributes:
        frames: frames such as ``torch/_inductor/ir.py:freeze``, outermost first.
        notes: the notes of the exception (``add_note``).
    """

    type: str
    message: str
    frames: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Invalid(Answer):
    """The candidate could not be made into a program, so there is nothing to judge."""

    why: str


@dataclass(frozen=True)
class Unresolved(Answer):
    """The check could not determine whether the candidate fails."""

    why: str


@dataclass(frozen=True)
class Stopped(Answer):
    """The child stopped early: the rest of the check could not show the failure."""

    why: str


@dataclass(frozen=True)
class NotSanitized(Answer):
    """AddressSanitizer is not available on this machine."""

    why: str


@dataclass(frozen=True)
class Done(Answer):
    """The task is done and has no other result."""


@dataclass(frozen=True)
class Difference(Message):
    """A result that differs from eager's.

    Attributes:
        what: ``values``, ``nan``, ``shape``, ``dtype``, ``device``, ``strides`` or
            ``type`` of a result; or the ``number`` of results.
        besides: a different kind of error in other results: ``nan`` if this result has
            wrong but finite values, ``values`` in the opposite case; else ''.
    """

    what: str
    text: str
    besides: str = ""

    @property
    def is_of_values(self) -> bool:
        """Whether the values differ, as opposed to the metadata."""
        return self.what in ("values", "nan")


@dataclass(frozen=True)
class Checked(Answer):
    """The program was compiled and, if the request asked for it, run.

    Attributes:
        difference: how the results differ from eager's; None if the program passes.
        differing: names of the differing results, if inner values are compared.
        values_skipped: the number of results whose values were not compared, because
            eager disagrees with itself.
        unseen: what the interpreter did not run, kernel by kernel, and the reason.
        refused: the error at sizes that the program does not declare, or ''.
    """

    difference: Difference | None = None
    differing: tuple[str, ...] = ()
    values_skipped: int = 0
    unseen: tuple[str, ...] = ()
    refused: str = ""


COMMON_ANSWERS = (Raised, Invalid, Unresolved, Stopped, NotSanitized)
"""Answers that may come instead of a task's own answer."""


@dataclass(frozen=True)
class Built(Message):
    """The result of the fast build.

    Attributes:
        step: the last step that the build reached.
        fallback: the reason why the stock build was used after all, or ''.
    """

    build: Build
    step: Step
    fallback: str = ""

    @property
    def failing_step(self) -> Step | None:
        """The step that failed; None if the stock build did all steps."""
        unknown = self.fallback and self.step is Step.LOWERING
        return None if unknown else self.step


@dataclass(frozen=True)
class Ending(Reported):
    """How a child ended, and what it reported before.

    Attributes:
        how: ``exit``, ``signal``, ``timeout``, ``late`` (wall-clock limit), ``memory``
            or ``cancelled``; ``server`` if the server died, so that the ending is
            unknown; ``lost`` if other code in the server waited for the child and took
            its exit status.
        code: the exit status or the signal number.
        stage: the last stage that the child noted.
        answer: the answer of the child, or None if it wrote none.
        log: the end of its stdout and stderr.
        runs: how often the child started to run the program, including the last time.
        built: the result of the fast build; None if there was none.
        operator: the operator that eager was running when the child ended, if it was
            describing the program; else ''.
        waited_s: the part of ``seconds`` in which the child waited for a core or a
            disk.
        runnable: the number of runnable threads on the machine meanwhile, including the
            child's.
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
        """The exception that ended the child, or None."""
        return self.answer if isinstance(self.answer, Raised) else None


@dataclass(frozen=True)
class Ready(Reported):
    """The first answer of a server: whether it loaded the program, and if not, why.

    Attributes:
        error: the error, with ``subject`` at fault; '' if there is none.
        preload_files: the Python file of each preload; '' for an installed module or a
            library.
        environment: variables that the device requires.
        backend: the selected backend.
        for_cuda: whether the program is for CUDA, wherever its tensors are now.
        ignored_options: Inductor options that the backend overrides.
        gpu: the GPU that the program runs on, in words; '' if it needs none.
        no_guard_pages: the reason why there are no guard pages although they were
            requested, or ''.
        uninstalled_files: the files used by the preloads that are not installed.
        zygote: the process id of the zygote that can become another server, or 0.
        missing_features: feature -> the missing private name and the consequence.
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
    uninstalled_files: UninstalledFiles = field(default_factory=UninstalledFiles)
    zygote: int = 0
    missing_features: Mapping[str, str] = field(default_factory=dict)


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
        lacks_gpu: whether it is for CUDA, and was exported without a GPU.
    """

    inputs: int
    made_up: int
    fixed: tuple[str, ...]
    left_out: int
    lacks_gpu: bool = False


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
        depends_on_data: whether a size or a number is read from a tensor.
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
    depends_on_data: bool = False


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


@dataclass(frozen=True)
class Listed(Answer):
    """A candidate as a printed program.

    Attributes:
        listing: the printed program with its exact input values; long ones are in a
            file.
        seeded: a rewrite that draws inputs and weights without simple values from a
            seed instead, with the same dtype and range.
        data: the path of that file; '' if there is none.
    """

    listing: PrintedProgram
    seeded: Rewrite
    data: str


@dataclass(frozen=True)
class Typed(Message):
    """The type of a value in a printed program, at the sizes of its example.

    Attributes:
        block: the block of the statement that returns the value, or whose argument it
            is.
    """

    block: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str


@dataclass(frozen=True)
class Fitted(Answer):
    """Which rewrites make a valid program, as far as fake tensors can show.

    Attributes:
        fits: for each requested rewrite, all changes that it needs, including the
            changes that follow from it; None if it makes no valid program.
        values: the types of the unchanged printed program's values.
        misfit: the reason why the unchanged printed program does not run with fake
            tensors, or ''. If it does not, exactly the rewrites that change no type
            fit.
    """

    fits: tuple[Rewrite | None, ...]
    values: tuple[Typed, ...]
    misfit: str = ""
