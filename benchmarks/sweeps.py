"""How surely a sweep finds what is planted, and what an example costs.

    python benchmarks/sweeps.py                          # the sweep cases of repros/
    python benchmarks/sweeps.py --case sweep_size_33 --seeds 10
    python benchmarks/sweeps.py --healthy transformer --examples 300

A case is exported and compiled once, then swept with each seed. Sizes that several
seeds draw are run once, on the values of seed 0. CPU-seconds are of the whole child
(inputs, eager twice, loading, running, comparing) and of the server that forks it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.healthy_models import MODELS  # noqa: E402 - found through the line above

from shrinkfx.check.client.server import Server  # noqa: E402
from shrinkfx.check.oracle import CheckClient, Limits  # noqa: E402
from shrinkfx.failure.classify import classify_ending  # noqa: E402
from shrinkfx.failure.signature import ANY  # noqa: E402
from shrinkfx.program.sizes import Sizes, Space  # noqa: E402
from shrinkfx.protocol.answers import OpenSizes  # noqa: E402
from shrinkfx.protocol.requests import (  # noqa: E402
    CheckAtSizes,
    CheckOptions,
    CompileOriginal,
    FindSpace,
)
from shrinkfx.run.sweep import QUIET_THREADS  # noqa: E402
from shrinkfx.sweep.examples import Answer, Example, Examples, judge_example  # noqa: E402
from shrinkfx.sweep.hunt import Plan, sweep  # noqa: E402

MAX_ELEMENTS = 1 << 22
Run = Callable[[Sizes], Example]


def cpu_seconds(pid: int) -> float:
    """Read what a process has used itself, its children not counted."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def compiled(model: Path, preload: str) -> Iterator[tuple[Space, Run]]:
    """Compile a program once; yield its sizes and what runs it at some."""
    preloads = [preload] if preload else []
    with Server(model=model, preloads=preloads, environment=QUIET_THREADS) as server:
        options = CheckOptions(package=str(server.directory / "sweep.pt2"))
        compiler = CheckClient(server, Limits(600.0, 8 << 30), options)
        found = compiler.ask(FindSpace()).answer
        assert isinstance(found, OpenSizes)
        space = found.space
        assert compiler.ask(CompileOriginal()).stage == "done"

        @lru_cache(None)
        def run(sizes: Sizes) -> Example:
            before = cpu_seconds(server.pid)
            ending = compiler.ask(CheckAtSizes(space.named(sizes), seed=0))
            example = judge_example(sizes, classify_ending(ending), ANY)
            forking = cpu_seconds(server.pid) - before
            return replace(example, cpu_seconds=example.cpu_seconds + forking)

        yield space, run


def measure_case(case: Path, seeds: int, count: int) -> None:
    """Print how often a case is found, and whether it is where it should be."""
    expected = tomllib.loads((case / "expected.toml").read_text())
    wanted = tuple(tuple(expected["sweep"][k]) for k in ("sizes", "nearest"))
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.pt2"
        export = [sys.executable, "-W", "ignore", str(ROOT / "repros" / "export.py")]
        subprocess.run([*export, case.name, str(model)], check=True)
        planted = expected["preload"]
        with compiled(model, str(case / planted) if planted else "") as (space, run):
            firsts, exact, ran = [], 0, []
            for seed in range(1, seeds + 1):
                examples = Examples(run)
                found = sweep(
                    Plan(space, MAX_ELEMENTS, seed), examples, count=count, seed=seed
                )
                firsts += [f.first for f in found]
                exact += [(f.sizes, f.nearest) for f in found] == [wanted]
                ran.append(len(examples.all()))
    late = max(firsts, default=0)
    print(
        f"{case.name}: {len(firsts)} of {seeds} seeds found it, after "
        f"{statistics.median(firsts or [0]):.0f} examples ({late} at most); "
        f"{exact} exact; {statistics.mean(ran):.0f} sizes run in a sweep",
        flush=True,
    )


def measure_healthy(name: str, count: int) -> None:
    """Print whether a sound model is said to fail, and what an example costs."""
    model = MODELS[name]
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / "model.pt2"
        dims = {0: torch.export.Dim("n", min=1, max=1024)}
        inputs = model.inputs(5)
        exported = torch.export.export(
            model.make().eval(), inputs, dynamic_shapes=(dims,) * len(inputs)
        )
        nodes = len(exported.graph.nodes)
        torch.export.save(exported, path)
        with compiled(path, "") as (space, run):
            examples = Examples(run)
            plan = Plan(space, MAX_ELEMENTS, 0)
            found = sweep(plan, examples, count=count, seed=0)
    seen = examples.all()
    cost = [e.cpu_seconds for e in seen]
    passes = sum(e.answer is Answer.PASSES for e in seen)
    print(
        f"{name}, {nodes} nodes: {len(seen)} sizes, {passes} pass, {len(found)} "
        f"findings; CPU-seconds an example: median {statistics.median(cost):.2f}, "
        f"mean {statistics.mean(cost):.2f}, most {max(cost):.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append")
    parser.add_argument("--healthy", action="append", choices=sorted(MODELS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--examples", type=int, default=200)
    options = parser.parse_args()
    names = options.case or []
    if not names and not options.healthy:
        names = [p.parent.name for p in sorted(ROOT.glob("repros/sweep_*/make.py"))]
    for name in names:
        measure_case(ROOT / "repros" / name, options.seeds, options.examples)
    for name in options.healthy or []:
        measure_healthy(name, options.examples)


if __name__ == "__main__":
    main()
