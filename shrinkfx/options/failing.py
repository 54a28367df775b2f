"""Options that say what fails and how, group by group as the help has them.

What is said as ``help`` is Markdown: ``--help-all`` shows it without the markup, and
the reference with it, before what is said as ``more``. ``--help`` shows those that are
marked ``common``, and of these ``brief`` if there is one. ``flags.Option`` explains the
rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shrinkfx.flags import above_zero, one_of, option
from shrinkfx.options.values import (
    GUARD_PAGES,
    inductor_settings,
    kind_of_failure,
    known_device,
    known_gpus,
    known_guard_pages,
    numbers_of_gpus,
    regular_expression,
    variables,
)
from shrinkfx.protocol.choices import (
    ARCHS,
    SANITIZERS,
    Backend,
    Guard,
    InductorOptions,
    Probe,
)


@dataclass(frozen=True, kw_only=True)
class FailureOptions:
    """Which failure."""

    until: str | None = option(
        None,
        metavar="KIND",
        help="the kind of failure ([below](#kinds-of-failure)); default: what the "
        "baseline shows",
        check=kind_of_failure,
        common=True,
        brief="the kind of failure; default: what the program shows",
    )
    strict_kind: bool = option(
        False,
        help="refuse a program that fails with another kind of error than `--until` "
        "says, instead of reducing that error",
    )
    match: str = option(
        "",
        metavar="REGEX",
        help="only a failure whose text holds this",
        check=regular_expression,
    )
    check: str | None = option(
        None,
        metavar="CMD",
        help="a command of yours instead: run with `{}` replaced by the path of a "
        "`.pt2`, it exits with 0 if that still fails, with 125 if it cannot tell; "
        "`{inputs}` is replaced by the path of the failing inputs, a `torch.save`d "
        "tuple",
        more="The program takes that as `program(*inputs)`",
        common=True,
        brief="a command that exits with 0 if the `.pt2` at `{}` fails",
    )
    baseline_runs: int | None = option(
        None,
        metavar="N",
        help="runs of the original before it is said not to fail (default: up to 100, "
        "for as long as compiling it took, 6 s at least and a minute at most)",
        more="What it says then tells how many there were. On the interpreter each "
        "probe is asked once, until one shows it",
        check=above_zero,
    )
    guard_pages: str = option(
        "auto",
        choices=GUARD_PAGES,
        help="have each tensor lie against an inaccessible page, so "
        "that touching what is beyond it faults in every run; `auto` (the default): "
        "for `--until ima` and `crash`; on a GPU between zones of poison as well",
        check=known_guard_pages,
    )
    sanitizer: str | None = option(
        None,
        metavar="TOOL",
        const=Guard.MEMCHECK,
        help="have compute-sanitizer look on in every check on a GPU: "
        f"{', '.join(f'`{tool}`' for tool in SANITIZERS)} (`{Guard.MEMCHECK}` without "
        "a word); without the option it looks at the result of an illegal access",
        more="It takes the place of guard pages. [What it tells](failures.md"
        "#crash-illegal-memory-access)",
        check=one_of(SANITIZERS),
    )
    cuda_coredump: bool = option(
        False,
        help="have CUDA leave a core dump of the result's fault in `cuda-core/` of the "
        "output folder, which cuda-gdb reads",
        more="It has registers and call stacks, and no memory",
    )


@dataclass(frozen=True, kw_only=True)
class TimeoutOptions:
    """When a check hangs."""

    timeout_s: float | None = option(
        None,
        metavar="S",
        help="seconds per check, without those in which it waits for a busy machine; "
        "default: ten times the original, 1 to 10 minutes",
        more="As programs shrink it gets less: ten times the longest of the last ten "
        "checks, 1 minute at least; a candidate larger than the last that failed has "
        "the first limit. Of a sweep: 1 minute; of `--verify`: 10. "
        "[What counts](#time-limits)",
        check=above_zero,
        common=True,
        brief="seconds per check, for a failure that hangs",
    )


@dataclass(frozen=True, kw_only=True)
class ProgramOptions:
    """The failing program; its own settings are those of the failing run."""

    model: Path = field(kw_only=False)
    inputs: Path | None = option(
        None,
        metavar="FILE",
        help="failing inputs, where they differ from those in the `.pt2`: a "
        "`torch.save`d tuple, or a dict with `args` and `kwargs`; for a sweep also a "
        "`.py` with a function `inputs(**sizes)`",
        never_empty=True,
        read=Path,
        common=True,
        brief="failing inputs, if not those in the `.pt2`",
    )
    preload: tuple[str, ...] = option(
        (),
        metavar="MODULE|FILE",
        help="module, `.py` or `.so` that registers custom operators; may be repeated",
        repeated=True,
        never_empty=True,
        read=tuple,
        common=True,
        brief="what registers custom operators; may be repeated",
    )
    run_code: bool = option(
        False,
        help="run the code of a program that a file holds as Python, to export it",
        more="A graph that torch.compile has left, or a "
        "[source archive](rooms/worker.md#source-archives). In a process of its own, "
        "under the limits of a check. [What is run](trust.md)",
    )
    device: str | None = option(
        None,
        metavar="cpu|cuda",
        help="move the program there; `cuda:1`: to the second GPU",
        more="Of those that `CUDA_VISIBLE_DEVICES` leaves visible. A program that lies "
        "on a GPU is moved to that one, and what it has on the CPU stays there",
        never_empty=True,
        check=known_device,
        common=True,
        brief="move the program there (`cuda`: also without a GPU)",
    )
    gpus: tuple[str, ...] = option(
        (),
        metavar="N,...",
        help="spread the checks over these GPUs, each check on one: `0,1`",
        more="The numbers are those of `cuda:0` and `cuda:1`. A check sees its GPU "
        "alone, as `cuda:0`. All else, the repro included, runs on the first. With "
        "`--jobs` there may be several checks on each",
        never_empty=True,
        read=numbers_of_gpus,
        check=known_gpus,
    )
    backend: str = option(
        Backend.AUTO,
        choices=Backend,
        help="`interpreter`: check the CUDA kernels without a GPU; `auto`: do that for "
        "a CUDA program where there is no GPU (default)",
    )
    arch: str = option(
        ARCHS[0],
        choices=ARCHS,
        help=f"the GPU that the interpreter's kernels are made for (`{ARCHS[0]}`)",
    )
    probe: str | None = option(
        None,
        choices=Probe,
        help="what the interpreter looks at; default: whatever shows the failure",
        more="`compile` is asked first for `--until compile-error` and `hang`, else "
        "they are in this order",
    )
    all_probes: bool = option(
        False,
        help="have it look at all of these, though one has shown the failure",
        more="That tells what the others find",
    )
    inductor: InductorOptions = option(
        dict,
        flags=("--inductor-config",),
        metavar="KEY=VALUE",
        help="an Inductor option of the failing run; may be repeated",
        repeated=True,
        read=inductor_settings,
        common=True,
        brief="an Inductor option of that run; may be repeated",
    )
    environment: Mapping[str, str] = option(
        dict,
        flags=("--env",),
        metavar="KEY=VALUE",
        help="an environment variable of the failing run; may be repeated; `KEY=` "
        "takes it away",
        more="The repro sets it if it does not fail without; `PYTHONHASHSEED`, which "
        "is read when Python starts, in any case: the repro begins anew with it. "
        "For CUDA "
        "`PYTORCH_NO_CUDA_MEMORY_CACHING` and `CUDA_LAUNCH_BLOCKING` are set to 1 "
        "unless you say otherwise; the former counts by being set, to whatever",
        repeated=True,
        read=variables,
        common=True,
        brief="a variable of the failing run; may be repeated",
    )
