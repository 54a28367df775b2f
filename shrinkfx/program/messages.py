"""What parent and worker say to each other: frozen records, as JSON lines.

Never pickle: nothing that a model file holds is executed by reading an answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

from shrinkfx.program.words import plain

TIMES = 30
"""How many times its limit work may take by the clock, where the machine is busy."""

MARK = "SHRINKFX_SERVER"
"""A variable that a server is started with, and all below it inherit: whose it is, a
colon, and a number of its own."""


@dataclass(frozen=True)
class Message:
    """A record that is one line of JSON and back; an unknown field is an error."""

    def to_line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read a record; what JSON does not have (enums, tuples, records) is made anew.

        Raises:
            TypeError: a field is unknown, or one without a default is missing.
            ValueError: a value is none of its enum's.
        """
        hints = get_type_hints(cls)
        if unknown := sorted(data.keys() - {f.name for f in fields(cls)}):
            raise TypeError(f"{cls.__name__} has no {', '.join(unknown)}")
        return cls(**{name: _read(hints[name], value) for name, value in data.items()})

    @classmethod
    def from_line(cls, line: str | bytes) -> Self:
        return cls.from_json(json.loads(line))


def _read(hint: Any, value: Any) -> Any:  # noqa: ANN401 - any type, any value
    """Make of a JSON value what a field's type says."""
    if get_origin(hint) in (Union, UnionType):
        hint = next(h for h in get_args(hint) if h is not NoneType)
        return None if value is None else _read(hint, value)
    if get_origin(hint) is tuple:
        return tuple(_read(get_args(hint)[0], item) for item in value)
    if isinstance(hint, type) and issubclass(hint, Message):
        return hint.from_json(value)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint(value)
    return value


@dataclass(frozen=True)
class Reported(Message):
    """What a worker says: here texts of others come in, and are made plain."""

    @classmethod
    def from_line(cls, line: str | bytes) -> Self:
        return cls.from_json(json.loads(line, object_hook=_in_plain_words))


def _in_plain_words(data: dict[str, Any]) -> dict[str, Any]:
    return {name: _plain_value(value) for name, value in data.items()}


def _plain_value(value: object) -> object:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list):  # of texts, at the most; else its objects were met
        return [plain(text) if isinstance(text, str) else text for text in value]
    return value


class Backend(StrEnum):
    """What compiles and runs a program."""

    AUTO = "auto"
    """The interpreter for a CUDA program where there is no CUDA device."""
    AOTI = "aoti"
    """AOTInductor, as users call it."""
    INTERPRETER = "interpreter"
    """Inductor's CUDA kernels, on Triton's interpreter, with every access checked."""


ARCHS = ("sm_90", "sm_80", "sm_100")
"""GPUs that kernels can be made for where there is none; the default first."""


class Probe(StrEnum):
    """What the interpreter looks at; each finds what the others cannot."""

    REAL = "real"
    """The kernels of Inductor's Python wrapper, on the failing inputs."""
    HINTS = "hints"
    """AOTInductor's kernels, on what it makes up to time them while compiling."""
    CONTRACT = "contract"
    """Sizes and strides: of operators that no kernel computes, and of inputs."""
    COMPILE = "compile"
    """What Triton and ptxas say of AOTInductor's kernels; none is run."""


class Guard(StrEnum):
    """What new tensors lie against, in a server that has guard pages."""

    OFF = "off"
    AFTER = "after"
    """An inaccessible page follows: an overrun faults."""
    BEFORE = "before"
    """An inaccessible page precedes: an underrun faults."""


class Build(StrEnum):
    """How AOTInductor's library is built, for a program on the CPU."""

    FAST = "fast"
    """With the part that all models share compiled once; the same code in it."""
    STOCK = "stock"
    """As AOTInductor does it."""


class Weights(StrEnum):
    """Where a compiled program's weights are."""

    BESIDE = "beside"
    """Handed over where it is loaded, if they are many: nothing writes them."""
    INSIDE = "inside"
    """In its package, where AOTInductor puts them."""


MANY_BYTES = 4 << 20
"""Weights that a package is better without; a small check writes more than that."""


