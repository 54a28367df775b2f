"""What the parent tells a worker: how to start, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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

TIMES = 30
"""How many times its limit work may take by the clock, where the machine is busy."""


HASH_SEED = "PYTHONHASHSEED"
"""How sets of strings are ordered: read when Python starts, and never again."""

MARK = "SHRINKFX_SERVER"
"""A variable that a server is started with, and all below it inherit: whose it is, a
colon, and a number of its own."""


@dataclass(frozen=True)
class Setup(Message):
    """What a server needs to know before it forks; a bare one has no model.

    Attributes:
        directory: folder for values, packages and logs; the server's own.
        device: where to move the program, or None for where it is.
        arch: the GPU that kernels are made for where there is none.
        max_disk_bytes: what ``directory`` may take; None means what is free.
        first_lowering: make one in the server, which one before has not died of.
        reading_cpu_s: what reading the model and inputs may take; 5,000 operators
            took 39.
        gpus: those that checks are spread over, as ``CUDA_VISIBLE_DEVICES`` names them;
            this process uses the first.
        unset: variables that are not to be set, whatever a device asks for.
        stem: descriptors of a stem's line, to read from and to write to; None where no
            stem is to be left behind.
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
    stem: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Growth(Message):
    """What a stem is told before the ``Setup`` of the server that it becomes.

    Attributes:
        environment: variables to set; None takes one away.
        cwd: the folder to be in.
    """

    environment: Mapping[str, str | None]
    cwd: str


@dataclass(frozen=True)
class LeaveOut(Message):
    """What Inductor is to leave out of what it counts.

    Attributes:
        applications: a file for all that there was to apply, left out or not: a line of
            ``files.Application`` each.
        subsystems: in each of these from ``first`` to ``last`` is left out.
        first: a number, from 0.
        last: a number; None for whatever comes after the first.
    """

    applications: str
    subsystems: tuple[Subsystem, ...] = ()
    first: int = 0
    last: int | None = None


@dataclass(frozen=True)
class CheckOptions(ComparisonOptions, Message):
    """How a program is made, compiled, run and judged in a check.

    Attributes:
        graph: what it is cut from.
        form: what of it is compiled.
        build: how its library is built.
        only: with the fast build, the one step that is asked about; None for all.
        weights: where a compiled program has them.
        package: a file: the first check compiles into it, later ones run what is there.
        inductor: settings besides the user's own.
        fallback_random: draw eager's random numbers.
        sanity: have the package check its inputs when it runs.
        sanitize: build with AddressSanitizer.
        guard_pages: what tensors lie against, or what looks at them.
        probe: what the interpreter looks at; None where it runs nothing.
        calls: of the program in one run.
        runs: how often a child may run a program that passes.
        reference: compare with eager.
        taps: inner values that are returned and compared as well.
        sought: the kind of failure that is asked about, or ''. Of several outputs that
            differ, ``nan`` and ``mismatch`` say which is looked at first.
        evidence: a file for what the failure may come from, or None.
        anatomy: a folder for what it is made of and what its kernels tell, or None.
        values: a file for what each kernel has made, held against eager, or None.
        leave_out: what its compilation is to do without, or None.
        environment: variables of the child; an empty one is taken away.
        leave: a folder for what whoever reads the code wants to see, or None.
        kernels: those whose arguments are left there as well.
        data: a file for the values that a candidate's listing has by their keys alone,
            or None where it has none such.
        lies: what its operators may be wrong about in eager, and one of them must, or
            it passes: ``FakeMismatch.about``; () where nobody asks.
        bounded: operators that read nothing outside of their arguments, as it may call
            them, or it passes; () where nobody asks.
        tails: operators whose results end before they are declared to: it fails only if
            it does so whatever lies behind these ends (``worker/checking/tails.py``).
    """

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
    anatomy: str | None = None
    values: str | None = None
    leave_out: LeaveOut | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    leave: str | None = None
    kernels: tuple[str, ...] = ()
    data: str | None = None
    lies: tuple[str, ...] = ()
    bounded: tuple[str, ...] = ()
    tails: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request(Message):
    """One question; the child that answers it may not outlive the limits.

    Attributes:
        timeout_s: of its own time (``own_time.py``): what takes longer hangs.
        clock_s: by the clock; what takes longer has no answer. None is many times
            ``timeout_s``, which only a very busy machine makes of it.
        fresh: answer from a fresh interpreter instead of a fork of the server.
        one_thread: have each parallel region of the program run in one thread.
    """

    task: Task
    options: CheckOptions = field(default_factory=CheckOptions)
    timeout_s: float = 600.0
    max_rss_bytes: int = 8 << 30
    fresh: bool = False
    clock_s: float | None = None
    one_thread: bool = False

    @property
    def most_s(self) -> float:
        """Seconds by the clock after which there will be no answer."""
        return TIMES * self.timeout_s if self.clock_s is None else self.clock_s


@dataclass(frozen=True)
class Job(Message):
    """What a fresh interpreter is told that answers one request."""

    setup: Setup
    request: Request
