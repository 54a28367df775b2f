"""Try each flag of PyTorch's debugging guide on the reduced program, in a child each.

Flags that only act at run time use one package, which is compiled once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shrinkfx.explain.artifacts import NOT_REQUESTED, OriginalKernels, publish
from shrinkfx.explain.reduced_program import ReducedProgram
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import Stage
from shrinkfx.findings.guide import Guide, Outcome, Row, Value
from shrinkfx.protocol.answers import Ending, Ready
from shrinkfx.protocol.choices import Backend, InductorOptions
from shrinkfx.protocol.files import ArtifactFile, Traces
from shrinkfx.system import scratch

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
_SHOWN = 4
_NO_KERNEL = (
    f"{ArtifactFile.KERNEL}: available on the interpreter only: --backend interpreter"
)
_BEFORE_IT_RUNS = (Stage.START, Stage.REBUILD, Stage.EAGER, Stage.COMPILE)


@dataclass(frozen=True)
class Flag:
    """A flag of the guide.

    Attributes:
        name: the variable that a user sets.
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
        return f"{self.name}={self.value}"


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
"""The flags in the order of their rows; another one, for the kernels, follows."""

_CUDA_FLAGS = [flag.name for flag in FLAGS if flag.for_cuda]


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
        guide = _Runner(reduced, Path(home), failing_kernels).run()
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
        ready = getattr(self.reduced.client.server, "ready", None)
        self._ready = ready if isinstance(ready, Ready) else Ready()
        self._on_interpreter = self._ready.backend == Backend.INTERPRETER
        # The interpreter compiles no package.
        self._package = None if self._on_interpreter else str(self.home / "model.pt2")

    def run(self) -> Guide:
        self.reduced.note("explain: running the debugging guide's flags")
        evidence = self.home / "evidence.json"
        ending = self._try(
            "",
            package=self._package,
            evidence=str(evidence),
            leave=str(self.home / "left"),
            kernels=self.kernels,
        )
        if ending is not None and Stage(ending.stage) in _BEFORE_IT_RUNS:
            self.why_not = "the program fails before it runs"
        for flag in FLAGS:
            ending = self._try_flag(flag)
        # The last flag prints the names of the kernels.
        launches = parse_launches(ending.log) if ending else []
        order = [kernel for when, kernel in launches if when == "before"]
        last = order[-1] if order else ""
        if last:
            line = f"launch {len(order)}, the last one: {last}"
            self.rows[-1] = replace(self.rows[-1], output=(line,))
        traces = Traces()
        if evidence.exists():
            traces = Traces.from_line(evidence.read_text())
        launched = {*order, *(launch.kernel for launch in traces.launches)}
        values = self._read_values((*self.kernels, last)[0], launched)
        left_out = (_NO_KERNEL,) * (self._ready.for_cuda and not self._on_interpreter)
        return Guide(tuple(self.rows), last, values, left_out=left_out)

    def _try_flag(self, flag: Flag) -> Ending | None:
        why = self.why_not
        if not why and flag.for_cuda and not self._ready.for_cuda:
            why = f"the flag is for {flag.for_cuda}, and the program runs on the CPU"
        if flag.no_interpreter and self._on_interpreter:
            why = f"has no meaning on the interpreter: {flag.no_interpreter}"
        if flag.inductor:
            inductor = {**self.reduced.client.options.inductor, **flag.inductor}
            return self._try(str(flag), why, flag.output, inductor=inductor)
        # Every check of a CUDA program sets both flags for CUDA; here only one is set.
        unset = dict.fromkeys(_CUDA_FLAGS, "") if flag.for_cuda else {}
        environment = {**unset, flag.name: flag.value}
        return self._try(
            str(flag), why, flag.output, environment, package=self._package
        )

    def _read_values(self, target: str, launched: Set[str]) -> tuple[Value, ...]:
        """Print the inputs of the culprit kernel and of the kernels that feed it."""
        sources = sorted((self.home / "left" / ArtifactFile.SOURCES).glob("*wrapper.*"))
        wrappers = [path.read_text(errors="replace") for path in sources]
        feeding = (find_feeding_kernels(text, launched, target) for text in wrappers)
        kernels = (*next(filter(None, feeding), ()), target) if target else ()
        names = ",".join(kernels)
        printed = self._try(
            f'{PRINTER}=2 {FILTER}="{names}"' if kernels else f"{PRINTER}=2",
            self.why_not or ("" if kernels else "the failing kernel is not known"),
            inductor={
                **self.reduced.client.options.inductor,
                _NAMES: "2",
                _FILTERED: names,
            },
            leave=str(self.home / "printed"),
            kernels=kernels,
        )
        if printed is None:
            return ()

        def reused(kernel: str) -> Set[str]:
            found = (find_reused_buffers(text, launched, kernel) for text in wrappers)
            return next(filter(None, found), frozenset())

        return tuple(list_kernel_inputs(printed.log, reused))

    def _try(
        self,
        flag: str,
        why: str = "",
        wanted: Sequence[re.Pattern[str]] = (),
        environment: Mapping[str, str] | None = None,
        **changes: Any,  # noqa: ANN401 - fields of the options
    ) -> Ending | None:
        """Run with a flag, and append a row.

        Args:
            flag: the flag as a user types it.
            why: why it is not tried, or ''.
            wanted: patterns of relevant output lines.
        """
        command = " ".join(filter(None, [flag, "python repro.py"]))
        row, ending = Row(flag, command, Outcome.NOT_ASKED), None
        if why:
            row = replace(row, why=why)
        else:
            # One flag at a time: sanity sets two, and the user's shell may set both.
            unset = {CHECK_INPUTS: "", STACK_TRACES: ""}
            users = self.reduced.client.options.environment
            env = {**unset, **users, **(environment or {})}
            ending = self.reduced.ask(sanity=False, environment=env, **changes)
            row = self._row(row, ending, wanted)
        self.rows.append(row)
        return ending

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
_BUFFER_NAME = "buf"
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
    is_known = value.argument in written or not value.argument.startswith(_BUFFER_NAME)
    return is_known and not is_literal


