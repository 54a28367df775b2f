"""Options, group by group as the help has them: where a new one goes.

What is said as ``help`` is Markdown: ``--help-all`` shows it without the markup, and
the reference with it, before what is said as ``more``. ``--help`` shows those that are
marked ``common``, and of these ``brief`` if there is one. ``flags.Option`` explains the
rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from shrinkfx.flags import above_zero, one_of, option
from shrinkfx.options.values import (
    GUARD_PAGES,
    inductor_settings,
    kind_of_failure,
    kinds_to_keep,
    known_device,
    known_gpus,
    known_guard_pages,
    known_kinds,
    known_ranges,
    names,
    numbers_of_gpus,
    regular_expression,
    some_names,
    variables,
)
from shrinkfx.program.listing.types import Kind
from shrinkfx.protocol.choices import (
    ARCHS,
    SANITIZERS,
    Backend,
    Build,
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
        help="run the code of a graph that torch.compile has left, to export it",
        more="In a process of its own, under the limits of a check. "
        "[What is run](trust.md)",
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
        more="The repro sets it if it does not fail without. For CUDA "
        "`PYTORCH_NO_CUDA_MEMORY_CACHING` and `CUDA_LAUNCH_BLOCKING` are set to 1 "
        "unless you say otherwise; the former counts by being set, to whatever",
        repeated=True,
        read=variables,
        common=True,
        brief="a variable of the failing run; may be repeated",
    )


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """What a run may use; one that goes on may be given more."""

    max_checks: int | None = option(
        None,
        metavar="N",
        help="stop after N checks",
        more="What comes out is the best so far",
        beside_resume=True,
        check=above_zero,
    )
    max_minutes: float | None = option(
        None,
        metavar="M",
        help="end after M minutes, baseline and verification included: "
        "[what can be done without](#few-minutes) is left out, and time for a verified "
        "repro is kept",
        beside_resume=True,
        check=above_zero,
        common=True,
        brief="end after M minutes, with a verified repro",
    )
    max_disk: float | None = option(
        None,
        metavar="GB",
        help="gigabytes that it may take of `$TMPDIR` (default: what is free there)",
        more="They are for the values of eager runs and for packages. If one of these "
        "would take more, it is not begun, and you are told what is needed",
        beside_resume=True,
        check=above_zero,
    )
    jobs: int | None = option(
        None,
        metavar="N",
        help="ask about N candidates at once, which finds the same result sooner; "
        "default: half the cores, at most 4, fewer where memory is short",
        more="What is asked ahead may turn out not to be wanted, so it takes more "
        "CPU-seconds. With `--check`, and for CUDA on a GPU, it is 1 unless you say "
        "more, or one for each of `--gpus`; always for a failure that only some runs "
        "show. [In full](#several-at-once)",
        beside_resume=True,
        check=above_zero,
        common=True,
        brief="ask about N candidates at once",
    )


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How the search goes about it."""

    build: str = option(
        Build.FAST,
        choices=Build,
        help="how candidates for the CPU are built; `fast` (the default): what all "
        "models share is compiled once, and the result is confirmed with "
        "AOTInductor's own build, `stock`",
    )
    strategies: tuple[str, ...] | None = option(
        None,
        metavar="NAME,...",
        help="only these, in order",
        read=names,
        check=some_names,
    )
    keep: tuple[str, ...] = option(
        (),
        metavar="KIND,...",
        help="once no operator can go, leave these as they are in what is left: "
        f"{', '.join(f'`{kind}`' for kind in Kind)}; `all`: leave all of it",
        more="[What is made plainer](rooms/run.md#what-a-reader-sees)",
        read=kinds_to_keep,
        check=known_kinds,
    )


@dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    """How much is asked of the result about its failure's cause."""

    explain: bool = option(
        False,
        help="ask the result which decisions of the compiler its failure needs and "
        "what each flag of PyTorch's debugging guide says of it, too; "
        "`shrinkfx --explain DIR` asks that of a run that is over",
        more="[What is told](explain.md)",
        apart="explain",
        common=True,
        brief="tell more of the cause (DIR: of a run that is over)",
    )
    no_explain: bool = option(
        False,
        help="do not ask the result anything about its failure's cause",
        apart="explain",
    )


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Where the results go."""

    out: Path | None = option(
        None,
        metavar="DIR",
        help="default: `shrinkfx-out/<model>-<number>`",
        more="A folder that holds another run is refused",
        never_empty=True,
        read=Path,
        common=True,
        brief="where results go (default: below `shrinkfx-out`)",
    )
    title: str | None = option(
        None,
        metavar="TEXT",
        help="the title of `ISSUE.md`; default: made of the operators and the failure",
        more="With `--explain DIR` it gets another one",
        never_empty=True,
    )
    anonymous: bool = option(
        False,
        help="leave names of the model out of `repro.py`, `ISSUE.md` and "
        "`report.html`: inputs, weights and sizes have others, and nothing says where "
        "an operator stands",
        more="The repro is verified with these names. Custom operators, preloads and "
        "values [stay](rooms/report.md#what-is-left-of-a-model)",
    )


@dataclass(frozen=True)
class Sweeping:
    """How to sweep over sizes; None takes the default."""

    examples: int | None = option(
        None, metavar="N", help="sizes to draw (default 200)", check=above_zero
    )
    seed: int | None = option(
        None, metavar="S", help="another one draws others (default 0)"
    )
    max_elements: int | None = option(
        None,
        metavar="E",
        help="of the largest tensor (default 4194304, or less if memory is short)",
        check=above_zero,
    )
    ranges: str = option(
        "declared",
        flags=("--beyond-ranges",),
        const="beyond",
        help="also try sizes just outside of the declared ones, which the program must "
        "refuse (`AOTI_RUNTIME_CHECK_INPUTS=1`) or run as eager does",
        check=known_ranges,
    )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read it; an older journal lacks what was added since."""
        return cls(**data)
