"""The whole candidate: baseline and evidence from one compilation.

If the file's program is functional already, candidates are cut from it directly. So the
candidate that holds the whole program is checked first, in the build of the search and
with evidence for suspects. If it fails in every run by an exception or a wrong result,
that is the baseline, and the search does not check this candidate again. In any other
case the file's own program is run in the stock build.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from shrinkfx.check.baseline.runs import Bounds, Runs, is_self_explanatory
from shrinkfx.check.baseline.stock import Baseline, make_baseline, run_until_enough
from shrinkfx.check.limits import UNLIMITED, Allowance
from shrinkfx.check.oracle import CheckClient
from shrinkfx.failure.signature import ANY, Signature
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import Build
from shrinkfx.protocol.files import Traces
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.system import scratch


@dataclass
class WholeCandidate:
    """The candidate that holds the whole program, and its first run.

    Attributes:
        seen: the observation of that run, or None.
        traces: the evidence of that run.
    """

    whole: Candidate
    seen: Observation | None = None
    traces: Traces = field(default_factory=Traces)

    def verdict(self, target: Signature, checks: CheckOptions) -> Verdict | None:
        """Return the run as a verdict on the candidate, or None if it does not apply.

        It applies if it shows the target.

        Args:
            checks: the options for candidates; that run was a single call.
        """
        plain = checks.calls == 1 and not checks.fallback_random
        if self.seen is None or not plain or not target.admits(self.seen.signature):
            return None
        return Verdict(Outcome.REPRODUCED, self.seen)


def find_whole_candidate_baseline(
    in_one: WholeCandidate,
    client: CheckClient,
    until: str | None,
    match: str,
    max_runs: int | None,
    note: Callable[[str], None],
    budget: Allowance = UNLIMITED,
) -> Baseline | None:
    """Run the whole candidate in the fast build, as ``baseline`` runs the program.

    It does not test whether the file's own program fails too, with its inputs nested as
    they were, and in the stock build; the repro of the reduced program does.

    Args:
        in_one: records the first run, also if there is no baseline.

    Returns:
        None if the candidate does not fail as requested, not in every run, or not by an
        exception or a wrong result.

    Raises:
        BudgetExhausted: the first run did not end in time.
    """
    note("baseline: running the input program")
    with scratch.make_scratch_folder("package") as folder:
        package, evidence = f"{folder}/whole.pt2", Path(folder, "evidence.json")
        packaged = replace(client, input_program=in_one.whole)
        packaged = packaged.with_options(build=Build.FAST, package=package)
        in_one.seen, _ = packaged.with_options(
            evidence=str(evidence)
        ).run_input_program()
        if evidence.exists():
            in_one.traces = Traces.from_line(evidence.read_text())
        runs = Runs(until or ANY, match, [in_one.seen])
        if is_self_explanatory(runs.target):
            bounds = Bounds.after_first_run(in_one.seen, max_runs, budget)
            way = run_until_enough(packaged, runs, bounds, 1, note)
            if runs.failed_count == runs.answered_count:
                return make_baseline(way, runs, bounds, Build.FAST, note)
    note(_STOCK)
    return None


_STOCK = (
    "the fast build is inconclusive: running the file's own program in the stock build"
)
