"""Reduce and explain the ten programs, and hold that against ``causes.toml``.

    python benchmarks/two_suspects/run.py FOLDER [NAME ...]

Each goes to ``FOLDER/NAME``; what lies there already is judged as it is. A row a
program: what is left of it, whom the explanation calls guilty, what it says of the
innocent one, and each of its statements beside the right one.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent), str(ROOT / "tests")]

from causes import COLUMNS, MARKS, stated_by  # noqa: E402 - found by the path above
from support.causes import Cause, judge  # noqa: E402

from shrinkfx.report.explanation.record import EXPLAIN, Explanation  # noqa: E402

TABLES: dict[str, Any] = tomllib.loads((HERE / "causes.toml").read_text())
HEAD = ("program", "operators", "guilty", "innocent", *COLUMNS, "CPU-seconds")


def main(folder: str, *named: str) -> None:
    print(row(*HEAD))
    print("|---" * len(HEAD) + "|")
    for name in named or TABLES:
        out = Path(folder) / name
        if not (out / EXPLAIN).exists():
            reduce(name, out)
        print(row(name, *judged(name, out)), flush=True)


def reduce(name: str, out: Path) -> None:
    """Reduce and explain a program; what the tool says lies beside its folder."""
    out.parent.mkdir(parents=True, exist_ok=True)
    program = out.with_suffix(".pt2")
    make = [sys.executable, "-W", "ignore", str(HERE / "programs.py"), name]
    subprocess.run([*make, str(program)], check=True)
    tool = [sys.executable, "-m", "shrinkfx", str(program), "--out", str(out)]
    plant = ["--preload", str(HERE / f"plants/{name}.py")]
    asked = ["--until", TABLES[name]["until"], "--explain", "--no-progress"]
    spent = _cpu_seconds_of_children()
    with out.with_suffix(".log").open("w") as log:
        subprocess.run(
            [*tool, *plant, *asked], stdout=log, stderr=subprocess.STDOUT, check=False
        )
    spent = _cpu_seconds_of_children() - spent
    out.with_suffix(".cpu_seconds").write_text(f"{spent:.0f}")


def _cpu_seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def judged(name: str, out: Path) -> list[str]:
    """Say what came of a program, and what each statement about it is worth."""
    if not (out / EXPLAIN).exists():
        return ["not explained"]
    found = Explanation.from_json(json.loads((out / EXPLAIN).read_text()))
    summary = json.loads((out / "summary.json").read_text())
    before, after = summary["operators"].values()
    spent = out.with_suffix(".cpu_seconds")
    cause = Cause.read(TABLES[name]["cause"])
    worth = judge(cause, stated_by(found, cause, HERE))
    return [
        f"{before} to {after}",
        ", ".join(one.operator for one in found.guilty) or "nobody",
        said_of_innocent(found, TABLES[name]["innocent"]),
        *(MARKS[worth[what]] if what in worth else "" for what in COLUMNS),
        spent.read_text() if spent.exists() else "",
    ]


def said_of_innocent(found: Explanation, innocent: str) -> str:
    """Say how an explanation takes the operator that only shows what is wrong."""
    if innocent in [one.operator for one in found.guilty]:
        alone = len(found.guilty) == 1
        return "WRONG, guilty" if alone else "WRONG, one of the guilty"
    if innocent not in [one.operator for one in found.operators]:
        return "left out"
    named = any(innocent in sentence for sentence in found.cause)
    return "named, not guilty" if named else "not guilty"


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main(*sys.argv[1:])
