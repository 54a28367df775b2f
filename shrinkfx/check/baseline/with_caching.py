"""Find which of CUDA's allocators shows the failure of the input program.

PyTorch's caching allocator hands out parts of large blocks, and reuses freed memory. So
an out-of-bounds access stays inside a block and does not fault; without caching,
``cudaMalloc`` gives each tensor memory of its own. But a failure may need the caching
allocator: a read of freed memory (stale reuse, streams), or expandable segments.

``PYTORCH_NO_CUDA_MEMORY_CACHING`` takes effect by being set, whatever its value is
(``c10/cuda/CUDACachingAllocator.cpp``), and the first allocation of a process reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from shrinkfx.check.baseline.stock import Baseline
from shrinkfx.check.limits import UNLIMITED, Allowance
from shrinkfx.check.oracle import CheckClient
from shrinkfx.errors import NotReproducible, join_lines
from shrinkfx.failure.signature import Stage

NO_CACHING = "PYTORCH_NO_CUDA_MEMORY_CACHING"

CACHED = {NO_CACHING: ""}
"""Variables that select the caching allocator: an empty one is removed."""


def baseline_with_either(
    run_baseline: Callable[[CheckClient], Baseline],
    client: CheckClient,
    note: Callable[[str], None],
    budget: Allowance = UNLIMITED,
) -> Baseline:
    """Make the baseline without the caching allocator, or else with it.

    Without it comes first, because a failure that shows so shows in every run. The
    result is reported, and the search and the repro use the same allocator.

    Args:
        run_baseline: makes the baseline, or raises ``NotReproducible``.

    Raises:
        NotReproducible: the program does not fail as requested with either.
        BudgetExhausted: the time ended first.
    """
    environment = {**client.options.environment, **CACHED}
    cached = client.with_options(environment=environment)
    note("running the program without CUDA's caching allocator")
    try:
        baseline = run_baseline(client)
    except NotReproducible as error:
        without = error
    else:
        if baseline.target.stage in (Stage.RUN, Stage.COMPARE, Stage.PASSING):
            cached = cached.with_options(calls=baseline.calls)
            note(_SHOWS_WITHOUT.format(_seen_with(cached, baseline, budget)))
        return baseline
    note(
        "the program does not fail without CUDA's caching allocator: running it "
        "with the allocator"
    )
    try:
        baseline = run_baseline(cached)
    except NotReproducible as with_it:
        raise _combine(without, with_it) from with_it
    note(_NEEDS)
    return replace(baseline, environment=environment)


def _combine(without: NotReproducible, with_it: NotReproducible) -> NotReproducible:
    """Return one error for the program without the caching allocator and with it."""
    seconds = [s for s in (without.seconds, with_it.seconds) if s is not None]
    return NotReproducible(
        without.wanted,
        without.runs + with_it.runs,
        [
            *(f"{text} (without the caching allocator)" for text in without.seen),
            *(f"{text} (with the caching allocator)" for text in with_it.seen),
        ],
        join_lines([without.advice, _SILENT]),
        sum(seconds) if seconds else None,
        without.kind if without.kind == with_it.kind else "",
    )


def _seen_with(cached: CheckClient, baseline: Baseline, budget: Allowance) -> str:
    """Describe one run with the caching allocator, if there is time for it."""
    share = budget.share()
    if baseline.seconds > share:
        return "not enough time left for a run with the allocator"
    seen = cached.run_within(share)
    if seen is None:
        return "not enough time was left for a run with the allocator"
    return f"with the allocator: {seen.in_words}"


def is_allocator_chosen(*environments: Mapping[str, str]) -> bool:
    """Tell whether the user has chosen an allocator."""
    return any(NO_CACHING in environment for environment in environments)


_SHOWS_WITHOUT = (
    "the program fails without the caching allocator, and the search runs without it; "
    "{}"
)
_NEEDS = (
    "the program fails only with the caching allocator: the search and the repro use "
    f"the allocator ({NO_CACHING} is not set)"
)
_SILENT = (
    "the failure may be silent on a GPU: --backend interpreter checks "
    "each access of the kernels, and the kernels that are benchmarked "
    "during compilation"
)
