"""What the cheap part of an explanation adds to a run, in CPU-seconds.

    python benchmarks/explain_cost.py CASE=FOLDER ...

The output folders of finished runs. What every run asks by itself is asked of each
result anew, in a copy of its folder, and held against what the run has spent on all
else: ``cpu_seconds`` of its ``summary.json`` without ``explain``, which holds the rest
of the explanation as well where the run was one with ``--explain``.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from shrinkfx.check.client.server import GUARDED_WORKER, WORKER
from shrinkfx.events import ignore_event
from shrinkfx.run import explaining
from shrinkfx.run.folder import RESULT, load_finished_options, open_run_folder
from shrinkfx.run.observe import load_or_find_subject, wants_guard_pages


def main(*named: str) -> None:
    print("| case | the run, CPU-s | explaining, CPU-s | adds |")
    print("|---|---|---|---|")
    shares = []
    for case, folder in (name.split("=", 1) for name in named):
        spent = json.loads((Path(folder) / "summary.json").read_text())["cpu_seconds"]
        run = sum(spent.values()) - spent["explain"]
        with tempfile.TemporaryDirectory() as home:
            copy = Path(shutil.copytree(folder, Path(home) / "out"))
            asked = explaining_of(copy)
        shares.append(asked / run)
        print(f"| {case} | {run:.0f} | {asked:.1f} | {shares[-1]:.0%} |", flush=True)
    print(f"| median of {len(shares)} | | | {statistics.median(shares):.0%} |")


def explaining_of(folder: Path) -> float:
    """Ask the cheap part of a result, and say what its checks took."""
    options = replace(load_finished_options(folder), explain=False, no_explain=False)
    worker = GUARDED_WORKER if wants_guard_pages(options) else WORKER
    with (
        open_run_folder(options, folder, ignore_event, "--explain") as context,
        context.server(worker) as context.worker,
    ):
        known = context.journal.fact(RESULT)
        subject = load_or_find_subject(context)
        subject = subject.with_options(calls=known["calls"])
        result = explaining._from_json(subject, known)
        shown = explaining._shown_from_json(subject, known)
        explaining._analyze_cause(result, shown)
        return context.meters["explain"].cpu_seconds


if __name__ == "__main__":
    main(*sys.argv[1:])
