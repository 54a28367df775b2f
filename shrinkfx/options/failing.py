"""Options that describe the failing program and its failure.

Each record is a group of the help, or a part of one. ``help`` is Markdown:
``--help-all`` shows it without the markup, and ``docs/reference.md`` shows it with the
markup, followed by ``more``. ``--help`` shows only the options with a ``brief`` text,
and those with ``common=True``. ``flags.Option`` documents the other attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shrinkfx.flags import make_choice_check, option, require_above_zero
from shrinkfx.options.values import (
    GUARD_PAGES,
    check_device,
    check_failure_kind,
    check_gpus,
    check_guard_pages,
    check_regular_expression,
    parse_gpu_numbers,
    parse_inductor_options,
    parse_variables,
)
from shrinkfx.protocol.choices import (
    ARCHS,
    SANITIZERS,
    Backend,
    Guard,
    InductorOptions,
    Probe,
    SandboxMode,
)


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
        help="exit with 3 if the program raises an error of another kind than "
        "`--until`; without this option, shrinkfx reduces that error instead",
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
        help="test candidates with this command instead of AOTInductor: `{}` is "
        "the path of the candidate `.pt2`, `{inputs}` the path of the failing "
        "inputs (a tuple saved with `torch.save`); exit code 0: still fails, 125: "
        "cannot tell, other: does not fail",
        more="The program accepts the tuple as `program(*inputs)`",
        brief="test command: exit code 0 if the `.pt2` at `{}` fails",
    )
    baseline_runs: int | None = option(
        None,
        metavar="N",
        help="how often to run the input program before concluding that it does "
        "not fail; default: 100 runs, or fewer if the runs have taken as long as the "
        "compilation (this time limit is at least 6 s, at most 1 minute)",
        more="The message then states how many runs there were. On the "
        "interpreter, each probe runs once, until one shows the failure",
        check=require_above_zero,
    )
    guard_pages: str = option(
        "auto",
        choices=GUARD_PAGES,
        help="place an inaccessible page next to each tensor, so that every "
        "out-of-bounds access faults; on a GPU, also fill the memory around each "
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
        "reduced program of an illegal memory access",
        more="Replaces guard pages. [What the tools "
        "detect](failures.md#crash-illegal-memory-access)",
        check=make_choice_check(SANITIZERS),
    )
    cuda_coredump: bool = option(
        False,
        help="write a CUDA core dump of the reduced program's fault to "
        "`cuda-core/` in the output folder, for cuda-gdb",
        more="The core dump contains registers and call stacks, but no memory",
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
        help="allow shrinkfx to execute Python code from `MODEL.pt2`, if that file "
        "stores its program as source; such a file is refused otherwise",
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
        help="`aoti`: compile and run with AOTInductor; `interpreter`: check the CUDA "
        "kernels without a GPU; `auto` (the default): `interpreter` for a CUDA program "
        "if there is no GPU, else `aoti`",
    )
    arch: str = option(
        ARCHS[0],
        choices=ARCHS,
        help=f"GPU architecture for the interpreter's kernels (default: `{ARCHS[0]}`)",
    )
    probe: str | None = option(
        None,
        choices=Probe,
        help="what to do on the interpreter: `real`: run the kernels on the failing "
        "inputs; `hints`: run them on AOTInductor's benchmark inputs; `contract`: "
        "check declared sizes and strides; `compile`: only compile; default: the "
        "first probe that shows the failure",
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
        more="The repro sets the variable only if the failure needs it; it always "
        "sets `PYTHONHASHSEED`, and restarts Python for it, because Python "
        "reads it at startup. For CUDA, `PYTORCH_NO_CUDA_MEMORY_CACHING` and "
        "`CUDA_LAUNCH_BLOCKING` are set to 1 unless you set them; PyTorch "
        "only tests whether the former is set, not its value",
        repeated=True,
        read=parse_variables,
        brief="environment variable of that run; may be repeated",
    )
