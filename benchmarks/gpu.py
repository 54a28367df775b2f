"""On a GPU, all of it in eight minutes: ``make gpu``, or ``python benchmarks/gpu.py``.

First the seconds of a check, alone: a machine that has just started also reads PyTorch
and its compilers from the disk then. After that, side by side, ``tests/cuda`` and each
CUDA case of ``repros/`` in four ways: on the device, with red zones about each tensor
(``--guard-pages on``), under compute-sanitizer (``--sanitizer``), and in the
interpreter. When the time is up, the results so far are written. Needs torch and
Triton, and runs from a bare checkout; without a GPU it prints so and exits with 0.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch  # noqa: E402
from gpu_steps import (  # noqa: E402
    COLUMNS,
    WITHOUT_GPU,
    Cell,
    Clock,
    Row,
    expectation,
    export,
    look,
    run_tests,
)

from shrinkfx.check.client.server import Server  # noqa: E402
from shrinkfx.check.oracle import CheckClient, Limits  # noqa: E402
from shrinkfx.errors import ShrinkfxError  # noqa: E402
from shrinkfx.protocol.answers import Ending  # noqa: E402
from shrinkfx.protocol.choices import Backend, Build  # noqa: E402
from shrinkfx.protocol.requests import CheckOriginal, FindSpace  # noqa: E402
from shrinkfx.worker.loading import devices  # noqa: E402

SECONDS = 465.0
"""Less than eight minutes, by what it takes to end and to write."""

CHECKS_S = 120.0
"""The time limit of measuring the seconds of a check."""


def main() -> None:
    options = _parser().parse_args()
    has_gpu = torch.cuda.is_available()
    if not has_gpu and not options.without_gpu:
        print(f"{devices.describe_gpu_count()}: nothing was run, nothing was written.")
        print("What needs none: python benchmarks/gpu.py --without-gpu [CASE ...]")
        return
    clock, began = Clock(options.seconds), time.monotonic()
    out = options.out or ROOT / "benchmarks" / "results" / f"{_today()}-gpu.json"
    result: dict[str, Any] = {"on": machine(), "date": _today()}
    names = options.cases or sorted(p.name for p in ROOT.glob("repros/cuda_*"))
    columns = list(COLUMNS) if has_gpu else [WITHOUT_GPU]
    if has_gpu:
        result["seconds of a check"] = seconds_of_a_check(Clock(CHECKS_S))
        print(json.dumps(result["seconds of a check"], indent=1), flush=True)
        write(out, result)
    with ThreadPoolExecutor(1) as beside:
        tests = None
        if has_gpu and not options.cases:
            tests = beside.submit(run_tests, clock, options.jobs)
        rows = compare(names, columns, options.jobs, clock)
        result["cases"] = [asdict(row) for row in rows]
        write(out, result)
        if tests is not None:
            result["tests"] = tests.result()
            write(out, result)
    print("\n".join(table(rows, columns)))
    result["seconds"] = round(time.monotonic() - began, 1)
    result["cut short"] = clock.left_s() == 0
    write(out, result)
    print(f"{result['seconds']} s; written: {out}")
    failed = [name for name, how in result.get("tests", {}).items() if how in _BAD]
    raise SystemExit(f"failed: {', '.join(failed)}" if failed else 0)


_BAD = ("failed", "error")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, metavar="FILE", help="where JSON goes")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S")
    parser.add_argument(
        "--jobs", type=int, metavar="N", default=max(1, min(8, _cores() // 5))
    )
    parser.add_argument("--without-gpu", action="store_true", help="what needs none")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all cuda_*")
    return parser


def compare(
    names: Sequence[str], columns: Sequence[str], jobs: int, clock: Clock
) -> list[Row]:
    """Look at each case in each way, several cases at once; in the order of the names.

    A column is looked at after the other, so that when the time is up the first ones
    are whole. Threads wait for the processes that look.
    """
    rows = [Row(name, expectation(name)[0]) for name in names]
    with (
        tempfile.TemporaryDirectory(
            prefix="gpu-cases-", ignore_cleanup_errors=True
        ) as folder,
        ThreadPoolExecutor(jobs) as pool,
    ):
        models = {name: Path(folder) / name / "model.pt2" for name in names}

        def write_model(row: Row) -> bool:
            models[row.case].parent.mkdir()
            return export(row.case, models[row.case], clock)

        written = list(pool.map(write_model, rows))

        def see(row: Row, is_written: bool, column: str) -> None:
            if not is_written:
                row.cells[column] = Cell("not exported")
            elif clock.left_s() > 0:
                row.cells[column] = look(column, row.case, models[row.case], clock)
                print(f"{row.case}  {column}: {row.cells[column].seen:.110}")
                sys.stdout.flush()
            else:
                row.cells[column] = Cell("not asked: the time was up")

        for column in columns:
            list(pool.map(see, rows, written, [column] * len(rows)))
    return rows


def table(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """Show in Markdown who sees what; a tick is the kind that a case is said to be."""
    head = ["case", "expected", *columns]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        kind = row.expected.partition(" ")[0]
        cells = (row.cells.get(column, Cell("not asked")) for column in columns)
        shown = [_shown(cell, kind) for cell in cells]
        lines.append(f"| `{row.case}` | {row.expected} | {' | '.join(shown)} |")
    return lines


def _shown(cell: Cell, kind: str) -> str:
    if cell.kind == kind:
        return f"sees it ({cell.stage})"
    return cell.seen.replace("|", "/")[:60]


class Healthy(torch.nn.Module):
    """Some layers that do not fail: what a check costs, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x)) + x
        return x


