"""Try each flag of PyTorch's debugging guide on the reduced program, in a child each.

Flags that only act at run time use one package, which is compiled once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from shrinkfx.check.oracle import CheckClient
from shrinkfx.explain.artifacts import publish
from shrinkfx.explain.feeding import find_feeding_kernels, find_reused_buffers
from shrinkfx.explain.original import NOT_REQUESTED, OriginalKernels
from shrinkfx.explain.reduced_program import ReducedProgram
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import Stage
from shrinkfx.findings.guide import Guide, Outcome, Row, Value
from shrinkfx.protocol.answers import Ending, Ready
from shrinkfx.protocol.choices import Backend, InductorOptions
from shrinkfx.protocol.files import ArtifactFile, Traces
from shrinkfx.system import scratch

T = TypeVar("T")

CHECK_INPUTS = "AOTI_RUNTIME_CHECK_INPUTS"
STACK_TRACES = "TORCH_SHOW_CPP_STACKTRACES"
NAN_ASSERTS = "TORCHINDUCTOR_NAN_ASSERTS"
PRINTER = "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER"
FILTER = "AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT"
NO_CACHING, BLOCKING = "PYTORCH_NO_CUDA_MEMORY_CACHING", "CUDA_LAUNCH_BLOCKING"

_NAMES = "aot_inductor.debug_intermediate_value_printer"
_FILTERED = "aot_inductor.filtered_kernel_names"

_NO_MEANING = "has no meaning on the interpreter: {}"
_ON_INTERPRETER: Mapping[str, str] = {
    f"{STACK_TRACES}=1": "no C++ code of the program runs",
    f"{NO_CACHING}=1": "each tensor has its own memory, which ends with the tensor",
    f"{BLOCKING}=1": "a launch is over before the next line runs",
    f"{PRINTER}=3": "Python code prints no names; each finding names its kernel",
}
_ON_CPU: Mapping[str, str] = {
    NO_CACHING: "the flag is for CUDA's allocator, and the program runs on the CPU",
    BLOCKING: "the flag is for CUDA launches, and the program runs on the CPU",
}
_FRAME = re.compile(r"^frame #\d+: (?!c10::|torch::|AOTI|<unknown|_)(\S+) \+")
_RAISED = re.compile(r"^Exception raised from .*? at \S*?([^/\s]+:\d+)")
_ASSERTED = re.compile(r"^\s*(assert not .*)$")
_INPUTS = re.compile(r"\w*put_handles\[\d+\]: .*|At least one (?:NaN|INF) in.*")
_SHOWN = 4
_NO_KERNEL = (
    f"{ArtifactFile.KERNEL}: available on the interpreter only: --backend interpreter"
)
_BEFORE_IT_RUNS = (Stage.START, Stage.REBUILD, Stage.EAGER, Stage.COMPILE)


def run_guide(
    reduced: ReducedProgram,
    failing_kernels: tuple[str, ...],
    folder: Path | None = None,
    original: OriginalKernels = NOT_REQUESTED,
) -> Guide:
    """Try each flag of the guide, and report its output.

    Args:
        failing_kernels: the failing kernels, the surest first. If it is empty, the last
            kernel that was launched is used.
        folder: a folder for files, which are published atomically.
        original: kernels of the input program, which are published too.
    """
    with scratch.make_scratch_folder("guide") as home:
        runner = _Asking(reduced, Path(home), failing_kernels)
        guide = runner.guide()
        if folder is not None:
            remaining_s = reduced.budget.share()
            place = Path(home) / "left" / ArtifactFile.ORIGINAL
            guide = _add_original(original, guide, place)
            guide = publish(guide, Path(home), folder, within_s=remaining_s)
    return guide


def _add_original(original: OriginalKernels, found: Guide, home: Path) -> Guide:
    """Write the files of the input program's kernel, or note why there are none."""
    if original.why_not:
        return replace(found, left_out=(*found.left_out, original.why_not))
    home.mkdir(parents=True)
    for name, text in original.files.items():
        (home / name).write_text(text)
    return found


