"""What do other constants in ``bundles.py`` cost? ``python benchmarks/constants.py``.

Each constant alone is set to other values, and all programs of ``synthetic.py`` that
``--operators``, ``--needed`` and ``--graphs`` make are reduced with it: with good,
rough and no blame where the needed operators are near each other, and without blame
where they are scattered. Prints, for each value, the questions of all searches against
those with the constant as it is (geometric mean over the kinds of programs), and how
many operators more or fewer the results have. Nothing is compiled.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import geometric_mean, mean
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from search import TOOLS, machine  # noqa: E402
from synthetic import make_case, search  # noqa: E402

from shrinkfx.search import bundles  # noqa: E402

VALUES: Mapping[str, tuple[float, ...]] = {
    "_GUESS": (1, 2, 4, 8, 16),
    "_MOST": (0.1, 0.25, 0.4, 0.6),
    "_BLAME": (0.05, 0.15, 0.3, 0.5, 0.8),
    "_LUCK": (0.4, 0.55, 0.7, 0.85, 1.0),
    "_DOUBT": (0.35, 0.7, 1.0, 1.4, 2.0),
    "_SURE": (0.9, 0.99, 0.999),
}
"""What is tried of each constant, which is itself among them."""

KINDS = (
    "shrinkfx",
    "shrinkfx, good blame",
    "shrinkfx, rough blame",
    "shrinkfx, scattered",
)


HEAD = "constant  value      all     none    good   rough scatter.    left"


@dataclass(frozen=True)
class Cost:
    """What searches take with one constant changed.

    Attributes:
        questions: by kind of program, their mean number.
        left: operators of the results, their mean.
    """

    constant: str
    value: float
    questions: dict[str, float]
    left: float

    def beside(self, usual: Cost) -> str:
        """Say how it compares with the constants as they are."""
        ratios = [self.questions[kind] / usual.questions[kind] for kind in KINDS]
        each = "".join(f"{ratio:8.3f}" for ratio in ratios)
        return (
            f"{self.constant:8} {self.value:6g} {geometric_mean(ratios):8.3f}"
            f"{each} {self.left - usual.left:+8.2f}"
        )


def main() -> None:
    options = arguments()
    usual = cost("_SURE", bundles._SURE, options)
    costs = [usual]
    print(HEAD)
    for name, values in VALUES.items():
        assert getattr(bundles, name) in values, name
        for value in values:
            costs.append(cost(name, value, options))
            print(costs[-1].beside(usual), flush=True)
    if options.out:
        result = {"on": machine(), "costs": [asdict(each) for each in costs]}
        options.out.write_text(json.dumps(result, indent=1) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, metavar="FILE", help="where JSON goes")
    parser.add_argument("--graphs", type=int, default=8, metavar="N", help="of a size")
    sizes: dict[str, Any] = {"type": int, "nargs": "+", "metavar": "N"}
    parser.add_argument("--operators", **sizes, default=[50, 200])
    parser.add_argument("--needed", **sizes, default=[1, 3, 8])
    return parser.parse_args()


def cost(name: str, value: float, options: argparse.Namespace) -> Cost:
    """Reduce all programs with a constant set to a value."""
    questions, left = {}, []
    with mock.patch.object(bundles, name, value):
        for kind in KINDS:
            sizes = product(options.operators, options.needed, range(options.graphs))
            runs = [
                search(make_case(number, operators, needed, *TOOLS[kind]))
                for operators, needed, number in sizes
            ]
            questions[kind] = mean(run.checks for run in runs)
            left += [run.left for run in runs]
    return Cost(name, value, questions, mean(left))


if __name__ == "__main__":
    main()
