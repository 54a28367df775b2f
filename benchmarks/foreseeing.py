"""What do several jobs save? ``python benchmarks/foreseeing.py --out FILE``.

Searches through the programs of ``synthetic.py`` with 1, 2, 4 and 8 questions under way
at once, where each takes one round; nothing is compiled. With any number of jobs the
search is the same, which is checked. Prints, for each size and number of jobs, how many
times fewer rounds it takes than with one job, how many times more questions are asked,
and the search's own time for a question that it is given an answer to.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import mean, median

from search import machine
from synthetic import DELETING, Blame, Case, Needles, make_case

from shrinkfx.failure.verdict import Oracle, Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.search.asker import Asker
from shrinkfx.search.foreseeing import Foreseeing, Pending
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose
from shrinkfx.testing import FakeOracle, whole


class Asked:
    """A question that takes a round."""

    def __init__(self, candidate: Candidate, oracle: Oracle) -> None:
        self._candidate, self._oracle = candidate, oracle
        self._is_done = self.is_cancelled = False

    def finish(self) -> None:
        self._is_done = True

    def done(self) -> bool:
        return self._is_done

    def result(self) -> Verdict:
        assert self._is_done
        assert not self.is_cancelled
        return self._oracle.check(self._candidate)

    def cancel(self) -> None:
        self.is_cancelled = not self._is_done


class Rounds:
    """Lanes that all go at the same pace.

    Attributes:
        rounds: waited for so far.
        begun: every question.
    """

    def __init__(self, oracle: Oracle, count: int) -> None:
        self._oracle, self.count = oracle, count
        self.rounds = 0
        self.begun: list[Asked] = []

    def begin(self, candidate: Candidate) -> Pending:
        self.begun.append(Asked(candidate, self._oracle))
        return self.begun[-1]

    def wait(self, pending: Collection[Pending]) -> None:
        self.rounds += 1
        for each in pending:
            assert isinstance(each, Asked)
            each.finish()


@dataclass(frozen=True)
class Run:
    """A search with some jobs.

    Attributes:
        answers: that it was given.
        asked: questions, with those that it was not given the answers of.
        cpu_ms: its own time for an answer that it was given.
        result: the candidates it has accepted, by their digests.
    """

    jobs: int
    rounds: int
    answers: int
    asked: int
    cpu_ms: float
    result: list[str]


def search(case: Case, jobs: int) -> Run:
    """Reduce a case as shrinkfx does, with so many jobs."""
    oracle = FakeOracle(case.answer)
    lanes = Rounds(oracle, jobs)
    began = time.process_time()
    asker = Asker(Foreseeing(oracle, lanes))
    start, strategies = whole(case.program), choose(DELETING)
    reducer = Reducer(start, asker, strategies, suspects=case.suspects)
    reducer.run()
    spent = time.process_time() - began
    answers = asker.asked_about
    result = [candidate.digest for candidate in reducer.history]
    each = 1e3 * spent / answers
    return Run(jobs, lanes.rounds, answers, len(lanes.begun), each, result)


@dataclass(frozen=True)
class Row:
    """What so many jobs came to on the programs of one size.

    Attributes:
        fewer: times fewer rounds than with one job, for each program.
        more: times more questions than answers.
    """

    operators: int
    needed: int
    blame: Blame
    jobs: int
    fewer: list[float]
    more: list[float]
    cpu_ms: list[float]

    def __str__(self) -> str:
        fewer = sorted(self.fewer)
        return (
            f"{self.operators:5} {self.needed:2} {self.blame:6} {self.jobs:4}"
            f" {mean(fewer):7.2f} {median(fewer):7.2f}"
            f" {fewer[len(fewer) // 4]:6.2f}-{fewer[-1 - len(fewer) // 4]:.2f}"
            f" {mean(self.more):9.2f} {median(self.cpu_ms):8.1f}"
        )


HEAD = (
    f"{'n':>5} {'k':>2} {'blame':6} {'jobs':>4} {'fewer':>7} {'median':>7}"
    f" {'quartiles':>11} {'asked':>9} {'ms each':>8}"
)


def main() -> None:
    options = arguments()
    print(HEAD)
    rows = []
    for operators, needed, blame in product(
        options.operators, options.needed, map(Blame, options.blame)
    ):
        for row in measure(operators, needed, blame, options.graphs, options.jobs):
            rows.append(row)
            print(row, flush=True)
    for jobs in options.jobs:
        fewer = [x for row in rows if row.jobs == jobs for x in row.fewer]
        more = [x for row in rows if row.jobs == jobs for x in row.more]
        print(
            f"all programs, {jobs} jobs: {mean(fewer):.2f} times fewer rounds"
            f" (median {median(fewer):.2f}), {mean(more):.2f} times the questions"
        )
    if options.out:
        found = {"on": machine(), "rows": [asdict(row) for row in rows]}
        options.out.write_text(json.dumps(found, separators=(",", ":")) + "\n")


def measure(
    operators: int, needed: int, blame: Blame, graphs: int, jobs: list[int]
) -> list[Row]:
    cases = [
        make_case(number, operators, needed, Needles.NEAR, blame)
        for number in range(graphs)
    ]
    alone = [search(case, 1) for case in cases]
    rows = []
    for count in jobs:
        runs = [search(case, count) for case in cases]
        for run, other in zip(runs, alone, strict=True):
            assert (run.result, run.answers) == (other.result, other.answers)
        rows.append(
            Row(
                *(operators, needed, blame, count),
                [o.rounds / r.rounds for r, o in zip(runs, alone, strict=True)],
                [r.asked / r.answers for r in runs],
                [r.cpu_ms for r in runs],
            )
        )
    return rows


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, metavar="FILE", help="where JSON goes")
    parser.add_argument("--graphs", type=int, default=24, metavar="N", help="of a size")
    several = {"type": int, "nargs": "+", "metavar": "N"}
    parser.add_argument("--operators", **several, default=[50, 200])
    parser.add_argument("--needed", **several, default=[3, 8])
    parser.add_argument("--jobs", **several, default=[2, 4, 8])
    parser.add_argument("--blame", nargs="+", choices=[*Blame], default=[Blame.NONE])
    return parser.parse_args()


if __name__ == "__main__":
    main()