@dataclass
class _Asking:
    """The runs of one guide.

    Attributes:
        home: a folder for the package, and for files of child processes.
        rows: the results so far.
    """

    reduced: ReducedProgram
    home: Path
    kernels: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)

    @property
    def _client(self) -> CheckClient:
        return self.reduced.client

    @property
    def _ready(self) -> Ready:
        ready = getattr(self._client.server, "ready", None)
        return ready if isinstance(ready, Ready) else Ready()

    @property
    def _on_interpreter(self) -> bool:
        return self._ready.backend == Backend.INTERPRETER

    @property
    def _package(self) -> str | None:
        """The path of the compiled package; None on the interpreter."""
        return None if self._on_interpreter else str(self.home / "model.pt2")

    def guide(self) -> Guide:
        self.reduced.note("explain: running the debugging guide's flags")
        plain = self._ask(
            "",
            self._client.with_options(
                package=self._package,
                evidence=str(self.home / "evidence.json"),
                leave=str(self.home / "left"),
                kernels=self.kernels,
            ),
        )
        stops = plain is not None and Stage(plain.stage) in _BEFORE_IT_RUNS
        why = "the program fails before it runs" if stops else ""
        for flag in (CHECK_INPUTS, STACK_TRACES, NO_CACHING, BLOCKING):
            self._at_run_time(flag, why)
        asserting = self._with_inductor({"nan_asserts": True})
        self._ask(f"{NAN_ASSERTS}=1", asserting, why)
        names = self._ask(f"{PRINTER}=3", self._with_inductor({_NAMES: "3"}), why)
        launches = parse_launches(names.log) if names else []
        order = [kernel for when, kernel in launches if when == "before"]
        last = order[-1] if order else ""
        if last:
            line = f"launch {len(order)}, the last one: {last}"
            self.rows[-1] = replace(self.rows[-1], output=(line,))
        values = self._values((*self.kernels, last)[0], {*order, *self._tracked()}, why)
        left_out = (_NO_KERNEL,) * (self._ready.for_cuda and not self._on_interpreter)
        return Guide(tuple(self.rows), last, values, left_out=left_out)

    def _values(self, target: str, launches: Set[str], why: str) -> tuple[Value, ...]:
        """Read the inputs of the culprit kernel and of the kernels that feed it."""
        feeding_it = self._first(lambda c: find_feeding_kernels(c, launches, target))
        kernels = (*(feeding_it or ()), target) if target else ()
        printed = self._filtered(kernels, why)
        if printed is None:
            return ()

        def known(kernel: str) -> Set[str]:
            found = self._first(lambda c: find_reused_buffers(c, launches, kernel))
            return found or frozenset()

        return tuple(list_kernel_inputs(printed.log, known))

    def _at_run_time(self, flag: str, why: str) -> None:
        # Every check of a CUDA program sets both flags; here only one is set.
        cuda = {NO_CACHING: "", BLOCKING: ""} if flag in _ON_CPU else {}
        if cuda and not self._ready.for_cuda:
            why = why or _ON_CPU[flag]
        environment = {**self._client.options.environment, **cuda, flag: "1"}
        client = self._client.with_options(
            package=self._package, environment=environment
        )
        self._ask(f"{flag}=1", client, why)

    def _with_inductor(self, more: InductorOptions) -> CheckClient:
        return self._client.with_options(
            inductor={**self._client.options.inductor, **more}
        )

    def _filtered(self, kernels: tuple[str, ...], why: str) -> Ending | None:
        """Print the arguments of some kernels."""
        flag = f"{PRINTER}=2"
        if kernels:
            flag += f' {FILTER}="{",".join(kernels)}"'
        else:
            why = why or "the failing kernel is not known"
        client = self._with_inductor({_NAMES: "2", _FILTERED: ",".join(kernels)})
        folder = str(self.home / "printed")
        return self._ask(flag, client.with_options(leave=folder, kernels=kernels), why)

    def _tracked(self) -> list[str]:
        """Return the kernels that Inductor itself has recorded."""
        path = self.home / "evidence.json"
        traces = Traces.from_line(path.read_text()) if path.exists() else Traces()
        return [launch.kernel for launch in traces.launches]

    def _first(self, read: Callable[[str], T]) -> T | None:
        """Apply ``read`` to the wrapper sources; return the first nonempty result."""
        sources = sorted((self.home / "left" / ArtifactFile.SOURCES).glob("*wrapper.*"))
        codes = (path.read_text(errors="replace") for path in sources)
        return next(filter(None, map(read, codes)), None)

    def _ask(self, flag: str, client: CheckClient, why: str = "") -> Ending | None:
        """Run with a flag, and append a row."""
        if self._on_interpreter and flag in _ON_INTERPRETER:
            why = _NO_MEANING.format(_ON_INTERPRETER[flag])
        command = " ".join(filter(None, [flag, "python repro.py"]))
        row, ending = Row(flag, command, Outcome.NOT_ASKED, why=why), None
        if not why:
            # One flag at a time: sanity sets two, and the user's shell may set both.
            env = {CHECK_INPUTS: "", STACK_TRACES: "", **client.options.environment}
            program = self.reduced.with_client(client)
            ending = program.ask(sanity=False, environment=env)
            row = self._row(row, ending)
        self.rows.append(row)
        return ending

    def _row(self, row: Row, ending: Ending | None) -> Row:
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
        output = _list_relevant_lines(row.flag, ending)[:_SHOWN]
        return replace(row, outcome=outcome, failure=failure, output=output)


