"""Try each flag of PyTorch's debugging guide on the reduced program, in a child each.

Flags that only act at run time use one package, which is compiled once.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shrinkfx.explain.reduced_program import ReducedProgram
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import Stage
from shrinkfx.findings.record import Guide, LeftFile, Outcome, Row
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.choices import Backend, InductorOptions
from shrinkfx.protocol.files import ArtifactFile
from shrinkfx.system import scratch
from shrinkfx.system.folders import draft_of

CHECK_INPUTS = "AOTI_RUNTIME_CHECK_INPUTS"
STACK_TRACES = "TORCH_SHOW_CPP_STACKTRACES"
NAN_ASSERTS = "TORCHINDUCTOR_NAN_ASSERTS"
PRINTER = "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER"
FILTER = "AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT"
NO_CACHING, BLOCKING = "PYTORCH_NO_CUDA_MEMORY_CACHING", "CUDA_LAUNCH_BLOCKING"

_NAMES = "aot_inductor.debug_intermediate_value_printer"
_FILTERED = "aot_inductor.filtered_kernel_names"

_FRAME = re.compile(r"^frame #\d+: (?!c10::|torch::|AOTI|<unknown|_)(\S+) \+")
_RAISED = re.compile(r"^Exception raised from .*? at \S*?([^/\s]+:\d+)")
_ASSERTED = re.compile(r"^\s*(assert not .*)$")
_INPUTS = re.compile(r"\w*put_handles\[\d+\]: .*|At least one (?:NaN|INF) in.*")
_LAUNCH = re.compile(r"\[ before_launch: (\S+) \]")
_SHOWN = 4
_BEFORE_IT_RUNS = (Stage.START, Stage.REBUILD, Stage.EAGER, Stage.COMPILE)


@dataclass(frozen=True)
class Flag:
    """A flag of the guide.

    Attributes:
        name: the variable that a user sets; '' for a run without a flag.
        value: its value.
        inductor: the options of Inductor that the variable sets; empty if it only acts
            at run time.
        output: patterns of the output lines that it adds.
        no_interpreter: why it has no meaning on the interpreter, or ''.
        for_cuda: what of CUDA it is for; '' if it acts on the CPU too.
    """

    name: str
    value: str = "1"
    inductor: InductorOptions = field(default_factory=dict)
    output: tuple[re.Pattern[str], ...] = ()
    no_interpreter: str = ""
    for_cuda: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.value}" if self.name else ""


FLAGS = (
    Flag(CHECK_INPUTS, output=(_INPUTS,)),
    Flag(
        STACK_TRACES,
        output=(_RAISED, _FRAME),
        no_interpreter="no C++ code of the program runs",
    ),
    Flag(
        NO_CACHING,
        no_interpreter="each tensor has its own memory, which ends with the tensor",
        for_cuda="CUDA's allocator",
    ),
    Flag(
        BLOCKING,
        no_interpreter="a launch is over before the next line runs",
        for_cuda="CUDA launches",
    ),
    Flag(NAN_ASSERTS, inductor={"nan_asserts": True}, output=(_INPUTS, _ASSERTED)),
    Flag(
        PRINTER,
        "3",
        inductor={_NAMES: "3"},
        no_interpreter="Python code prints no names; each finding names its kernel",
    ),
)
"""The flags in the order of their rows; the last one prints one kernel's arguments."""

_CUDA_FLAGS = [flag.name for flag in FLAGS if flag.for_cuda]


def _print_values(kernel: str) -> Flag:
    """Return the flag that prints the arguments of a kernel, of all if it is ''."""
    chosen = f' {FILTER}="{kernel}"' if kernel else ""
    return Flag(PRINTER, f"2{chosen}", inductor={_NAMES: "2", _FILTERED: kernel})


