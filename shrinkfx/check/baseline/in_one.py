"""What all of a program does as a candidate: baseline and evidence of one compilation.

Where the file's program is functional already, candidates are cut from what it holds.
So the candidate that holds all of it is asked first, in the build of the search and
with what tells suspects. That it fails so in words, in every run, is the baseline, and
is not asked again before the search. Anything else is left to the file's own program
in the stock build.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from shrinkfx import scratch
from shrinkfx.check.allowance import UNLIMITED, Allowance
from shrinkfx.check.baseline.runs import Bounds, Runs, is_in_words
from shrinkfx.check.baseline.stock import Baseline, concluded, run_often
from shrinkfx.check.oracle import CheckClient
from shrinkfx.failure.signature import ANY, Signature
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import Build
from shrinkfx.protocol.files import Traces
from shrinkfx.protocol.requests import CheckOptions


@dataclass
class InOne:
    """The candidate that holds all of a program, and what its first run has shown.

    Attributes:
        seen: of that run; None before there was one.
        traces: what the run has left behind.
    """

    whole: Candidate
    seen: Observation | None = None
    traces: Traces = field(default_factory=Traces)

    def verdict(self, target: Signature, checks: CheckOptions) -> Verdict | None:
        """Give that run as an answer about the candidate, if it shows the target.

        Args:
            checks: how candidates are asked about; that run was one plain call.
        """
        plain = checks.calls == 1 and not checks.fallback_random
        if self.seen is None or not plain or not target.admits(self.seen.signature):
            return None
        return Verdict(Outcome.REPRODUCED, self.seen)


def baseline_in_one(
    in_one: InOne,
    client: CheckClient,
    until: str | None,
    match: str,
    max_runs: int | None,
    note: Callable[[str], None],
    budget: Allowance = UNLIMITED,
) -> Baseline | None:
    """Run the candidate that holds all of it, in the fast build, as ``baseline`` does.

    What it no longer asks of a failure that it finds: whether the file's own program
    fails so, with its inputs as they were nested, and in the stock build. What is left
    of the program is asked for that by its repro.

    Args:
        in_one: learns what the first run has shown, whatever becomes of it.

    Returns:
        None where it does not fail as asked, or not in every run, or not in words.

    Raises:
        BudgetExhausted: the first run has not come to its end.
    """
    note("baseline: running the input program")
    with scratch.folder("package") as folder:
        package, evidence = f"{folder}/whole.pt2", Path(folder, "evidence.json")
        kept = replace(client, whole=in_one.whole)
        kept = kept.with_options(build=Build.FAST, package=package)
        in_one.seen, _ = kept.with_options(evidence=str(evidence)).original()
        if evidence.exists():
            in_one.traces = Traces.from_line(evidence.read_text())
        runs = Runs(until or ANY, match, [in_one.seen])
        if is_in_words(runs.target):
            bounds = Bounds.after(in_one.seen, max_runs, budget)
            way = run_often(kept, runs, bounds, 1, note)
            if runs.failed == runs.told:
                return concluded(way, runs, bounds, Build.FAST, note)
    note(_STOCK)
    return None


_STOCK = (
    "the fast build is inconclusive: running the file's own program in the stock build"
)
