"""Options that say how a run goes about it, and where its results go, group by group.

What ``options/failing.py`` says of ``help``, ``more`` and ``brief`` holds here, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from shrinkfx.flags import above_zero, option
from shrinkfx.options.values import (
    kinds_to_keep,
    known_kinds,
    known_ranges,
    names,
    some_names,
)
from shrinkfx.program.listing.types import Kind
from shrinkfx.protocol.choices import (
    Build,
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
        "repro is kept; to see that fail once may take longer",
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
