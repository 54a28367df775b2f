"""Options for the search, the budget, the explanation and the output of a run.

``options/failing.py`` explains ``help``, ``more`` and ``brief``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from shrinkfx.flags import option, require_above_zero
from shrinkfx.options.values import (
    check_kept_kinds,
    check_ranges,
    check_strategy_names,
    parse_kept_kinds,
    parse_names,
)
from shrinkfx.program.listing.printed_program import Kind
from shrinkfx.protocol.choices import Build


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
    keep: tuple[str, ...] = option(
        (),
        metavar="KIND,...",
        help="do not simplify these parts of the reduced program: "
        f"{', '.join(f'`{kind}`' for kind in Kind)} (branches and bodies of "
        "control flow); `all`: simplify nothing",
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
        "failure needs, and what each flag of PyTorch's debugging guide "
        "reports; `shrinkfx --explain DIR` does so for a finished run",
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
