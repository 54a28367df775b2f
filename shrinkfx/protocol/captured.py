"""The records of a captured program, which the user's process writes.

The processes of a captured script import this module by a relative name, because their
interpreter may not have shrinkfx. So it imports the standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BEGUN, ENDED, RAISED = "begun", "ended", "raised"
"""States of a step, with which the name of its file begins."""

CALL, COMPILE, EXPORT, LOAD, SAVE = "call", "compile", "export", "load", "save"
"""Kinds of steps; ``save`` is a step of shrinkfx itself."""

STARTED = "started"
"""A file with a line for each Python process that ran the capture's startup code."""

STACK_TRACES = "stack_traces"
"""A variable of a saved graph: by variable of the graph, the user's lines of it."""

FAILED_EARLY = "failed-early"
"""A file that a process writes when ``compile_fx`` has raised an exception."""

UNDECOMPOSED = "undecomposed"
"""A file in the folder of a capture: save graphs before PyTorch decomposes them."""

MAIN = "__main__"

_DELIBERATE = ("KeyboardInterrupt", "SystemExit")
"""Exceptions that are not failures."""

Settings = Mapping[str, Any]
"""Settings of Inductor by name; each has a type of its own."""


@dataclass(frozen=True)
class Step:
    """A call into PyTorch by a process of the script.

    Attributes:
        program: the number of the program; 0 if the program was not captured.
        count: the sequence number among the steps of its kind and program in its
            process.
        where: the line of the script.
        at: nanoseconds of a clock that all processes share.
        unsaved: why the inputs of a call could not be saved.
        error: the exception that ended it.
        state: known from the name of the file.
        inputs: the inputs of a call, if they could be saved.
    """

    what: str
    program: int
    pid: int
    count: int
    where: str
    at: int = 0
    unsaved: str = ""
    error: str = ""
    state: str = BEGUN
    inputs: Path | None = None

    @property
    def has_failed(self) -> bool:
        kind = self.error.partition(":")[0]
        is_failure = self.state == RAISED and kind not in _DELIBERATE
        return self.state == BEGUN or is_failure

    @property
    def name(self) -> str:
        """The step in words, such as ``call 3 of program 1``."""
        package = f"program {self.program}"
        if not self.program:
            package = "a package from elsewhere"
        return {
            EXPORT: "torch.export.export",
            CALL: f"call {self.count} of {package}",
            COMPILE: f"compiling {package}",
            LOAD: f"loading {package}",
            SAVE: f"saving (by shrinkfx) {package}",
        }[self.what]

    @property
    def name_and_line(self) -> str:
        """The step with its line of the script, if that is known."""
        return f"{self.name} ({self.where})" if self.where else self.name


@dataclass(frozen=True)
class Origin:
    """A module that a program needs, or a library that belongs to no module.

    Attributes:
        module: its name in the user's process; ``__main__`` is the script itself, or
            code that was typed; '' for a library, or a file that no module has.
        why: why the program needs it.
        called: a function of the module registered something when it was called, so
            that an import alone does not.
        registering_calls: calls of functions of the module that registered patterns,
            such as ``install()``.
    """

    module: str
    file: str
    library: str
    is_local: bool
    why: str
    called: bool = False
    registering_calls: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImportedValue:
    """A Python expression for a function, a class or an object of a module.

    Attributes:
        name: of the function, the class or the object, within the module.
        call: the suffix that makes an object of the class, ``()`` or ``.__new__``; ''
            if ``name`` is the value itself.
        state: attributes to set afterwards, each as a Python literal.
        holder: the module of Inductor that holds the value; '' for a setting.
        wrapper: a function to call with the value first, such as ``staticmethod``.
        why_not: why no import makes the value, in a few words; ``name`` is also set for
            a function.
    """

    module: str = ""
    name: str = ""
    call: str = ""
    state: Mapping[str, str] = field(default_factory=dict)
    holder: str = ""
    wrapper: str = ""
    why_not: str = ""

    @property
    def is_of_script(self) -> bool:
        """Whether the script itself defines the value, which no process imports."""
        return self.module == MAIN

    @property
    def is_imported(self) -> bool:
        """Whether importing its module is sufficient to make the value."""
        return not (self.why_not or self.is_of_script)

    @property
    def bound(self) -> str:
        """The name in the module that the expression begins with.

        Of a function made in a function, it is the name of the outer one.
        """
        return self.name.partition(".")[0]

    @property
    def short_text(self) -> str:
        """The value in short, such as ``passes.FuseAddMul()``."""
        place = self.name if self.is_of_script else f"{self.module}.{self.name}"
        return f"{place}{'()' if self.call else ''}"


@dataclass(frozen=True)
class CapturedProgram:
    """A program that was passed to Inductor, and its compile settings.

    Attributes:
        number: 0 for an object of a session.
        where: the line that compiled it.
        unsaved: why it could not be saved.
        environment: the variables that may change what PyTorch does.
        inductor: settings with simple values that differ from PyTorch's own.
        others: the changed settings with other values, by name; and the user's
            functions in other places of Inductor, such as its table of lowerings, by
            the place as an expression.
        operators: how many it has.
        file: the ``.pt2``, or a source archive, or the script of a graph of
            torch.compile; None if it could not be saved.
    """

    number: int = 0
    where: str = ""
    unsaved: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    inductor: Settings = field(default_factory=dict)
    others: Mapping[str, ImportedValue] = field(default_factory=dict)
    operators: int = 0
    origins: tuple[Origin, ...] = ()
    file: Path | None = None