def run_guide(
    reduced: ReducedProgram,
    failing_kernels: tuple[str, ...],
    folder: Path | None = None,
) -> Guide:
    """Try each flag of the guide, and report its output.

    Args:
        failing_kernels: the failing kernels, the surest first. If it is empty, the last
            kernel that was launched is used.
        folder: a folder for files, which are published atomically.
    """
    with scratch.make_scratch_folder("guide") as home:
        guide = _Runner(reduced, Path(home), failing_kernels).run()
        if folder is None:
            return guide
        return publish(guide, Path(home), folder)


@dataclass
class _Runner:
    """The runs of one guide.

    Attributes:
        home: a folder for the package, and for files of child processes.
        rows: the results so far.
        why_not: why no flag is tried, or ''.
    """

    reduced: ReducedProgram
    home: Path
    kernels: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    why_not: str = ""

    def __post_init__(self) -> None:
        self._ready = self.reduced.ready
        self._on_interpreter = self._ready.backend == Backend.INTERPRETER
        # The interpreter compiles no package.
        self._package = None if self._on_interpreter else str(self.home / "model.pt2")

    def run(self) -> Guide:
        self.reduced.note("explain: running the debugging guide's flags")
        leave = str(self.home / "left")
        ending = self._try(Flag(""), leave=leave)
        if ending is not None and Stage(ending.stage) in _BEFORE_IT_RUNS:
            self.why_not = "the program fails before it runs"
        for flag in FLAGS:
            ending = self._try(flag)
        # The last one of these flags prints the names of the kernels.
        launches = _LAUNCH.findall(ending.log) if ending else []
        last = launches[-1] if launches else ""
        if last:
            line = f"launch {len(launches)}, the last one: {last}"
            self.rows[-1] = replace(self.rows[-1], output=(line,))
        kernel = (*self.kernels, last)[0]
        if not kernel:
            self.why_not = self.why_not or "the failing kernel is not known"
        self._try(_print_values(kernel))
        return Guide(tuple(self.rows), last)

    def _try(
        self,
        flag: Flag,
        **changes: Any,  # noqa: ANN401 - fields of the options
    ) -> Ending | None:
        """Run with a flag, and append a row."""
        command = " ".join(filter(None, [str(flag), "python repro.py"]))
        row, ending = Row(str(flag), command, Outcome.NOT_TESTED), None
        if why := self._explain_no_run(flag):
            row = replace(row, why=why)
        else:
            options = self.reduced.client.options
            # One flag at a time: sanity sets two, and the user's shell may set both.
            # Every check of a CUDA program sets both flags for CUDA.
            unset = {CHECK_INPUTS: "", STACK_TRACES: ""}
            environment = {**unset, **options.environment}
            if flag.for_cuda:
                environment |= dict.fromkeys(_CUDA_FLAGS, "")
            if flag.inductor:
                changes["inductor"] = {**options.inductor, **flag.inductor}
            else:
                changes["package"] = self._package
                environment |= {flag.name: flag.value} if flag.name else {}
            ending = self.reduced.ask(sanity=False, environment=environment, **changes)
            row = self._row(row, ending, flag.output)
        self.rows.append(row)
        return ending

    def _explain_no_run(self, flag: Flag) -> str:
        """Return why a flag is not tried, or ''."""
        if flag.no_interpreter and self._on_interpreter:
            return f"has no meaning on the interpreter: {flag.no_interpreter}"
        if flag.name.startswith("AOT") and self._ready.backend == Backend.INDUCTOR:
            return "the flag is for AOTInductor"
        if not self.why_not and flag.for_cuda and not self._ready.for_cuda:
            return f"the flag is for {flag.for_cuda}, and the program runs on the CPU"
        return self.why_not

    def _row(
        self, row: Row, ending: Ending | None, wanted: Sequence[re.Pattern[str]]
    ) -> Row:
        if ending is None:
            return replace(row, why="not enough time left")
        result = classify_ending(ending)
        if why := result.unresolved or result.invalid:
            return replace(row, outcome=Outcome.OPEN, why=why)
        if result.signature is None and self.reduced.rate < 1.0:
            return replace(row, outcome=Outcome.OPEN, why="only some of its runs fail")
        if result.signature is None:
            return replace(row, outcome=Outcome.PASSES)
        outcome = Outcome.SAME if self.reduced.fails(ending) else Outcome.OTHER
        failure = str(result.signature)
        output = _list_relevant_lines(wanted, ending)[:_SHOWN]
        return replace(row, outcome=outcome, failure=failure, output=output)


