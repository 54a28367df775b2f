"""The tasks of a child process, one record for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from shrinkfx.program.edits import Rewrite
from shrinkfx.protocol.answers import COMMON_ANSWERS, Answer, Checked, Done
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
    """A task for a child process; see the subclasses.

    Attributes:
        doing: what takes time during the task, in words for the waiting user.
        answer: the expected type of the answer.
    """

    doing: ClassVar[str]
    answer: ClassVar[type[Answer]] = Done

    def require(self, answer: Answer) -> Answer:
        """Return the answer if its type fits this task.

        Raises:
            TypeError: the answer belongs to another task.
        """
        if not isinstance(answer, (self.answer, *COMMON_ANSWERS)):
            task, other = type(self).__name__, type(answer).__name__
            raise TypeError(f"{task} is answered with {self.answer.__name__}: {other}")
        return answer


@dataclass(frozen=True)
class Describe(Task):
    """Run the input program in eager, save every value, answer with the skeleton."""

    doing = "running the program in eager"
    answer = Description


@dataclass(frozen=True)
class Examine(Task):
    """Run the input program in eager at several sizes, and test its custom operators.

    Attributes:
        findings: a file for the findings, one line of JSON each.
        seconds: the time limit.
    """

    doing = "running the program in eager, with an eye on custom operators"
    answer = Examined

    findings: str
    seconds: float


@dataclass(frozen=True)
class ExamineCandidate(Task):
    """Run a candidate in eager on its inputs, and test its custom operators.

    Attributes:
        findings: a file for the findings, one line of JSON each.
        seconds: the time limit.
    """

    doing = "running the result in eager, with an eye on custom operators"
    answer = Examined

    candidate: Mapping[str, Any]
    findings: str
    seconds: float


@dataclass(frozen=True)
class CheckOriginal(Task):
    """Compile and run the program exactly as the file contains it."""

    doing = "compiling or running the program as it is"
    answer = Checked


@dataclass(frozen=True)
class CheckCandidate(Task):
    """Rebuild a candidate, compile it and run it.

    Attributes:
        candidate: the JSON of ``Candidate.to_json``.
    """

    doing = "compiling or running a candidate"
    answer = Checked

    candidate: Mapping[str, Any]


@dataclass(frozen=True)
class SaveCandidate(Task):
    """Rebuild a candidate, run it in eager mode and save it for the user's command.

    Attributes:
        path: the path for the ``.pt2``.
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
        path: the path for the ``.pt2``.
        data: a file for values that are too long for Python source.
        anonymous: print it without the names of the user's model.
        at_passing: print it only for the inputs on which it must pass.
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
    """Print a candidate as statements, and its inputs and weights as tensor specs.

    Attributes:
        data: a file for values that are too long for Python source.
    """

    doing = "writing a candidate down as statements"
    answer = Listed

    candidate: Mapping[str, Any]
    data: str


@dataclass(frozen=True)
class FitRewrites(Task):
    """Find the rewrites of a printed program that are valid, without compiling.

    Attributes:
        rewrites: the rewrites, each tried separately.
    """

    doing = "trying rewrites with fake tensors"
    answer = Fitted

    candidate: Mapping[str, Any]
    rewrites: tuple[Rewrite, ...]


@dataclass(frozen=True)
class FindSpace(Task):
    """List the dynamic sizes of the input program."""

    doing = "reading its sizes"
    answer = OpenSizes


@dataclass(frozen=True)
class CompileOriginal(Task):
    """Compile the input program into the package that ``CheckAtSizes`` runs."""

    doing = "compiling the program"


@dataclass(frozen=True)
class CheckAtSizes(Task):
    """Run the input program at specific sizes, on inputs generated for them.

    Attributes:
        sizes: a number for each symbol.
        outside: whether the sizes are outside the declared ranges, so that the program
            must refuse them.
    """

    doing = "running the program at selected sizes"
    answer = Checked

    sizes: Mapping[str, int]
    seed: int
    outside: bool = False


@dataclass(frozen=True)
class SaveInputs(Task):
    """Save the inputs that ``CheckAtSizes`` generates.

    Attributes:
        passing: the sizes of an earlier call on which the program passes; None if there
            is none.
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
        wanted: setting -> the value that a check would use.
    """

    doing = "reading settings of Inductor"
    answer = Settings

    wanted: InductorOptions


@dataclass(frozen=True)
class ListOwnEntries(Task):
    """List the entries that preloads added to Inductor's tables."""

    doing = "reading tables of Inductor"
    answer = Entries


@dataclass(frozen=True)
class CollectVersions(Task):
    """Return the output of ``torch.utils.collect_env`` on this machine."""

    doing = "collecting versions"
    answer = Collected


@dataclass(frozen=True)
class InspectEnvironment(Task):
    """Inspect the environment without a program: Triton, GPUs, tools, private names."""

    doing = "inspecting the environment"
    answer = Inspected


@dataclass(frozen=True)
class ExportSample(Task):
    """Export a program of two operators and save it.

    Attributes:
        path: the path for the ``.pt2``.
    """

    doing = "exporting a program of two operators"

    path: str


@dataclass(frozen=True)
class RunPreload(Task):
    """Run a script that registers operators, then a program that needs them, in eager.

    Attributes:
        path: the Python file that registers the operators.
        model: the ``.pt2`` that needs them.
        operators: the operators that the file must register.
    """

    doing = "looking for what of the preloads is needed"
    answer = Registered

    path: str
    model: str
    operators: tuple[str, ...]


@dataclass(frozen=True)
class ExportRunnable(Task):
    """Run the code of a graph that torch.compile dumped, and export the module.

    Attributes:
        path: the file with the code.
        save_dir: the folder with the values of its arguments, or ''.
        program: the path for the exported program.
    """

    doing = "running the code of a graph, and exporting that"
    answer = Exported

    path: str
    save_dir: str
    program: str


@dataclass(frozen=True)
class RunRunnable(Task):
    """Run dumped graph code as its own ``main`` would, compiled by torch.compile."""

    doing = "running a graph as torch.compile does"

    path: str
    save_dir: str


@dataclass(frozen=True)
class RunScript(Task):
    """Run a Python file as ``__main__``.

    Attributes:
        cwd: the working directory.
        padding: bytes to add to the environment of a new interpreter, because the size
            of the environment moves the stack.
    """

    doing = "running repro.py"

    path: str
    cwd: str
    padding: int = 0


@dataclass(frozen=True)
class RunCommand(Task):
    """Replace the child process by the user's command."""

    doing = "running --check"

    words: tuple[str, ...]
    cwd: str


@dataclass(frozen=True)
class ForkServer(Task):
    """Fork another server, which answers on a connection of its own.

    Attributes:
        directory: the folder for its log and its children; it connects to the socket in
            this folder (``LINE``).
        mark: the mark by which the server and its descendants can be found.
        servers: the number of servers that share the disk.
        gpu: the index of its GPU in ``Setup.gpus``, if there are any.
    """

    doing = "starting a process"

    directory: str
    mark: str
    servers: int
    gpu: int = 0


LINE = "line"
"""The socket in the folder of a forked server, where the parent waits for it."""
