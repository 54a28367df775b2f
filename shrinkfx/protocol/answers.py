"""Answers of a worker: that it is ready, how a child ended, and what the child reports.

Each task names the subclass of ``Answer`` that it expects; instead of it, ``Raised``,
``Invalid``, ``Unresolved``, ``Stopped`` or ``NotSanitized`` may come. The answers to
tasks that check nothing are in ``descriptions.py`` and ``listed.py``. ``tasks.py``
imports all of them, so a caller can parse any answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shrinkfx.program.uninstalled_files import UninstalledFiles
from shrinkfx.protocol.choices import Backend, Build, Step
from shrinkfx.protocol.record import Message, Named, Reported


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