def _list_relevant_lines(
    wanted: Sequence[re.Pattern[str]], ending: Ending
) -> tuple[str, ...]:
    """Return the output lines that a flag produced."""
    raised = ending.raised
    text = f"{raised.message}\n{ending.log}" if raised else ending.log
    matches = (p.search(line) for line in text.splitlines() for p in wanted)
    return tuple(dict.fromkeys(_in_words(match) for match in matches if match))


def _in_words(found: re.Match[str]) -> str:
    if found.re is _FRAME:
        return f"in {found[1]}"
    if found.re is _RAISED:
        return f"raised at {found[1]}"
    return found[0].strip()


# Publish the files that checks left in ``DIR/explain/``, atomically.

MOST_BYTES = 64 << 20
"""Maximum size of all files together; the smallest files come first."""

_MARK = ".shrinkfx"
"""A file that marks a folder which shrinkfx may replace."""

_WHAT: Mapping[str, str] = {
    ArtifactFile.SOURCES: "generated code of the reduced program",
    ArtifactFile.LOG: "compilation log under TORCH_LOGS=+inductor,output_code",
    ArtifactFile.TRACE: "TORCH_TRACE of the compilation",
}


def publish(guide: Guide, home: Path, folder: Path) -> Guide:
    """Move the files of child processes from ``home`` into ``folder``, atomically.

    Returns:
        The guide, with a list of the files.
    """
    outputs = home / "left"
    outputs.mkdir(exist_ok=True)
    omitted: list[str] = []
    if not any((outputs / ArtifactFile.TRACE).glob("*.log")):
        omitted.append("TORCH_TRACE: nothing was traced")
    if folder.exists() and not (folder / _MARK).exists():
        why = f"{folder.name}/: there is one already that shrinkfx has not made"
        return replace(guide, left_out=(why,))
    draft = draft_of(folder)
    shutil.rmtree(draft, ignore_errors=True)
    files: list[LeftFile] = []
    try:
        draft.mkdir(parents=True)
        (draft / _MARK).touch()
        omitted += _copy(outputs, draft, files)
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        return replace(guide, left_out=(f"{folder.name}/: {error}",))
    return replace(guide, files=tuple(files), left_out=tuple(omitted))


def read_sources(guide: Guide, folder: Path) -> dict[str, str]:
    """Read the generated code of the reduced program from ``folder``.

    Returns:
        Text by file name in the run's folder, such as ``explain/sources/k.py``.
    """
    names = [file.name for file in guide.files]
    return {
        f"{folder.name}/{name}": (folder / name).read_text(errors="replace")
        for name in names
        if Path(name).parts[0] == ArtifactFile.SOURCES
    }


def _copy(outputs: Path, draft: Path, files: list[LeftFile]) -> Iterator[str]:
    """Copy files up to the size limit; yield why each other file is omitted."""
    remaining = MOST_BYTES
    paths = [path for path in outputs.rglob("*") if path.is_file()]
    for path in sorted(paths, key=lambda path: (path.stat().st_size, path)):
        name, size = path.relative_to(outputs), path.stat().st_size
        what = _WHAT.get(name.parts[0], "")
        if not what:
            continue
        if size > remaining:
            yield f"{name}: {size} bytes, and all files may have {MOST_BYTES}"
            continue
        remaining -= size
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, draft / name)
        files.append(LeftFile(str(name), size, what))