def seconds_of_a_check(clock: Clock) -> dict[str, Any]:
    """Measure a check of a healthy program: cold, warm, and what a child costs alone.

    Returns:
        By name: seconds by the clock, and CPU-seconds. ``cold``: the first check;
        ``warm``: the next; ``fast build``: in the search's build; ``run alone``: of a
        package that is there; ``child``: a context and the program loaded, nothing
        compiled or run.
    """
    with tempfile.TemporaryDirectory(
        prefix="gpu-seconds-", ignore_cleanup_errors=True
    ) as folder:
        model = Path(folder) / "model.pt2"
        exported = torch.export.export(Healthy().eval(), (torch.randn(4, 64),))
        torch.export.save(exported, model)
        try:
            with Server(model=model, device="cuda", backend=Backend.AOTI) as server:
                return _timed(server, f"{folder}/package.pt2", clock)
        except ShrinkfxError as error:
            return {"error": str(error)}


def _timed(server: Server, package: str, clock: Clock) -> dict[str, Any]:
    limits = Limits(max(10.0, clock.left_s(120.0)), 32 << 30)
    client = CheckClient(server, limits).with_clock_limit(max(1.0, clock.left_s()))
    kept = client.with_options(package=package)
    fast = client.with_options(build=Build.FAST)
    asked: dict[str, Callable[[], Ending]] = {
        "cold": lambda: client.ask(CheckOriginal()),
        "warm": lambda: client.ask(CheckOriginal()),
        "fast build": lambda: fast.ask(CheckOriginal()),
        "with its package kept": lambda: kept.ask(CheckOriginal()),
        "run alone": lambda: kept.ask(CheckOriginal()),
        "child": lambda: client.ask(FindSpace()),
    }
    told: dict[str, Any] = {"start of the server": server.ready.cpu_seconds}
    for name, ask in asked.items():
        if clock.left_s() > 0:
            told[name] = _seconds(ask())
            print(f"seconds of a check, {name}: {told[name]}", flush=True)
    return told


def _seconds(ending: Ending) -> dict[str, float | str]:
    times = {"seconds": ending.seconds, "cpu_seconds": ending.cpu_seconds}
    rounded = {name: round(value, 2) for name, value in times.items()}
    return {**rounded, "how": ending.how, "stage": ending.stage}


def machine() -> dict[str, str]:
    about = {"torch": torch.__version__, "Python": platform.python_version()}
    if torch.cuda.is_available():
        about |= devices.gpu_properties(0)
        about["CUDA"] = str(torch.version.cuda)
    return {**about, "cores": str(_cores())}


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _today() -> str:
    return time.strftime("%Y-%m-%d")


def write(out: Path, result: dict[str, Any]) -> None:
    """Write all that there is so far, at once."""
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_suffix(".part")
    draft.write_text(json.dumps(result, indent=1) + "\n")
    draft.replace(out)


if __name__ == "__main__":
    main()
