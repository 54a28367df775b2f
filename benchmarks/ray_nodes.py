"""How does a triage on a Ray cluster scale, and what does Ray cost each program?

``python benchmarks/ray_nodes.py`` runs a triage of 123 programs, of twenty bugs, with a
tool that only waits: ``REDUCED_S`` for the first program of a bug, and ``KNOWN_S`` for
a program whose bug another run has reduced before. It runs on this machine, one program
at a time, and then on simulated clusters of 1, 2 and 4 nodes, which run one program
each. Needs ``pip install 'shrinkfx[ray]'``.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from pathlib import Path

from shrinkfx.campaign.commands import Executor, LocalExecutor
from shrinkfx.campaign.on_ray import RayExecutor
from shrinkfx.campaign.programs import Program
from shrinkfx.campaign.runs import Campaign, Status, run_campaign

PROGRAMS, BUGS = 123, 20
REDUCED_S, KNOWN_S = 4.3, 1.0
"""A twentieth of what such programs take (``results/2026-11-29-triage.md``)."""

WAITS = f"""
import glob, json, os, sys, time
out = sys.argv[sys.argv.index("--out") + 1]
bug = os.path.basename(out).partition("-")[0]
known = glob.glob(f"{{os.path.dirname(out)}}/{{bug}}-*/done")
time.sleep({KNOWN_S} if known else {REDUCED_S})
os.makedirs(out)
open(f"{{out}}/done", "w").close()
result = {{"known_bugs": [os.path.dirname(known[0])]}} if known else {{}}
print(json.dumps({{"event": "end", "elapsed": 0, "error": "", "result": result}}))
sys.exit(7 if known else 0)
"""


def main() -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        tool = [sys.executable, str(here / "waits.py")]
        (here / "waits.py").write_text(WAITS)
        measure("this machine", LocalExecutor(tool), here)
        for nodes in (1, 2, 4):
            measure_cluster(nodes, tool, here)


def measure_cluster(nodes: int, tool: list[str], folder: Path) -> None:
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "memory": 8 << 30}
    cluster = Cluster(True, head_node_args=node)
    for _ in range(nodes - 1):
        cluster.add_node(**node)
    executor = RayExecutor(cluster.address, tool)
    assert executor.jobs == nodes
    measure(f"nodes: {nodes}", executor, folder)
    ray.shutdown()
    cluster.shutdown()


def measure(name: str, executor: Executor, folder: Path) -> None:
    """Print the time of a triage, and the sum of what its runs have waited."""
    programs = []
    for number in range(PROGRAMS):
        path = folder / f"bug{number % BUGS}-{number}.pt2"
        path.touch()
        programs.append(Program(str(path), (), path.stem))
    random.Random(0).shuffle(programs)
    campaign = Campaign(tuple(programs), str(folder), jobs=executor.jobs)
    began = time.monotonic()
    done = run_campaign(campaign, folder / name, lambda *_: None, executor)
    seconds = time.monotonic() - began
    reduced = sum(each.status is Status.REDUCED for each in done.results)
    waited = REDUCED_S * reduced + KNOWN_S * (PROGRAMS - reduced)
    overhead = (seconds * executor.jobs - waited) / PROGRAMS
    print(
        f"{name}: {seconds:.0f} s; {reduced} programs reduced, waiting {waited:.0f} s "
        f"in all; on average, a program takes {overhead:.2f} s more",
        flush=True,
    )


if __name__ == "__main__":
    main()
