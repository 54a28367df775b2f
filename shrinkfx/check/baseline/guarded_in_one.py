"""A memory error of all of a program as a candidate: seen, guarded and blamed in one.

Guard pages are an allocator, and chosen when a package is run. So what was compiled for
the first run is what runs without them, with them on either side, and ten times more:
the candidate that holds all of a functional program, in the build of the search and
with what tells suspects (``in_one.py``). Only buffers that are not reused take other
code. What does not show itself so is left to the file's own program in the stock build.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from shrinkfx import scratch
from shrinkfx.check.allowance import UNLIMITED, Allowance
from shrinkfx.check.baseline.in_one import InOne
from shrinkfx.check.baseline.runs import Bounds, Packages, Runs
from shrinkfx.check.baseline.stock import Baseline, concluded, run_often
from shrinkfx.check.baseline.with_guard_pages import (
    ON_CPU,
    ON_GPU,
    Guarding,
    find_guarding,
)
from shrinkfx.check.oracle import CheckClient
from shrinkfx.failure.signature import ANY
from shrinkfx.protocol.choices import Build
from shrinkfx.protocol.files import Traces


def guarded_in_one(
    in_one: InOne,
    client: CheckClient,
    until: str | None,
    match: str,
    max_runs: int | None,
    note: Callable[[str], None],
    budget: Allowance = UNLIMITED,
    settings: Sequence[Guarding] = ON_CPU,
) -> tuple[Baseline, Guarding] | None:
    """Find the guard pages that show its failure, and run on beside these.

    What it no longer asks of a failure that it finds is what ``baseline_in_one`` does
    not ask either, and that it fails so when compiled a second time.

    Args:
        in_one: learns what a run beside guard pages has shown.

    Returns:
        None where no guard pages show the failure, or not in every run.

    Raises:
        BudgetExhausted: the first run has not come to its end.
    """
    with scratch.folder("package") as folder:
        evidence = Path(folder, "evidence.json")
        packages = Packages(folder, on_gpu=settings is ON_GPU)
        kept = replace(client, whole=in_one.whole)
        kept = kept.with_options(build=Build.FAST, evidence=str(evidence))
        asked = kept, until, match, note, budget, settings
        guarding = find_guarding(*asked, packages)
        if guarding.name and packages.first is not None:
            note("baseline: running the input program")
            checks = guarding.around(kept.options)
            kept = replace(kept, options=checks)
            kept = kept.with_options(package=packages.place(checks))
            in_one.seen, _ = kept.original()
            if evidence.exists():
                in_one.traces = Traces.from_line(evidence.read_text())
            kept = kept.with_options(evidence=None)
            runs = Runs(until or ANY, match, [in_one.seen])
            bounds = Bounds.after(packages.first, max_runs, budget)
            if runs.target is not None:
                way = run_often(kept, runs, bounds, 1, note)
                if runs.failed == runs.told:
                    return concluded(way, runs, bounds, Build.FAST, note), guarding
    note(_STOCK)
    return None


_STOCK = "running the file's own program in the stock build"
