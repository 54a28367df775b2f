"""The record of all options of a run, as JSON and as a shell command.

Each of the first records is a group of the help, or a part of one. ``help`` is
Markdown: ``--help-all`` shows it without the markup, and ``docs/reference.md`` shows it
with the markup, followed by ``more``. ``--help`` shows only the options with a
``brief`` text, and those with ``common=True``. ``flags.Option`` documents the other
attributes.

To add an option, add a field to the record of its group, or to ``ComparisonOptions`` in
``protocol/requests.py`` if the worker's checks use it. The parser, the check of its
value, the journal and the reference are made from that field. Add a keyword of the same
name to ``minify()`` in ``api/``, and read the option as ``options.NAME``
where it has its effect. ``make reference`` writes its row into ``docs/reference.md``;
``tests/test_options.py`` reports missing parts.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Self, get_type_hints

from shrinkfx.errors import FailsDifferently, UsageError
from shrinkfx.failure.signature import UNTIL, Signature, Stage
from shrinkfx.failure.signature import Kind as FailureKind
from shrinkfx.program.listing.printed_program import OLD_BRANCHES, Kind
from shrinkfx.program.record import read_value
from shrinkfx.protocol.choices import (
    ARCHS,
    SANITIZERS,
    Backend,
    Build,
    Guard,
    InductorOptions,
    Probe,
    SandboxMode,
)
from shrinkfx.protocol.flags import (
    Option,
    list_record_options,
    make_choice_check,
    option,
    require_above_zero,
)
from shrinkfx.protocol.record import Message
from shrinkfx.protocol.requests import CheckOptions, ComparisonOptions

GUARD_PAGES = ("auto", "on", "off")

RANGES = ("declared", "beyond")
"""Ranges of the sizes that a sweep tries."""

REQUIRED_VARIABLES: Mapping[str | None, Mapping[str, str]] = {
    FailureKind.CHECK_INPUTS: {"AOTI_RUNTIME_CHECK_INPUTS": "1"}
}
"""Environment variables without which a kind of failure never shows."""


def check_failure_kind(_: str, value: str) -> None:
    if value not in UNTIL:
        matches = get_close_matches(value, UNTIL, n=3)
        hint = f"did you mean {', '.join(matches)}? all: " if matches else "one of "
        raise UsageError(f"unknown kind '{value}': {hint}{', '.join(UNTIL)}")


def check_regular_expression(flag: str, value: str) -> None:
    try:
        re.compile(value)
    except re.error as error:
        raise UsageError(f"{flag} {value}: {error}") from error


def check_device(flag: str, value: str) -> None:
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", value):
        expected = "expected cpu, cuda, or a GPU by its number: cuda:1"
        raise UsageError(f"{flag} {value}: {expected}")


def check_gpus(flag: str, value: Sequence[str]) -> None:
    for each in value:
        if not re.fullmatch(r"\d{1,3}", each):
            expected = "expected GPU numbers as in cuda:0, such as 0,1"
            raise UsageError(f"{flag} {each}: {expected}")
        if value.count(each) > 1:
            raise UsageError(f"{flag} {','.join(value)}: {each} occurs twice")


def parse_gpu_numbers(numbers: str | Sequence[str]) -> tuple[str, ...]:
    """Parse the numbers of GPUs, such as ``0,1``."""
    return parse_names(numbers) if isinstance(numbers, str) else tuple(numbers)


def check_guard_pages(flag: str, value: str) -> None:
    if value not in GUARD_PAGES:
        expected = ", ".join(GUARD_PAGES)
        raise UsageError(f"unknown {flag} '{value}': expected one of {expected}")


def check_ranges(_: str, value: str) -> None:
    make_choice_check(RANGES)("--ranges", value)


def check_folders(flag: str, value: Sequence[str]) -> None:
    for name in value:
        if not os.path.isdir(name):
            raise UsageError(f"{flag} {name}: no such folder")


def check_strategy_names(flag: str, value: Sequence[str]) -> None:
    if not value:
        listing = "to list the strategies: shrinkfx --list-strategies"
        raise UsageError(f"{flag} contains no name; {listing}")


def check_kept_kinds(flag: str, value: Sequence[str]) -> None:
    for kind in value:
        if kind not in {*Kind}:
            matches = get_close_matches(kind, (*Kind, ALL), n=3)
            hint = f"did you mean {', '.join(matches)}? " if matches else ""
            kinds = ", ".join((*Kind, ALL))
            raise UsageError(f"{flag} {kind}: unknown kind; {hint}all kinds: {kinds}")


def parse_kept_kinds(names: str | Sequence[str]) -> tuple[str, ...]:
    """Parse kinds, such as ``sizes,values``; ``all`` means every kind."""
    kinds = parse_names(names) if isinstance(names, str) else tuple(names)
    kept = kinds if ALL not in kinds else Kind
    return tuple(str(Kind.BRANCHES if k == OLD_BRANCHES else k) for k in kept)


ALL = "all"
"""The word that stands for every kind."""


def parse_names(text: str) -> tuple[str, ...]:
    """Split a comma-separated list such as ``a,b``; empty names are dropped."""
    return tuple(filter(None, text.split(",")))


def parse_inductor_options(texts: Sequence[str]) -> InductorOptions:
    """Parse Inductor options such as ``max_autotune=True``.

    A value that is not a Python literal is a string.
    """
    pairs = [_split_pair("--inductor-config", text) for text in texts]
    return {name: _parse_literal(value) for name, value in pairs}


def parse_variables(texts: Sequence[str]) -> dict[str, str]:
    """Parse environment variables such as ``NAME=value``."""
    return dict(_split_pair("--env", text) for text in texts)


def _parse_literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _split_pair(flag: str, text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"{flag} expects KEY=VALUE, not '{text}'")
    return name, value


class FailedStep(StrEnum):
    """The step of a script with a program that failed."""

    COMPILE = "compile"
    LOAD = "load"
    CALL = "call"
    NOTHING = "nothing"
    """No step failed, but the script rejected the values."""
    UNKNOWN = "unknown"
    """The script failed, but none of the graphs that Inductor got."""


_IMPOSSIBLE_STAGES: Mapping[FailedStep, tuple[Stage, ...]] = {
    FailedStep.COMPILE: (Stage.COMPARE,),
    FailedStep.LOAD: (Stage.COMPILE, Stage.COMPARE),
    FailedStep.CALL: (Stage.COMPILE, Stage.COMPARE),
    FailedStep.NOTHING: (Stage.COMPILE, Stage.LOAD),
    FailedStep.UNKNOWN: (),
}
"""Stages whose failures cannot be those of a script, by the step that failed there."""

_DYNAMO_ERRORS = (
    "CondOpArgsMismatchError, InternalTorchDynamoError, TorchRuntimeError, "
    "UncapturedHigherOrderOpError, Unsupported, UserError"
)
"""Errors of Dynamo. In the script, Dynamo had passed the graph to Inductor."""

_DYNAMO_ADVICE = (
    "torch.compile does not accept the captured graph in this form; to compile it with "
    "AOTInductor: --backend aoti"
)

_SILENT_ERROR_ADVICE = (
    "a memory error that kills one process may go unnoticed in another; to check each "
    "access: --until ima"
)


@dataclass(frozen=True)
class ScriptFailure(Message):
    """A failure of a program in a script.

    Attributes:
        failed: the step that failed.
        message: a description of the failure, as a sentence without a full stop.
        died: whether the process of the script died during that step.
    """

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"said": "message"}

    failed: FailedStep
    message: str
    died: bool = False

    def require(self, seen: Signature, lacking: tuple[str, ...] = ()) -> None:
        """Refuse a failure of the program that cannot be the script's.

        Args:
            seen: the failure of the program in this run.
            lacking: sentences about state that only the process of the script had.

        Raises:
            FailsDifferently: the failure cannot be that of the script.
        """
        error = seen.text.partition(":")[0]
        is_of_dynamo = error in _DYNAMO_ERRORS.split(", ") and error not in self.message
        if seen.stage not in _IMPOSSIBLE_STAGES[self.failed] and not is_of_dynamo:
            return
        advice = [*lacking, *[_DYNAMO_ADVICE] * is_of_dynamo]
        if self.died and self.failed is FailedStep.CALL:
            advice.append(_SILENT_ERROR_ADVICE)
        advice.append(f"to reduce the failure seen here: --until {seen.kind.value}")
        text = "\n".join(filter(None, advice))
        raise FailsDifferently(self.message, str(seen), text)


@dataclass(frozen=True, kw_only=True)
class FailureOptions:
    """Options that select the failure to reduce."""

    until: str | None = option(
        None,
        metavar="KIND",
        help="kind of failure to reduce ([below](#kinds-of-failure)); default: the "
        "failure that the baseline shows",
        check=check_failure_kind,
        brief="kind of failure; default: what the program shows",
    )
    strict_kind: bool = option(
        False,
        help="if the program raises an error of another kind than `--until`, exit "
        "with 3 instead of reducing that error",
    )
    match: str = option(
        "",
        metavar="REGEX",
        help="accept only failures whose message matches this regular expression",
        check=check_regular_expression,
    )
    check: str | None = option(
        None,
        metavar="CMD",
        help="test candidates with this command instead of compiling them: `{}` is "
        "the path of the candidate `.pt2`, `{inputs}` the path of the failing "
        "inputs (a tuple saved with `torch.save`); exit code 0: still fails, 125: "
        "cannot tell, other: does not fail",
        more="The program accepts the tuple as `program(*inputs)`",
        brief="test command: exit code 0 if the `.pt2` at `{}` fails",
    )
    baseline_runs: int | None = option(
        None,
        metavar="N",
        help="run the input program up to N times, however long that takes, until it "
        "fails; default: up to 100 times, for as long as the compilation took (at "
        "least 6 s, at most 1 minute)",
        more="If it never fails, the message states the number of runs. On the "
        "interpreter, each probe runs once, until one shows the failure",
        check=require_above_zero,
    )
    guard_pages: str = option(
        "auto",
        choices=GUARD_PAGES,
        help="place an inaccessible page next to each tensor, so that an "
        "access just outside of it faults; on a GPU, also fill the memory around each "
        "tensor and check it after each run; `auto` (the default): only for "
        "`--until ima` and `crash`",
        check=check_guard_pages,
    )
    sanitizer: str | None = option(
        None,
        metavar="TOOL",
        const=Guard.MEMCHECK,
        help="run every check on a GPU under this tool of compute-sanitizer: "
        f"{', '.join(f'`{tool}`' for tool in SANITIZERS)} (default: "
        f"`{Guard.MEMCHECK}`); without the option, memcheck runs once, on the "
        "reduced program, if the failure is `ima`",
        more="Replaces guard pages. [What the tools "
        "detect](failures.md#crash-illegal-memory-access)",
        check=make_choice_check(SANITIZERS),
    )


@dataclass(frozen=True, kw_only=True)
class TimeoutOptions:
    """Time limit of a check, after which it counts as a hang."""

    timeout_s: float | None = option(
        None,
        metavar="S",
        help="time limit per check in seconds, excluding time spent waiting for a "
        "busy machine; default: ten times the duration of the input program, but at "
        "least 1 and at most 10 minutes",
        more="As programs shrink, the default decreases to ten times the longest of "
        "the last ten checks, but not below 1 minute; a candidate larger than the "
        "smallest failing one gets the initial limit. A sweep has a default of 1 "
        "minute, and `--verify` of 10 minutes. [What counts](#time-limits)",
        check=require_above_zero,
        brief="time limit per check in seconds (for hangs)",
    )


@dataclass(frozen=True, kw_only=True)
class ProgramOptions:
    """The failing program, and the settings of the run in which it failed."""

    model: Path = field(kw_only=False)
    inputs: Path | None = option(
        None,
        metavar="FILE",
        help="failing inputs, if they differ from those in the `.pt2`: a tuple saved "
        "with `torch.save`, or a dict with `args` and `kwargs`; for a sweep also a "
        "`.py` with a function `inputs(**sizes)`",
        never_empty=True,
        read=Path,
        brief="failing inputs, if not those in the `.pt2`",
    )
    preload: tuple[str, ...] = option(
        (),
        metavar="MODULE|FILE",
        help="module, `.py` or `.so` that registers custom operators; may be repeated",
        repeated=True,
        never_empty=True,
        read=tuple,
        brief="module with custom operators; may be repeated",
    )
    run_code: bool = option(
        False,
        help="allow shrinkfx to execute a program that is stored as Python code; such "
        "a program is refused otherwise",
        more="For a graph module that torch.compile dumped as Python, or a [source "
        "archive](packages/worker.md#source-archives). The code runs in its own "
        "process, under the limits of a check. [What is run](trust.md)",
    )
    sandbox: str = option(
        SandboxMode.OFF.value,
        choices=SandboxMode,
        help="run the program, and all that loads or compiles it, in a sandbox of "
        "[bubblewrap](https://github.com/containers/bubblewrap): `on`, `off` (the "
        "default), or `auto`: only where bubblewrap works",
        more="For [programs that you do not trust](trust.md#sandbox): no network, and "
        "no files can be written but those of the run",
    )
    device: str | None = option(
        None,
        metavar="cpu|cuda",
        help="move the program to this device; `cuda:1`: the second GPU",
        more="The number counts the GPUs visible through `CUDA_VISIBLE_DEVICES`. A "
        "program on a GPU is moved to that GPU; its CPU tensors stay on the "
        "CPU",
        never_empty=True,
        check=check_device,
        brief="move the program there (`cuda`: also without a GPU)",
    )
    gpus: tuple[str, ...] = option(
        (),
        metavar="N,...",
        help="distribute the checks over these GPUs, for example `0,1`; each check "
        "uses one GPU",
        more="The numbers are those of `cuda:0` and `cuda:1`. A check sees only "
        "its own GPU, as `cuda:0`. Everything else, including the repro, runs "
        "on the first GPU. With `--jobs`, each GPU may run several checks",
        never_empty=True,
        read=parse_gpu_numbers,
        check=check_gpus,
    )
    backend: str = option(
        Backend.AUTO,
        choices=Backend,
        help="`aoti`: compile and run with AOTInductor; `inductor`: with "
        "torch.compile; `interpreter`: check the CUDA kernels without a GPU; `auto` "
        "(the default): `interpreter` for a CUDA program if there is no GPU, "
        "otherwise `inductor` for a graph of torch.compile, and `aoti` for all else",
    )
    arch: str = option(
        ARCHS[0],
        choices=ARCHS,
        help=f"GPU architecture for the interpreter's kernels (default: `{ARCHS[0]}`)",
    )
    probe: str | None = option(
        None,
        choices=Probe,
        help="how to use the interpreter: `real`: run the kernels on the failing "
        "inputs; `hints`: run them on the inputs that AOTInductor generates to "
        "benchmark them; `contract`: compare the sizes and strides of the program's "
        "inputs and of custom operators' results with the declared ones; `compile`: "
        "only compile; default: the first probe that shows the failure",
        more="`compile` runs first for `--until compile-error` and `hang`; "
        "otherwise the probes run in this order",
    )
    all_probes: bool = option(
        False,
        help="run all probes, even after one has shown the failure",
        more="shrinkfx then reports what each probe finds",
    )
    inductor: InductorOptions = option(
        dict,
        flags=("--inductor-config",),
        metavar="KEY=VALUE",
        help="Inductor option of the failing run; may be repeated",
        repeated=True,
        read=parse_inductor_options,
        brief="Inductor option of the failing run; may be repeated",
    )
    environment: Mapping[str, str] = option(
        dict,
        flags=("--env",),
        metavar="KEY=VALUE",
        help="environment variable of the failing run; may be repeated; `KEY=` "
        "unsets it",
        more="The repro sets the variable only if the failure needs it. If you pass "
        "`PYTHONHASHSEED`, the repro always sets it, and restarts Python for it, "
        "because Python reads it at startup. For CUDA, "
        "`PYTORCH_NO_CUDA_MEMORY_CACHING` and `CUDA_LAUNCH_BLOCKING` are set to 1 "
        "unless you set them; PyTorch only tests whether the former is set, not its "
        "value",
        repeated=True,
        read=parse_variables,
        brief="environment variable of that run; may be repeated",
    )


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """Limits of a run, which may change when the run is resumed."""

    max_checks: int | None = option(
        None,
        metavar="N",
        help="stop after N checks",
        more="shrinkfx then writes the smallest failing program so far",
        works_with_resume=True,
        check=require_above_zero,
    )
    max_minutes: float | None = option(
        None,
        metavar="M",
        help="total time limit in minutes, including baseline and verification: "
        "[optional steps](#few-minutes) are skipped so that a verified repro "
        "is written in time; the first verification run may exceed the limit",
        works_with_resume=True,
        check=require_above_zero,
        brief="stop after M minutes, with a verified repro",
    )
    max_disk: float | None = option(
        None,
        metavar="GB",
        help="disk space in GB that shrinkfx may use in `$TMPDIR` (default: the "
        "free space)",
        more="The space is used for the values of eager runs and for packages. A "
        "step that would need more is not started, and shrinkfx reports how "
        "much it needs",
        works_with_resume=True,
        check=require_above_zero,
    )
    jobs: int | None = option(
        None,
        metavar="N",
        help="check N candidates in parallel, which finds the same result sooner; "
        "default: half the cores, at most 4, fewer if memory is short",
        more="Some speculative checks turn out not to be needed, so the total CPU "
        "time increases. With `--check`, and for CUDA on a GPU, the default "
        "is 1, or one job for each of `--gpus`; a failure that shows only in "
        "some runs always uses 1. [In full](#several-at-once)",
        works_with_resume=True,
        check=require_above_zero,
        brief="check N candidates in parallel",
    )


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of the search."""

    build: str = option(
        Build.FAST,
        choices=Build,
        help="how candidates for the CPU are built; `fast` (the default): reuse a "
        "precompiled runtime for all candidates, and confirm the result with "
        "a normal AOTInductor build; `stock`: always use the normal build",
    )
    strategies: tuple[str, ...] | None = option(
        None,
        metavar="NAME,...",
        help="use only these strategies, in this order",
        read=parse_names,
        check=check_strategy_names,
    )
    known: tuple[str, ...] = option(
        (),
        metavar="DIR",
        help="stop with exit code 7 if the failure is a known bug; DIR contains the "
        "folders of earlier runs; may be repeated",
        more="[How shrinkfx recognizes a bug](howto.md#many-failing-programs)",
        repeated=True,
        never_empty=True,
        read=tuple,
        check=check_folders,
    )
    keep: tuple[str, ...] = option(
        (),
        metavar="PART,...",
        help="do not simplify these parts of the reduced program: "
        f"{', '.join(f'`{kind}`' for kind in Kind)} (also loop "
        "bodies); `all`: simplify nothing",
        more="`arguments`: numbers, flags and lists in calls; `operands`: the tensors "
        "that operators read. [What is simplified](packages/run.md#what-a-reader-sees)",
        read=parse_kept_kinds,
        check=check_kept_kinds,
    )


@dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    """Options of the root-cause analysis."""

    explain: bool = option(
        False,
        help="run the full root-cause analysis: which compiler decisions the "
        "failure needs, and what each flag of PyTorch's debugging guide for "
        "AOTInductor reports; `shrinkfx --explain DIR` does so for a finished run",
        more="[What is reported](explain.md)",
        exclusive_group="explain",
        brief="find the root cause (DIR: of a finished run)",
    )
    no_explain: bool = option(
        False,
        help="skip the root-cause analysis; by default, a short one runs",
        exclusive_group="explain",
    )


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Options for the files that a run writes."""

    out: Path | None = option(
        None,
        metavar="DIR",
        help="folder for the results (default: `shrinkfx-out/<model>-<number>`)",
        more="A folder that holds another run is refused",
        never_empty=True,
        read=Path,
        brief="folder for the results (default: below `shrinkfx-out`)",
    )
    title: str | None = option(
        None,
        metavar="TEXT",
        help="title of `ISSUE.md`; default: made of the operators and the failure",
        more="With `--explain DIR`, the file gets this new title",
        never_empty=True,
    )
    anonymous: bool = option(
        False,
        help="replace the model's names of inputs, weights and sizes in "
        "`repro.py`, `ISSUE.md` and `report.html`, and omit source locations",
        more="The repro is verified with the replaced names. Custom operators, "
        "preloads and values [stay](packages/report.md#what-is-left-of-a-model)",
    )


@dataclass(frozen=True)
class Sweeping:
    """Options of a sweep over sizes; None means the default."""

    examples: int | None = option(
        None,
        metavar="N",
        help="number of size combinations to draw (default 200)",
        check=require_above_zero,
    )
    seed: int | None = option(
        None, metavar="S", help="random seed for drawing the sizes (default 0)"
    )
    max_elements: int | None = option(
        None,
        metavar="E",
        help="upper limit for the number of elements of any tensor (default "
        "4194304, or less if memory is short)",
        check=require_above_zero,
    )
    ranges: str = option(
        "declared",
        flags=("--beyond-ranges",),
        const="beyond",
        help="also try sizes just outside the declared ranges; shrinkfx sets "
        "`AOTI_RUNTIME_CHECK_INPUTS=1`, and the program must refuse these sizes or "
        "return the same result as eager",
        check=check_ranges,
    )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read the options from JSON; newer options may be missing in old journals."""
        return cls(**data)