def _list_relevant_lines(flag: str, ending: Ending) -> tuple[str, ...]:
    """Return the output lines that a flag produced."""
    raised = ending.raised
    text = f"{raised.message}\n{ending.log}" if raised else ending.log
    wanted = {
        CHECK_INPUTS: (_INPUTS,),
        STACK_TRACES: (_RAISED, _FRAME),
        NAN_ASSERTS: (_INPUTS, _ASSERTED),
    }.get(flag.partition("=")[0], ())
    matches = (p.search(line) for line in text.splitlines() for p in wanted)
    return tuple(dict.fromkeys(_in_words(match) for match in matches if match))


def _in_words(found: re.Match[str]) -> str:
    if found.re is _FRAME:
        return f"in {found[1]}"
    if found.re is _RAISED:
        return f"raised at {found[1]}"
    return found[0].strip()


# Parse the output of Inductor's intermediate value printer.
#
# AOTInductor's code prints a header in brackets, and Inductor's Python wrapper one
# that begins with ``inductor:``. A line for each fact follows.

_LAUNCH = re.compile(r"\[ (before|after)_launch: (\S+) \]")
_HEADER = re.compile(
    r"^(?:\[ {1,2}|inductor: )"
    r"(?:(?P<when>before|after)_launch - (?P<kernel>\S+)|aoti_model_inputs)"
    r" - (?P<argument>.+?)(?:: (?P<number>\S+))?(?: {1,2}\]:?)?$",
    re.MULTILINE,
)
_FACT = re.compile(r"^([A-Z][a-z]+(?: [a-z]+)*): +(.*?) *$", re.MULTILINE)
_BUFFER = "buf"
_DTYPES = {
    "BFloat16": "bfloat16",
    "Half": "float16",
    "double": "float64",
    "float": "float32",
    "int": "int32",
    "long int": "int64",
    "short int": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
}
"""The names of dtypes in C++."""


@dataclass(frozen=True)
class PrintedValue:
    """A value at one moment.

    Attributes:
        when: ``before`` or ``after`` a launch, or '' for an input of the program.
    """

    when: str
    value: Value


def parse_values(text: str) -> list[PrintedValue]:
    """Parse values in the order in which they were printed."""
    headers = list(_HEADER.finditer(text))
    starts = [header.start() for header in headers]
    return [
        PrintedValue(header["when"] or "", _value(header, text[header.end() : end]))
        for header, end in zip(headers, [*starts, len(text)][1:], strict=True)
    ]


def _value(header: re.Match[str], text: str) -> Value:
    facts: dict[str, str] = {}
    for name, fact in _FACT.findall(text):
        facts.setdefault(name.removesuffix(" value"), fact)
    dtype = facts.get("Dtype", "").removeprefix("torch.").removeprefix("c10::")
    size = re.findall(r"\d+", facts.get("Size", "").partition("[")[2])
    return Value(
        kernel=header["kernel"] or "",
        argument=header["argument"],
        dtype=_DTYPES.get(dtype, dtype),
        shape=tuple(map(int, size)),
        elements=int(facts.get("Number of elements", "0")),
        minimum=facts.get("Min", ""),
        maximum=facts.get("Max", ""),
        mean=facts.get("Mean", ""),
        number=header["number"] or facts.get("Value", ""),
    )


def list_kernel_inputs(
    text: str, taken: Callable[[str], Set[str]] = lambda _: frozenset()
) -> Iterator[Value]:
    """Yield the inputs of kernels at their last launches.

    Buffers that no kernel has written are omitted, because they are memory for results,
    and their values are left over from earlier use.

    Args:
        taken: returns the buffers of a kernel that are known to be no results.
    """
    last: dict[str, dict[str, Value]] = {}
    written: set[str] = set()
    launch, first = "", ""
    for one in parse_values(text):
        value, before = one.value, launch
        launch = value.kernel if one.when == "before" else ""
        if one.when == "after":
            written.add(value.argument)
        if not launch:
            continue
        first = first or launch
        if launch != before:
            last[launch] = {}
            if launch == first:  # maybe another call, with new memory
                written.clear()
        if _is_given(value, written | taken(launch)):
            last[launch][value.argument] = value
    for values in last.values():
        yield from values.values()


def _is_given(value: Value, written: Set[str]) -> bool:
    is_literal = value.argument == value.number
    is_known = value.argument in written or not value.argument.startswith(_BUFFER)
    return is_known and not is_literal


def parse_launches(text: str) -> list[tuple[str, str]]:
    """Return the order of launches: ``("before", "cpp_fused_add_0")``."""
    return [(found[1], found[2]) for found in _LAUNCH.finditer(text)]
