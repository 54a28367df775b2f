"""What capturing costs a script that does not fail.

    python benchmarks/capture.py --runs 3 [--out FILE.md]

Runs one script as it is and under ``shrinkfx --capture``, by turns: it starts Python,
imports torch, exports a perceptron with 16 MB of weights, compiles and loads it, and
calls it a thousand times. Said are CPU-seconds, children included.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

SCRIPT = """
import json, os, sys, time

def used():
    times = os.times()
    return sum(times[:4])

told = {"start of Python": used()}

def lap(name):
    told[name] = used() - sum(told.values())

import torch
lap("import torch")
torch.set_num_threads(1)
layers = [torch.nn.Linear(1024, 1024) for _ in range(4)]
model, x = torch.nn.Sequential(*layers).eval(), torch.randn(8, 1024)
with torch.no_grad():
    program = torch.export.export(model, (x,))
    lap("export")
    package = torch._inductor.aoti_compile_and_package(
        program, package_path=os.path.join(sys.argv[1], "model.pt2")
    )
    lap("compile")
    loaded = torch._inductor.aoti_load_package(package)
    lap("load")
    for _ in range(1000):
        loaded(x)
    lap("1,000 calls")
told["all"] = used()
with open(os.path.join(sys.argv[1], "told.json"), "w") as file:
    json.dump(told, file)
"""

WITHOUT, WITHIN = "as it is", "captured"


def run(command: list[str], folder: Path) -> dict[str, float]:
    """Run the script in a way, and read what it has used."""
    script = folder / "healthy.py"
    script.write_text(SCRIPT)
    words = [*command, sys.executable, str(script), str(folder)]
    subprocess.run(words, cwd=folder, capture_output=True, check=False)
    told: dict[str, float] = json.loads((folder / "told.json").read_text())
    return told


def main() -> None:
    """Run by turns, and print a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    capture = [sys.executable, "-m", "shrinkfx", "--capture", "-q", "--"]
    ways: dict[str, list[str]] = {WITHOUT: [], WITHIN: capture}
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(options.runs):
        for way, command in ways.items():
            with tempfile.TemporaryDirectory() as folder:
                found[way].append(run(command, Path(folder)))
    lines = [f"| CPU-seconds | {WITHOUT} | {WITHIN} |", "|---|---|---|"]
    for part in found[WITHOUT][0]:
        cells = [f"{median(told[part] for told in found[way]):.2f}" for way in ways]
        lines.append(f"| {part} | {' | '.join(cells)} |")
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
