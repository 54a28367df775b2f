"""How many checks does a search take? ``python benchmarks/search.py --out FILE``.

Counts the questions of shrinkfx's phases 1 to 4 (blame, modules, bundles, single
operators) on the programs of ``synthetic.py``, and those of PyTorch's minifier on the
same programs with the same oracle. Nothing is compiled. Prints medians and writes all
runs as JSON; ``--plot FILE`` draws operators left against checks (needs matplotlib: the
extra ``bench``). ``--graphs 4 --operators 50 200`` takes a minute or two.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from itertools import product
from pathlib import Path
from statistics import mean, median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from synthetic import Blame, Case, Needles, Run, make_case, search  # noqa: E402

TOOLS = {
    "shrinkfx": (Needles.NEAR, Blame.NONE),
    "shrinkfx, good blame": (Needles.NEAR, Blame.GOOD),
    "shrinkfx, rough blame": (Needles.NEAR, Blame.ROUGH),
    "shrinkfx, flat blame": (Needles.NEAR, Blame.FLAT),
    "shrinkfx, scattered": (Needles.SCATTERED, Blame.NONE),
    "minifier": (Needles.NEAR, Blame.NONE),
    "minifier, scattered": (Needles.SCATTERED, Blame.NONE),
}

DRAWN = (200, 8)
"""Operators and needed ones of the programs in the figure."""


@dataclass(frozen=True)
class Row:
    """What one tool did on the graphs of one size.

    Attributes:
        graphs: how many of them it came to the end of in time.
    """

    tool: str
    operators: int
    needed: int
    graphs: int
    runs: list[Run]

    def __str__(self) -> str:
        if not self.runs:
            return f"{self.head}   none of {self.graphs} graphs in time"
        checks = sorted(run.checks for run in self.runs)
        return (
            f"{self.head} {len(self.runs):3}/{self.graphs:<3}"
            f" {median(checks):7g} {checks[len(checks) // 4]:5}-"
            f"{checks[-1 - len(checks) // 4]:<5}{checks[-1]:5}"
            f" {mean(run.repeated / run.checks for run in self.runs):9.0%}"
            f" {median(run.left for run in self.runs):6g}"
            f" {mean(run.left for run in self.runs):6.2f}"
            f" {mean(run.minimal for run in self.runs):8.0%}"
            f" {median(run.cpu_ms for run in self.runs):7.1f}"
        )

    def to_json(self) -> dict[str, Any]:
        """Leave out the curves that are not drawn."""
        entry = asdict(self)
        for run in entry["runs"]:
            if not self.is_drawn:
                del run["sizes"]
        return entry

    @property
    def is_drawn(self) -> bool:
        return (self.operators, self.needed) == DRAWN and bool(self.runs)

    @property
    def head(self) -> str:
        return f"{self.operators:5} {self.needed:2}  {self.tool:22}"


HEAD = (
    f"{'n':>5} {'k':>2}  {'':22} {'graphs':>7} {'checks':>7} {'quartiles':^11}"
    f"{'most':>5} {'repeated':>9} {'left':>6} {'mean':>6} {'minimal':>8} {'ms each':>7}"
)


def main() -> None:
    options = arguments()
    rows = [row for path in options.rows for row in read(path)]
    print(HEAD, *rows, sep="\n")
    sizes = product(options.operators, options.needed) if not rows else ()
    for (operators, needed), tool in product(sizes, options.tools):
        cases = (
            make_case(number, operators, needed, *TOOLS[tool])
            for number in range(options.graphs)
        )
        runs = list(run_all(tool, cases, options.limit))
        rows.append(Row(tool, operators, needed, options.graphs, runs))
        print(rows[-1], flush=True)
        if options.out:
            write(rows, options.out)
    if options.plot:
        draw(rows, options.plot)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, metavar="FILE", help="where JSON goes")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="and the figure")
    parser.add_argument("--graphs", type=int, default=24, metavar="N", help="of a size")
    sizes: dict[str, Any] = {"type": int, "nargs": "+", "metavar": "N"}
    parser.add_argument("--operators", **sizes, default=[50, 200, 1000, 5000])
    parser.add_argument("--needed", **sizes, default=[1, 3, 8])
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=[*TOOLS])
    parser.add_argument(
        "--limit",
        type=float,
        default=60.0,
        metavar="S",
        help="CPU-seconds that the minifier may take for a graph",
    )
    parser.add_argument(
        "--rows",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="run nothing: print and draw what earlier runs wrote",
    )
    return parser.parse_args()


def run_all(tool: str, cases: Iterable[Case], limit_s: float) -> Iterator[Run]:
    """Run a tool on one case after the other; leave out where it takes too long."""
    for case in cases:
        if tool.startswith("minifier"):
            from minifier import minify  # imports torch, which the search does without

            found = minify(case, limit_s)
        else:
            found = search(case)
        if found:
            yield found


def read(path: Path) -> Iterator[Row]:
    """Read what ``write`` wrote."""
    for entry in json.loads(path.read_text())["rows"]:
        runs = [Run(**{"sizes": [], **run}) for run in entry.pop("runs")]
        yield Row(**entry, runs=runs)


def write(rows: list[Row], path: Path) -> None:
    result = {"on": machine(), "rows": [row.to_json() for row in rows]}
    path.write_text(json.dumps(result, separators=(",", ":")) + "\n")


def machine() -> dict[str, str]:
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
    }


def draw(rows: list[Row], path: Path) -> None:
    """Draw how fast programs shrink to what is needed."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for row in rows:
        if row.is_drawn:
            longest = max(run.checks for run in row.runs)
            padded = [[*r.sizes, *[r.left] * (longest - r.checks)] for r in row.runs]
            dashed = "--" if row.tool.startswith("minifier") else "-"
            left = [median(at) for at in zip(*padded, strict=True)]
            axes.plot(range(1, len(left) + 1), left, dashed, label=row.tool)
    axes.set(xscale="log", yscale="log", xlabel="checks", ylabel="operators left")
    operators, needed = DRAWN
    axes.set_title(f"{operators} operators, {needed} needed; medians of programs")
    axes.axhline(needed, color="grey", linewidth=0.5)
    axes.legend(loc="upper right")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