class Step(StrEnum):
    """The parts of a build, in order."""

    LOWERING = "lowering"
    """All that is done before the C++ compiler sees the program."""
    WRAPPER = "wrapper"
    KERNEL = "kernel"
    LINK = "link"


@dataclass(frozen=True)
class Setup(Message):
    """What a server needs to know before it forks; a bare one has no model.

    Attributes:
        directory: folder for values, packages and logs; the server's own.
        device: where to move the program, or None for where it is.
        arch: the GPU that kernels are made for where there is none.
        max_disk_bytes: what ``directory`` may take; None means what is free.
        reading_cpu_s: what reading the model and inputs may take; 5,000 operators
            took 39.
    """

    directory: str
    model: str | None = None
    inputs: str | None = None
    preloads: tuple[str, ...] = ()
    device: str | None = None
    inductor: Mapping[str, Any] = field(default_factory=dict)
    backend: str = Backend.AUTO
    arch: str = ARCHS[0]
    reading_cpu_s: float = 300.0
    max_disk_bytes: int | None = None


class GraphForm(StrEnum):
    """The graph that candidates are cut from."""

    FUNCTIONAL = "functional"
    """Without in-place operators, as Inductor itself sees a program."""
    IN_PLACE = "in-place"
    """As the file holds it."""
    INLINED_COND = "inlined-cond"
    """Functional, with the branches that it takes in the place of ``cond``."""


class Printed(StrEnum):
    """What is compiled of a candidate."""

    PROGRAM = "program"
    """The graph that it was rebuilt as."""
    SOURCE = "source"
    """What is exported when that is printed as Python and run."""


@dataclass(frozen=True)
class CheckOptions(Message):
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
        sanity: check its inputs and the values of each kernel.
        sanitize: build with AddressSanitizer.
        guard_pages: what tensors lie against.
        probe: what the interpreter looks at; None where it runs nothing.
        calls: of the program in one run.
        runs: how often a child may run a program that passes.
        reference: compare with eager.
        taps: inner values that are returned and compared as well.
        sought: of several outputs that differ, look first at ``nan`` or ``mismatch``.
        rtol: what is close to eager's value, relative to it; None for what usually is.
        atol: likewise, absolute.
        strict: compare strides, too.
        evidence: a file for what the failure may come from, or None.
    """

    graph: GraphForm = GraphForm.FUNCTIONAL
    form: Printed = Printed.PROGRAM
    build: Build = Build.STOCK
    only: Step | None = None
    weights: Weights = Weights.INSIDE
    package: str | None = None
    inductor: Mapping[str, Any] = field(default_factory=dict)
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
    rtol: float | None = None
    atol: float | None = None
    strict: bool = False
    evidence: str | None = None


@dataclass(frozen=True)
class Task(Message):
    """What a child is asked to do; see its subclasses.

    Attributes:
        doing: what takes the time meanwhile, in words for whoever waits.
    """

    doing: ClassVar[str]


@dataclass(frozen=True)
class Describe(Task):
    """Run the original in eager, keep every value, answer with the skeleton."""

    doing = "running the program in eager"


@dataclass(frozen=True)
class Examine(Task):
    """Run the original in eager at several sizes, and watch its custom operators.

    Attributes:
        findings: a file, a line of JSON each.
        seconds: that it may take.
    """

    doing = "running the program in eager, with an eye on custom operators"

    findings: str
    seconds: float


@dataclass(frozen=True)
class CheckOriginal(Task):
    """Compile and run the program exactly as the file holds it."""

    doing = "compiling or running the program as it is"


@dataclass(frozen=True)
class CheckCandidate(Task):
    """Rebuild a candidate, compile it and run it.

    Attributes:
        candidate: as ``Candidate.to_json`` has it.
    """

    doing = "compiling or running a candidate"

    candidate: Mapping[str, Any]


@dataclass(frozen=True)
class SaveCandidate(Task):
    """Rebuild a candidate, run it in eager and save it: for a user's command.

    Attributes:
        path: of the ``.pt2``.
        inputs: a file for its inputs.
    """

    doing = "running a candidate in eager, and saving it"

    candidate: Mapping[str, Any]
    path: str
    inputs: str


@dataclass(frozen=True)
class WriteCandidate(Task):
    """Save a candidate as ``.pt2`` and print it as Python.

    Attributes:
        path: of the ``.pt2``.
        data: a file for values that are too long for Python.
    """

    doing = "writing the result"

    candidate: Mapping[str, Any]
    path: str
    data: str


@dataclass(frozen=True)
class FindSpace(Task):
    """List the sizes that the original leaves open."""

    doing = "reading its sizes"


@dataclass(frozen=True)
class CompileOriginal(Task):
    """Compile the original into the package that ``CheckAtSizes`` runs."""

    doing = "compiling the program"


@dataclass(frozen=True)
class CheckAtSizes(Task):
    """Run the original at given sizes, on inputs made for them.

    Attributes:
        sizes: a number for each symbol.
        outside: the program does not declare them, and must refuse them.
    """

    doing = "running the program at some sizes"

    sizes: Mapping[str, int]
    seed: int
    outside: bool = False


@dataclass(frozen=True)
class SaveInputs(Task):
    """Save the inputs that ``CheckAtSizes`` makes.

    Attributes:
        passing: sizes of the run before, on which it passes; None for no such run.
    """

    doing = "saving inputs"

    sizes: Mapping[str, int]
    seed: int
    path: str
    passing: Mapping[str, int] | None = None


@dataclass(frozen=True)
class RunPreload(Task):
    """Run what registers operators, and a program that needs them, in eager.

    Attributes:
        path: of the Python file that registers them.
        model: of the ``.pt2`` that needs them.
        operators: what it must register.
    """

    doing = "looking for what of the preloads is needed"

    path: str
    model: str
    operators: tuple[str, ...]


@dataclass(frozen=True)
class RunScript(Task):
    """Run a Python file as ``__main__``.

    Attributes:
        cwd: the folder that it runs in.
    """

    doing = "running repro.py"

    path: str
    cwd: str


@dataclass(frozen=True)
class RunCommand(Task):
    """Become a command of the user's."""

    doing = "running --check"

    words: tuple[str, ...]
    cwd: str


