"""What a child can be asked to do: a record for each task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from shrinkfx.program.edits import Rewrite
from shrinkfx.protocol.answers import INSTEAD, Answer, Checked, Done
from shrinkfx.protocol.choices import InductorOptions
from shrinkfx.protocol.descriptions import (
    Collected,
    Description,
    Entries,
    Examined,
    Exported,
    Inspected,
    OpenSizes,
    Printed,
    Registered,
    Settings,
)
from shrinkfx.protocol.listed import Fitted, Listed
from shrinkfx.protocol.record import Named


@dataclass(frozen=True)
class Task(Named):
    """What a child is asked to do; see its subclasses.

    Attributes:
        doing: what takes the time meanwhile, in words for whoever waits.
        answer: the record that it is answered with, if there is an answer.
    """

    doing: ClassVar[str]
    answer: ClassVar[type[Answer]] = Done

    def require(self, answer: Answer) -> Answer:
        """Refuse a record that answers another task.

        Raises:
            TypeError: this is one.
        """
        if not isinstance(answer, (self.answer, *INSTEAD)):
            task, other = type(self).__name__, type(answer).__name__
            raise TypeError(f"{task} is answered with {self.answer.__name__}: {other}")
        return answer


@dataclass(frozen=True)
class Describe(Task):
    """Run the original in eager, keep every value, answer with the skeleton."""

    doing = "running the program in eager"
    answer = Description


@dataclass(frozen=True)
class Examine(Task):
    """Run the original in eager at several sizes, and watch its custom operators.

    Attributes:
        findings: a file, a line of JSON each.
        seconds: that it may take.
    """

    doing = "running the program in eager, with an eye on custom operators"
    answer = Examined

    findings: str
    seconds: float


@dataclass(frozen=True)
class ExamineCandidate(Task):
    """Run a candidate in eager on its inputs, and watch its custom operators.

    Attributes:
        findings: a file, a line of JSON each.
        seconds: that it may take.
    """

    doing = "running the result in eager, with an eye on custom operators"
    answer = Examined

    candidate: Mapping[str, Any]
    findings: str
    seconds: float


@dataclass(frozen=True)
class CheckOriginal(Task):
    """Compile and run the program exactly as the file holds it."""

    doing = "compiling or running the program as it is"
    answer = Checked


@dataclass(frozen=True)
class CheckCandidate(Task):
    """Rebuild a candidate, compile it and run it.

    Attributes:
        candidate: as ``Candidate.to_json`` has it.
    """

    doing = "compiling or running a candidate"
    answer = Checked

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
        anonymous: print it without the names of the user's model.
        at_passing: print it for the inputs on which it must pass, and no others.
    """

    doing = "writing the result"
    answer = Printed

    candidate: Mapping[str, Any]
    path: str
    data: str
    anonymous: bool = False
    at_passing: bool = False


@dataclass(frozen=True)
class ListCandidate(Task):
    """Write a candidate down as statements, and what it is given as recipes.

    Attributes:
        data: a file for values that are too long for Python.
    """

    doing = "writing a candidate down as statements"
    answer = Listed

    candidate: Mapping[str, Any]
    data: str


@dataclass(frozen=True)
class FitRewrites(Task):
    """Tell which rewrites of a listed candidate make a valid program; compile nothing.

    Attributes:
        rewrites: each apart.
    """

    doing = "trying rewrites with fake tensors"
    answer = Fitted

    candidate: Mapping[str, Any]
    rewrites: tuple[Rewrite, ...]


@dataclass(frozen=True)
class FindSpace(Task):
    """List the sizes that the original leaves open."""

    doing = "reading its sizes"
    answer = OpenSizes


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
    answer = Checked

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
class ReadSettings(Task):
    """Look up settings of Inductor.

    Attributes:
        wanted: by name, what a check would set them to.
    """

    doing = "reading settings of Inductor"
    answer = Settings

    wanted: InductorOptions


@dataclass(frozen=True)
class ListOwnEntries(Task):
    """List what preloads have put into tables of Inductor."""

    doing = "reading tables of Inductor"
    answer = Entries


@dataclass(frozen=True)
class CollectVersions(Task):
    """Say what ``torch.utils.collect_env`` says of this machine."""

    doing = "collecting versions"
    answer = Collected


@dataclass(frozen=True)
class InspectEnvironment(Task):
    """Inspect the parts that need no program: Triton, GPUs, tools, private names."""

    doing = "inspecting the environment"
    answer = Inspected


@dataclass(frozen=True)
class ExportSample(Task):
    """Export a program of two operators, and save it.

    Attributes:
        path: of the ``.pt2``.
    """

    doing = "exporting a program of two operators"

    path: str


@dataclass(frozen=True)
class RunPreload(Task):
    """Run what registers operators, and a program that needs them, in eager.

    Attributes:
        path: of the Python file that registers them.
        model: of the ``.pt2`` that needs them.
        operators: what it must register.
    """

    doing = "looking for what of the preloads is needed"
    answer = Registered

    path: str
    model: str
    operators: tuple[str, ...]


@dataclass(frozen=True)
class ExportRunnable(Task):
    """Run code that torch.compile has left of a graph, and export what it makes.

    Attributes:
        path: of that code.
        save_dir: the folder of its arguments' values, or ''.
        program: where to save it.
    """

    doing = "running the code of a graph, and exporting that"
    answer = Exported

    path: str
    save_dir: str
    program: str


@dataclass(frozen=True)
class RunRunnable(Task):
    """Run such code as its own main would: compiled by torch.compile's Inductor."""

    doing = "running a graph as torch.compile does"

    path: str
    save_dir: str


@dataclass(frozen=True)
class RunScript(Task):
    """Run a Python file as ``__main__``.

    Attributes:
        cwd: the folder that it runs in.
        padding: bytes that a new interpreter's environment is made longer by, because
            its size moves the stack.
    """

    doing = "running repro.py"

    path: str
    cwd: str
    padding: int = 0


@dataclass(frozen=True)
class RunCommand(Task):
    """Become a command of the user's."""

    doing = "running --check"

    words: tuple[str, ...]
    cwd: str


@dataclass(frozen=True)
class ForkServer(Task):
    """Fork a server that answers beside this one, on a line of its own.

    Attributes:
        directory: a folder for its log and its children; it connects to the socket
            there (``LINE``).
        mark: by whose number it is found, and all that it starts.
        servers: how many share the disk.
        gpu: which of those in ``Setup.gpus`` it uses, where there are any.
    """

    doing = "starting a process"

    directory: str
    mark: str
    servers: int
    gpu: int = 0


LINE = "line"
"""In the folder of a forked server: the socket where it is awaited."""
