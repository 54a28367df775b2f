"""Baseline, guard pages and evidence of a memory error, from one compilation.

Guard pages are an allocator, which is chosen when a package is run. So one package is
run without them, with them on either side, and ten times more. It is the whole
candidate of a functional program, in the build of the search and with evidence for
suspects (``in_one.py``). Only the setting without buffer reuse needs other code. A
failure that does not show is left to the file's own program in the stock build.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from shrinkfx.check.baseline.runs import Bounds, Packages, Runs
from shrinkfx.check.baseline.stock import Baseline, make_baseline, run_until_enough
from shrinkfx.check.baseline.whole_candidate import WholeCandidate
from shrinkfx.check.baseline.with_guard_pages import (
    ON_CPU,
    ON_GPU,
    Guarding,
    find_guarding,
)
from shrinkfx.check.limits import UNLIMITED, Allowance
from shrinkfx.check.oracle import CheckClient
from shrinkfx.failure.signature import ANY
from shrinkfx.protocol.choices import Build
from shrinkfx.protocol.files import Traces
from shrinkfx.system import scratch


def find_guarded_baseline(
    in_one: WholeCandidate,
    client: CheckClient,
    until: str | None,
    match: str,
    max_runs: int | None,
    note: Callable[[str], None],
    budget: Allowance = UNLIMITED,
    settings: Sequence[Guarding] = ON_CPU,
) -> tuple[Baseline, Guarding] | None:
    """Find the guard pages that show the failure, and make the baseline with them.

    Like ``find_whole_candidate_baseline`` it does not test the file's own program, and
    it does not test whether the failure shows again after a second compilation.

    Args:
        in_one: records the first run with the guard pages.

    Returns:
        None if no guard pages show the failure, or not in every run.

    Raises:
        BudgetExhausted: the first run did not end in time.
    """
    with scratch.make_scratch_folder("package") as folder:
        evidence = Path(folder, "evidence.json")
        packages = Packages(folder, on_gpu=settings is ON_GPU)
        packaged = replace(client, input_program=in_one.whole)
        packaged = packaged.with_options(build=Build.FAST, evidence=str(evidence))
        request = packaged, until, match, note, budget, settings
        guarding = find_guarding(*request, packages)
        if guarding.name and packages.first is not None:
            note("baseline: running the input program")
            checks = guarding.apply_to(packaged.options)
            packaged = replace(packaged, options=checks)
            packaged = packaged.with_options(package=packages.path_for(checks))
            in_one.seen, _ = packaged.run_input_program()
            if evidence.exists():
                in_one.traces = Traces.from_line(evidence.read_text())
            packaged = packaged.with_options(evidence=None)
            runs = Runs(until or ANY, match, [in_one.seen])
            bounds = Bounds.after_first_run(packages.first, max_runs, budget)
            if runs.target is not None:
                way = run_until_enough(packaged, runs, bounds, 1, note)
                if runs.failed_count == runs.answered_count:
                    return make_baseline(way, runs, bounds, Build.FAST, note), guarding
    note(_STOCK)
    return None


_STOCK = "running the file's own program in the stock build"
