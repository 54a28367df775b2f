"""Which of CUDA's allocators shows the failure of the unchanged program.

PyTorch's caching allocator hands out parts of large blocks, and hands what was freed
to the next who asks. So an overrun stays inside of a block, where nothing faults;
without it, ``cudaMalloc`` gives each tensor memory of its own. But a failure may need
just that: what was freed and is read still (stale reuse, streams), expandable segments.

``PYTORCH_NO_CUDA_MEMORY_CACHING`` counts by being set, whatever its value is
(``c10/cuda/CUDACachingAllocator.cpp``), and the first allocation of a process reads it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from shrinkfx.check.allowance import UNLIMITED, Allowance
from shrinkfx.check.baseline.stock import Baseline
from shrinkfx.check.oracle import CheckClient
from shrinkfx.errors import BudgetExhausted, NotReproducible
from shrinkfx.failure.signature import Stage
from shrinkfx.wording import Flag, Words

NO_CACHING = "PYTORCH_NO_CUDA_MEMORY_CACHING"

CACHED = {NO_CACHING: ""}
"""What a check is told to have the caching allocator: an empty variable is none."""


def baseline_with_either(
    see: Callable[[CheckClient], Baseline],
    client: CheckClient,
    note: Callable[[str], None],
    budget: Allowance = UNLIMITED,
) -> Baseline:
    """See the failure without the caching allocator, or else with it.

    Without it is tried first, since what shows so shows in every run. What is found is
    told, and the search and the repro use that one.

    Args:
        see: finds the baseline, or raises ``NotReproducible``.

    Raises:
        NotReproducible: it does not fail as asked, with either.
        BudgetExhausted: the minutes have ended before it was seen.
    """
    note("running the program without CUDA's caching allocator")
    try:
        found = see(client)
    except NotReproducible as without:
        return _with_it(see, client, note, without)
    if found.target.stage in (Stage.RUN, Stage.COMPARE, Stage.PASSING):
        note(_SHOWS_WITHOUT.format(_seen_with(client, found, budget)))
    return found


def _with_it(
    see: Callable[[CheckClient], Baseline],
    client: CheckClient,
    note: Callable[[str], None],
    without: NotReproducible,
) -> Baseline:
    note(
        "the program does not fail without CUDA's caching allocator: running it "
        "with the allocator"
    )
    environment = {**client.options.environment, **CACHED}
    try:
        found = see(client.with_options(environment=environment))
    except NotReproducible as with_it:
        raise NotReproducible(
            without.wanted,
            without.runs + with_it.runs,
            [
                *(f"{said} (without the caching allocator)" for said in without.seen),
                *(f"{said} (with the caching allocator)" for said in with_it.seen),
            ],
            Words.lines([without.advice, _SILENT]),
            _sum(without.seconds, with_it.seconds),
            without.kind if without.kind == with_it.kind else "",
        ) from with_it
    note(_NEEDS)
    return replace(found, environment=environment)


def _seen_with(client: CheckClient, found: Baseline, budget: Allowance) -> str:
    """Say what one run with the caching allocator does, if there is time for it."""
    share = budget.share()
    if found.seconds > share:
        return "not enough time left for a run with the allocator"
    environment = {**client.options.environment, **CACHED}
    cached = client.with_options(environment=environment, calls=found.calls)
    try:
        seen, ending = cached.within(share).original()
    except BudgetExhausted:
        return "not enough time was left for a run with the allocator"
    if ending.how == "late" and math.isfinite(share):
        return "not enough time was left for a run with the allocator"
    return f"with the allocator: {seen.in_words}"


def is_chosen(*environments: Mapping[str, str]) -> bool:
    """Tell whether somebody has said which allocator is to be used."""
    return any(NO_CACHING in environment for environment in environments)


def _sum(*seconds: float | None) -> float | None:
    known = [each for each in seconds if each is not None]
    return sum(known) if known else None


_SHOWS_WITHOUT = (
    "the program fails without the caching allocator, and the search runs without it; "
    "{}"
)
_NEEDS = (
    "the program fails only with the caching allocator: the search and the repro use "
    f"the allocator ({NO_CACHING} is not set)"
)
_SILENT = Words(
    "the failure may be silent on a GPU: ",
    Flag("--backend", "interpreter"),
    " checks each access of the kernels, and the kernels that are benchmarked during "
    "compilation",
)
