"""Requests of the parent to a worker: how to start, and which task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from shrinkfx.program.edits import Rewrite
from shrinkfx.protocol.answers import (
    COMMON_ANSWERS,
    Answer,
    Checked,
    Collected,
    Description,
    Done,
    Examined,
    Exported,
    Fitted,
    Inspected,
    Listed,
    OpenSizes,
    Printed,
    Registered,
    Settings,
)
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
from shrinkfx.protocol.flags import option, require_not_negative
from shrinkfx.protocol.record import Message, Named

# User options that every check in a worker needs.
#
# ``Options`` and ``CheckOptions`` both inherit these fields, so no layer between them
# has to pass them on.


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions:
    """Differences from eager's results that do not count as failures."""

    rtol: float | None = option(
        None,
        metavar="R",
        help="relative tolerance for comparing values with eager (default: that of "
        "`torch.testing` for the dtype)",
        more="A difference counts only if it also exceeds eager's own rounding "
        "error. `repro.py` uses the same comparison",
        check=require_not_negative,
    )
    atol: float | None = option(
        None,
        metavar="A",
        help="absolute tolerance for comparing values with eager",
        check=require_not_negative,
    )
    strict: bool = option(
        False,
        help="also require the same strides as in eager, except for dims of size 1",
    )


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
        torch_compile: compile with torch.compile, not with the server's back end.
        calls: the number of program calls in one run.
        runs: how often a child may run a program that passes.
        failing_runs: how often a child runs a program with a wrong result; it stops if
            another run has another result.
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
        data: a file with the values that the printed program refers to only by key;
            None if it has none.
        mismatches: the permitted fake-kernel mismatches (``FakeMismatch.about``). A
            program that has others, or none, passes; () skips this test.
        bounded: operators that must not read outside their arguments. A program that
            may call them so that they do passes; () skips this test.
        tails: operators whose output storage is smaller than declared. The program
            fails only if it fails alike for every content of the memory that follows
            (``worker/checking/check.py``).
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
    torch_compile: bool = False
    calls: int = 1
    runs: int = 1
    failing_runs: int = 1
    reference: bool = True
    taps: tuple[str, ...] = ()
    sought: str = ""
    evidence: str | None = None
    compiled_view: str | None = None
    values: str | None = None
    leave_out: LeaveOut | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    leave: str | None = None
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

    doing = "compiling or running a program"
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
class CollectVersions(Task):
    """Return the output of ``torch.utils.collect_env`` on this machine."""

    doing = "collecting versions for the report"
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
        constants: the file with the values of its constant tensors, or ''.
        program: the path for the exported program.
    """

    doing = "running the code of a graph, and exporting that"
    answer = Exported

    path: str
    save_dir: str
    constants: str
    program: str


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
