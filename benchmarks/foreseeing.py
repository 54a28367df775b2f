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
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import mean, median

from rounds import search
from search import machine
from synthetic import Blame, Needles, make_case


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
    for name, default in (
        ("--operators", [50, 200]),
        ("--needed", [3, 8]),
        ("--jobs", [2, 4, 8]),
    ):
        parser.add_argument(name, type=int, nargs="+", metavar="N", default=default)
    parser.add_argument("--blame", nargs="+", choices=[*Blame], default=[Blame.NONE])
    return parser.parse_args()


if __name__ == "__main__":
    main()
