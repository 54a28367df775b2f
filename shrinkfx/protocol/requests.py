"""Requests of the parent to a worker: how to start, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from shrinkfx.protocol.choices import (
    ARCHS,
    Backend,
    Build,
    CandidateForm,
    GraphForm,
    Guard,
    InductorOptions,
    Probe,
    Step,
    Subsystem,
    Weights,
)
from shrinkfx.protocol.comparison import ComparisonOptions
from shrinkfx.protocol.record import Message
from shrinkfx.protocol.tasks import Task

CLOCK_LIMIT_FACTOR = 30
"""The default wall-clock limit as a multiple of the time limit, for a busy machine."""


HASH_SEED = "PYTHONHASHSEED"
"""The variable that sets the order of sets of strings; Python reads it at its start."""

MARK = "SHRINKFX_SERVER"
"""The variable that marks a server and all its descendants.

Its value is the owner, a colon, and the server's own number.
"""


@dataclass(frozen=True)
class Setup(Message):
    """The settings of a server before it forks; without a model, it loads no program.

    Attributes:
        directory: the server's own folder for values, packages and logs.
        device: the device to move the program to; None leaves it where it is.
        arch: the GPU architecture to compile kernels for if there is no GPU.
        max_disk_bytes: the limit on the size of ``directory``; None means the free
            space.
        first_lowering: whether the server makes a first lowering itself; False after a
            server died of it.
        reading_cpu_s: the CPU-seconds that loading the model and inputs may take; 5,000
            operators took 39.
        gpus: the GPUs that checks are spread over, named as in
            ``CUDA_VISIBLE_DEVICES``; this process uses the first.
        unset: variables that must stay unset, even if a device requires them.
        zygote: the file descriptors of a zygote's connection, to read from and to write
            to; None to leave no zygote behind.
    """

    directory: str
    model: str | None = None
    inputs: str | None = None
    preloads: tuple[str, ...] = ()
    device: str | None = None
    inductor: InductorOptions = field(default_factory=dict)
    backend: str = Backend.AUTO
    arch: str = ARCHS[0]
    reading_cpu_s: float = 300.0
    max_disk_bytes: int | None = None
    first_lowering: bool = True
    gpus: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    zygote: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Growth(Message):
    """The message to a zygote before the ``Setup`` of the server that it becomes.

    Attributes:
        environment: variables to set; None removes a variable.
        cwd: the working directory.
    """

    environment: Mapping[str, str | None]
    cwd: str


@dataclass(frozen=True)
class LeaveOut(Message):
    """The applications that Inductor must skip, among those that it counts.

    Attributes:
        applications: a file for all applications, skipped or not, one
            ``files.Application`` per line.
        subsystems: the subsystems in which applications ``first`` to ``last`` are
            skipped.
        first: a number, from 0.
        last: a number; None for no upper end.
    """

    applications: str
    subsystems: tuple[Subsystem, ...] = ()
    first: int = 0
    last: int | None = None


@dataclass(frozen=True)
class CheckOptions(ComparisonOptions, Message):
    """How a check makes, compiles, runs and judges a program.

    Attributes:
        graph: the graph that candidates are cut from.
        form: the form in which the candidate is compiled.
        build: how its library is built.
        only: with the fast build, the only step to check; None for all steps.
        weights: where the compiled program's weights are.
        package: a file that the first check compiles into and later checks run.
        inductor: settings in addition to the user's own.
        fallback_random: draw the same random numbers as eager.
        sanity: have the package check its inputs at run time.
        sanitize: build with AddressSanitizer.
        guard_pages: the method that detects accesses outside tensors.
        probe: the mode of the interpreter; None if the interpreter is not used.
        calls: the number of program calls in one run.
        runs: how often a child may run a program that passes.
        reference: compare with eager.
        taps: inner values that are returned and compared as well.
        sought: the kind of failure that the check looks for, or ''. If several outputs
            differ, ``nan`` or ``mismatch`` decides which of them is reported first.
        evidence: a file for evidence of the failure's origin, or None.
        compiled_view: a folder for the compiled-program view and the messages of its
            kernels, or None.
        values: a file for the comparison of each kernel's values with eager, or None.
        leave_out: the applications that compilation must skip, or None.
        environment: variables of the child; an empty value removes the variable.
        leave: a folder for the files that a reader of the generated code needs, or
            None.
        kernels: the kernels whose arguments are saved there as well.
        data: a file with the values that the printed program refers to only by key;
            None if it has none.
        mismatches: the permitted fake-kernel mismatches (``FakeMismatch.about``). A
            program that has others, or none, passes; () skips this test.
        bounded: operators that must not read outside their arguments. A program that
            may call them so that they do passes; () skips this test.
        tails: operators whose output storage is smaller than declared. The program
            fails only if it fails alike for every content of the memory that follows
            (``worker/checking/with_aoti.py``).
    """

    OLD_NAMES: ClassVar[Mapping[str, str]] = {
        "anatomy": "compiled_view",
        "lies": "mismatches",
    }

    graph: GraphForm = GraphForm.FUNCTIONAL
    form: CandidateForm = CandidateForm.PROGRAM
    build: Build = Build.STOCK
    only: Step | None = None
    weights: Weights = Weights.INSIDE
    package: str | None = None
    inductor: InductorOptions = field(default_factory=dict)
    fallback_random: bool = False
    sanity: bool = False
    sanitize: bool = False
    guard_pages: Guard = Guard.OFF
    probe: Probe | None = None
    calls: int = 1
    runs: int = 1
    reference: bool = True
    taps: tuple[str, ...] = ()
    sought: str = ""
    evidence: str | None = None
    compiled_view: str | None = None
    values: str | None = None
    leave_out: LeaveOut | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    leave: str | None = None
    kernels: tuple[str, ...] = ()
    data: str | None = None
    mismatches: tuple[str, ...] = ()
    bounded: tuple[str, ...] = ()
    tails: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request(Message):
    """A request for one task, and the limits of the child that does it.

    Attributes:
        timeout_s: the limit on the child's own time (``system/own_time.py``); a longer
            check counts as a hang.
        clock_s: the wall-clock limit, after which there is no answer. None means many
            times ``timeout_s``, which only a very busy machine reaches.
        fresh: answer from a fresh interpreter instead of a fork of the server.
        one_thread: run each parallel region of the program in one thread.
    """

    task: Task
    options: CheckOptions = field(default_factory=CheckOptions)
    timeout_s: float = 600.0
    max_rss_bytes: int = 8 << 30
    fresh: bool = False
    clock_s: float | None = None
    one_thread: bool = False

    @property
    def wall_clock_limit_s(self) -> float:
        """The wall-clock limit in seconds, after which there is no answer."""
        return (
            CLOCK_LIMIT_FACTOR * self.timeout_s
            if self.clock_s is None
            else self.clock_s
        )


@dataclass(frozen=True)
class Job(Message):
    """The message to a fresh interpreter that answers one request."""

    setup: Setup
    request: Request
