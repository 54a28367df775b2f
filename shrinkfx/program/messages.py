"""What parent and worker say to each other: frozen records, as JSON lines.

Never pickle: nothing that a model file holds is executed by reading an answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Self

from shrinkfx.program.words import plain

TIMES = 30
"""How many times its limit work may take by the clock, where the machine is busy."""

MARK = "SHRINKFX_SERVER"
"""A variable that a server is started with, and all below it inherit: whose it is, a
colon, and a number of its own."""


@dataclass(frozen=True)
class Message:
    """A record that is one line of JSON and back."""

    def to_line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        known = {f.name for f in fields(cls)}
        return cls(**{key: value for key, value in data.items() if key in known})

    @classmethod
    def from_line(cls, line: str | bytes) -> Self:
        return cls.from_json(json.loads(line))


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


class Task(StrEnum):
    """What a child can be asked to do."""

    DESCRIBE = "describe"
    """Run the original in eager, keep every value, answer with the skeleton."""
    EXAMINE = "examine"
    """Run the original in eager at several sizes, and watch its custom operators."""
    ORIGINAL = "original"
    """Compile and run the program exactly as the file holds it."""
    CANDIDATE = "candidate"
    """Rebuild a candidate, compile it and run it."""
    SAVE = "save"
    """Rebuild a candidate, run it in eager and save it: for a user's command."""
    WRITE = "write"
    """Save a candidate as ``.pt2`` and print it as Python."""
    SPACE = "space"
    """List the sizes that the original leaves open."""
    COMPILE = "compile"
    """Compile the original into the package that ``SIZES`` runs."""
    SIZES = "sizes"
    """Run the original at given sizes, on inputs made for them."""
    INPUTS = "inputs"
    """Save the inputs that ``SIZES`` makes."""
    REGISTER = "register"
    """Run what registers operators, and a program that needs them, in eager."""
    SCRIPT = "script"
    """Run a Python file as ``__main__``."""
    COMMAND = "command"
    """Become a command of the user's."""


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

    def __post_init__(self) -> None:
        # JSON has no tuples.
        object.__setattr__(self, "preloads", tuple(self.preloads))


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

    task: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "ignored_options", tuple(self.ignored_options))