def parse_launches(text: str) -> list[tuple[str, str]]:
    """Return the order of launches: ``("before", "cpp_fused_add_0")``."""
    return [(found[1], found[2]) for found in _LAUNCH.finditer(text)]


# Find which kernels produce the inputs of another one, from the wrapper code.

_CALL = re.compile(
    r"^\s*(?:AOTI_TORCH_ERROR_CODE_CHECK\(|call_|\w+ = )?([\w.]+)\((.*)$"
)
_BUFFER = re.compile(r"\b(buf\d+)(?:_handle)?\b")
_RUN, _EXTERN = ".run", "extern_kernels."


def find_feeding_kernels(
    wrapper: str, kernels: Collection[str], target: str
) -> tuple[str, ...]:
    """Return the kernels that produced a buffer of ``target``: the first users of each.

    Inductor writes a buffer only once, because reused memory gets another name.

    Args:
        wrapper: AOTInductor's C++ code, or Inductor's Python code.
        kernels: the names of the kernels that it launches, as far as they are known.
    """
    *before, (_, wanted) = _until(wrapper, kernels, target) or [("", frozenset())]
    found: list[str] = []
    for kernel, buffers in before:
        if buffers & wanted:
            wanted = wanted - buffers
            found.append(kernel)
    return tuple(kernel for kernel in dict.fromkeys(found) if kernel != target)


def find_reused_buffers(
    wrapper: str, kernels: Collection[str], kernel: str
) -> frozenset[str]:
    """Return the buffers of a kernel that an earlier one used: they are no results."""
    *before, (_, used) = _until(wrapper, kernels, kernel) or [("", frozenset())]
    return used & frozenset().union(*(buffers for _, buffers in before))


def _until(
    wrapper: str, kernels: Collection[str], kernel: str
) -> list[tuple[str, frozenset[str]]]:
    """Return the launches with their buffers, up to the last launch of a kernel."""
    launches = list(_launches(wrapper, kernels))
    places = [n for n, (name, _) in enumerate(launches) if name == kernel]
    return launches[: places[-1] + 1] if places else []


def _launches(
    wrapper: str, kernels: Collection[str]
) -> Iterator[tuple[str, frozenset[str]]]:
    for line in wrapper.splitlines():
        if called := _CALL.match(line):
            name = called[1].removesuffix(_RUN)
            known = name in kernels or name.startswith(_EXTERN)
            if known or called[1].endswith(_RUN):
                yield name, frozenset(_BUFFER.findall(line))
