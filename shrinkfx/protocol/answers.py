"""What a worker says: that it is ready, how a child ended, and what that has said.

Each task names the record of ``Answer`` that it is answered with; ``Raised``,
``Invalid``, ``Unresolved``, ``Stopped`` and ``NotSanitized`` may be there instead.
Those of tasks that check nothing are in ``descriptions.py`` and ``listed.py``.
``tasks.py`` imports these, so who has asked can read what is answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shrinkfx.program.beside import Beside
from shrinkfx.protocol.choices import Backend, Build, Step
from shrinkfx.protocol.record import Message, Named, Reported
from shrinkfx.wording import NOTHING, Words


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
class Difference(Message):
    """A result that is not eager's.

    Attributes:
        what: of a result ``values``, ``nan``, ``shape``, ``dtype``, ``device``,
            ``strides`` or ``type``; or the ``number`` of results.
        besides: what other results show: ``nan`` where this one's values are wrong but
            finite, ``values`` where it is the other way round; else ''.
    """

    what: str
    text: str
    besides: str = ""

    @property
    def is_of_values(self) -> bool:
        """Tell it from one of what is known without looking at values."""
        return self.what in ("values", "nan")


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
        missing_features: by feature, the missing name and the consequence.
    """

    error: str = ""
    subject: Words = NOTHING
    advice: Words = NOTHING
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
    missing_features: Mapping[str, str] = field(default_factory=dict)
