"""What real architectures cost: operators, CPU-seconds and memory of each.

    python benchmarks/models.py [CUTS] [NAME ...]

Each is made, read, described and cut at random by ``tests/models/cuts.py``, in a
process of its own.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

MODELS = Path(__file__).resolve().parents[1] / "tests" / "models"
SHAPES = ("static", "dynamic")


def main(cuts: str = "50", *names: str) -> None:
    sys.path.insert(0, str(MODELS))
    from architectures import MODELS as known

    print(
        "| model | operators | cuts | no programs | as source | export | cuts | peak |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, shapes in itertools.product(names or known, SHAPES):
        print(_row(name, shapes, _measured(name, shapes, cuts)), flush=True)


def _measured(name: str, shapes: str, cuts: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(MODELS / "cuts.py"), name, shapes, cuts],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _row(name: str, shapes: str, seen: dict[str, Any]) -> str:
    if seen["missing"]:
        return f"| {name}, {shapes} | {seen['missing']} |"
    refused = sum(seen["refused"].values())
    peak = seen["peak_rss_bytes"] >> 20
    return (
        f"| {name}, {shapes} | {seen['operators']} | {seen['cuts']} | {refused} "
        f"| {seen['printed']} | {seen['export_s']} s | {seen['cuts_s']} s "
        f"| {peak} MiB |"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
