"""Reduce and explain the ten programs, and hold that against ``causes.toml``.

    python benchmarks/two_suspects/run.py FOLDER [NAME ...]

Each goes to ``FOLDER/NAME``. What lies there already is judged as it is; without its
``explain.json`` it is explained anew. A row a program: what is left of it, whom the
explanation calls guilty, what it says of the innocent one, each of its statements
beside the right one, and the CPU-seconds of the run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCES = {
    "programs.py": HERE / "programs.py",
    "_haystack.py": ROOT / "repros" / "_haystack.py",
}
sys.path[:0] = [str(HERE.parent), str(ROOT / "tests")]

from causes import COLUMNS, MARKS, stated_by  # noqa: E402 - found by the path above
from support.causes import Cause, judge  # noqa: E402

from shrinkfx.findings.record import EXPLAIN, Explanation  # noqa: E402

TABLES: dict[str, Any] = tomllib.loads((HERE / "causes.toml").read_text())
SUMMARY = "summary.json"
HEAD = ("program", "operators", "guilty", "innocent", *COLUMNS, "CPU-seconds")


def main(folder: str, *named: str) -> None:
    print(row(*HEAD))
    print("|---" * len(HEAD) + "|")
    for name in named or TABLES:
        out = Path(folder) / name
        if not (out / SUMMARY).exists():
            reduce(name, out)
        elif not (out / EXPLAIN).exists():
            run_tool(out, "--explain", str(out))
        print(row(name, *judged(name, out)), flush=True)


def reduce(name: str, out: Path) -> None:
    """Reduce and explain a program."""
    out.parent.mkdir(parents=True, exist_ok=True)
    program = out.with_suffix(".pt2")
    make = [sys.executable, "-W", "ignore", str(HERE / "programs.py"), name]
    subprocess.run([*make, str(program)], check=True)
    plant = ["--preload", str(HERE / f"plants/{name}.py")]
    asked = ["--until", TABLES[name]["until"], "--explain", "--out", str(out)]
    run_tool(out, str(program), *plant, *asked)


def run_tool(out: Path, *words: str) -> None:
    """Run the tool; what it says lies beside its folder."""
    command = [sys.executable, "-m", "shrinkfx", *words, "--no-progress"]
    with out.with_suffix(".log").open("w") as log:
        subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)


def judged(name: str, out: Path) -> list[str]:
    """Say what came of a program, and what each statement about it is worth."""
    if not (out / EXPLAIN).exists():
        return ["not explained"]
    found = Explanation.from_json(json.loads((out / EXPLAIN).read_text()))
    summary = json.loads((out / SUMMARY).read_text())
    before, after = summary["operators"].values()
    cause = Cause.read(TABLES[name]["cause"])
    worth = judge(cause, stated_by(found, cause, SOURCES))
    return [
        f"{before} to {after}",
        ", ".join(one.operator for one in found.culprits) or "nobody",
        said_of_innocent(found, TABLES[name]["innocent"]),
        *(MARKS[worth[what]] if what in worth else "" for what in COLUMNS),
        f"{sum(summary['cpu_seconds'].values()):.0f}",
    ]


def said_of_innocent(found: Explanation, innocent: str) -> str:
    """Say how an explanation takes the operator that only shows what is wrong."""
    if innocent in [one.operator for one in found.culprits]:
        alone = len(found.culprits) == 1
        return "WRONG, guilty" if alone else "WRONG, one of the guilty"
    if innocent not in [one.operator for one in found.operators]:
        return "left out"
    named = any(innocent in sentence for sentence in found.cause)
    return "named, not guilty" if named else "not guilty"


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main(*sys.argv[1:])