_TASKS: Mapping[str, type[Task]] = {
    task.__name__: task for task in Task.__subclasses__()
}


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

    def to_json(self) -> dict[str, Any]:
        """State it with its task by name."""
        return {**asdict(self), "task": {type(self.task).__name__: asdict(self.task)}}

    def to_line(self) -> str:
        return json.dumps(self.to_json()) + "\n"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        ((name, told),) = data["task"].items()
        rest = {key: value for key, value in data.items() if key != "task"}
        options = CheckOptions.from_json(rest.pop("options"))
        return cls(_TASKS[name].from_json(told), options, **rest)


@dataclass(frozen=True)
class Ending(Reported):
    """How a child ended, and what it said before.

    Attributes:
        how: ``exit``, ``signal``, ``timeout``, ``late`` (by the clock), ``memory`` or
            ``cancelled``; ``server`` where that has died and cannot tell; ``lost``
            where something else in it has waited for the child.
        code: the exit status or the signal's number.
        stage: the last stage that the child noted.
        answer: the child's own JSON object, empty if it came to none.
        log: the end of its stdout and stderr.
        runs: how often it came to running the program, the last time included.
        built: what the fast build has done: the ``step`` that it came to, and why it
            was a ``fallback`` to the stock one; empty where there was none.
        operator: the one that eager was at when it was described, or ''.
        waited_s: of its seconds, those in which it waited for a core or a disk.
        runnable: threads on the machine meanwhile, its own among them.
    """

    how: str
    code: int = 0
    stage: str = "start"
    answer: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0
    log: str = ""
    runs: int = 1
    built: Mapping[str, str] = field(default_factory=dict)
    operator: str = ""
    waited_s: float = 0.0
    runnable: int = 0


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
        no_guard_pages: why there are none although they were asked for, or ''.
        beside: what the preloads have used that is not installed, as ``Beside``.
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
    ignored_options: tuple[str, ...] = ()
    no_guard_pages: str = ""
    beside: Mapping[str, Any] = field(default_factory=dict)