__all__ = ["Options", "Sweeping", "format_command"]


_COMPARISON = [f.name for f in fields(ComparisonOptions)]


@dataclass(frozen=True, kw_only=True)
class Options(
    FailureOptions,
    ComparisonOptions,
    TimeoutOptions,
    ProgramOptions,
    BudgetOptions,
    SearchOptions,
    ExplainOptions,
    OutputOptions,
):
    """All options of a run, in one record.

    ``docs/reference.md`` describes the fields of the base classes.

    Attributes:
        model: path of the program.
        name: name of the program if it is not a ``.pt2`` of the user: the captured
            script, the dump, or the class of the Python object; '' means the file name
            of ``model``.
        command: the command that started the run, for the header of the repro.
        cwd: the folder where that command ran, in which modules and ``check`` are
            looked up; None means the current folder.
        lacking: sentences about state of the failing run that this run lacks.
        in_script: the failure in the script that the program was captured from, if
            known.
        others: the numbers of the captured programs to try in turn if this one does
            not fail.
        sweeping: settings of a sweep over sizes; None for a reduction.
    """

    name: str = ""
    command: str = ""
    cwd: Path | None = None
    lacking: tuple[str, ...] = ()
    in_script: ScriptFailure | None = None
    others: tuple[int, ...] = ()
    sweeping: Sweeping | None = None

    @property
    def called(self) -> str:
        """The name of the program in messages."""
        return self.name or self.model.name

    @property
    def files(self) -> tuple[Path, ...]:
        """Paths of the program, its inputs, and the preloads given as files."""
        preloads = [Path(name) for name in self.preload if "/" in name]
        return (self.model, *([self.inputs] if self.inputs else []), *preloads)

    def with_files(self, find: Callable[[Path], Path]) -> Self:
        """Replace the paths of the program, its inputs and its preloads."""
        return replace(
            self,
            model=find(self.model),
            inputs=find(self.inputs) if self.inputs else None,
            preload=tuple(
                str(find(Path(name))) if "/" in name else name for name in self.preload
            ),
        )

    @property
    def comparison_settings(self) -> dict[str, float]:
        """The options that were set for the comparison with eager, by name."""
        settings = {name: getattr(self, name) for name in _COMPARISON}
        return {k: v for k, v in settings.items() if v is not None and v is not False}

    def compared(self, checks: CheckOptions) -> CheckOptions:
        """Add the options for the comparison with eager to those of a check."""
        settings = {name: getattr(self, name) for name in _COMPARISON}
        return replace(checks, **settings)

    def with_required_variables(self) -> Self:
        """Set the variables that ``until`` needs, unless the user has set them."""
        variables = REQUIRED_VARIABLES.get(self.until, {})
        return replace(self, environment={**variables, **self.environment})

    @property
    def budget(self) -> tuple[int | None, float | None]:
        return self.max_checks, self.max_minutes

    def to_json(self) -> dict[str, Any]:
        """Convert the options to JSON with absolute paths, without ``out``.

        Absolute paths mean the same if the run is resumed from another folder.
        """
        data = asdict(self)
        del data["out"]
        data["cwd"] = str(self.cwd or Path.cwd())
        data["model"] = str(self.model.resolve())
        data["inputs"] = str(self.inputs.resolve()) if self.inputs else None
        data["known"] = [
            str(Path(name).resolve()) if os.path.isdir(name) else name
            for name in self.known
        ]
        data["preload"] = [
            str(Path(name).resolve()) if os.path.isfile(name) else name
            for name in self.preload
        ]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read the options from the JSON of ``to_json``, also of an earlier version."""
        hints, known = get_type_hints(cls), data.keys() - REMOVED_OPTIONS
        return cls(**{name: read_value(hints[name], data[name]) for name in known})


REMOVED_OPTIONS = frozenset(["cuda_coredump"])
"""Options of earlier versions, which their run folders contain."""


def format_command(options: Options) -> str:
    """Return the command that starts a run with these options.

    For a sweep, the command reduces the program without the sweep.
    """
    defaults, words = Options(Path()), ["shrinkfx", str(options.model)]
    for each in list_record_options(Options):
        value = getattr(options, each.name)
        if value != getattr(defaults, each.name):
            words += _format_option(each, value)
    return shlex.join(words)


def _format_option(option: Option, value: Any) -> Iterator[str]:  # noqa: ANN401 - any field's
    """Yield the flag, and the text that the parser reads as this value."""
    if option.takes is bool:
        yield option.flag
        return
    if isinstance(value, Mapping):
        texts = [_format_pair(option, *pair) for pair in value.items()]
    elif isinstance(value, tuple):
        texts = [*value] if option.repeated else [",".join(value)]
    else:
        texts = [str(value)]
    for text in texts:
        yield from (option.flag, text)


def _format_pair(option: Option, name: str, value: object) -> str:
    """Return ``KEY=VALUE``.

    The value is quoted if the option would read it differently without quotes, for
    example a string that looks like a number.
    """
    text = f"{name}={value}"
    return (
        text if option.convert_value([text]) == {name: value} else f"{name}={value!r}"
    )
