"""shrinkfx beside PyTorch's own AOTI minifier, on the same failing programs.

Both reduce the same programs one after the other, each in its own process tree with
its own caches, which last from case to case as they do on a user's machine: the first
case fills them. The peer is helped: its process has the custom operators, and starts
from the failing inputs. CPU-seconds are those of the whole tree.

    python benchmarks/peers.py --out DIR                  # the CPU cases of repros/
    python benchmarks/peers.py --out DIR --case mismatch_random
    python benchmarks/peers.py --out DIR --haystack transformer:200:3
    python benchmarks/peers.py --out DIR --model case.pt2 --preload case.py --until ima

Prints a table, writes ``peers.json``, and draws ``peers.svg`` if matplotlib is there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tools import HERE, ROOT, Case, Result, floor, with_pytorch, with_shrinkfx

from shrinkfx.failure.signature import Kind


@dataclass(frozen=True)
class Row:
    """One case: both tools, and what the dearest necessary checks cost."""

    case: str
    operators: int
    dynamic_dims: int
    shrinkfx: Result
    pytorch: Result
    floor: float


def measure(case: Case, folder: Path, limit: float) -> Row:
    ours, summary = with_shrinkfx(case, folder / "shrinkfx", limit)
    theirs = with_pytorch(case, folder / "pytorch", limit)
    if summary is None:
        return Row(case.name, 0, 0, ours, theirs, float("nan"))
    return Row(
        case.name,
        summary["operators"]["before"],
        summary["dynamic_dims"]["before"],
        ours,
        theirs,
        floor(case, folder / "shrinkfx" / "out", summary["operators"]["after"]),
    )


def find_cases(options: argparse.Namespace, folder: Path) -> Iterator[Case]:
    for spec in options.haystack:
        yield _haystack(spec, folder)
    names = options.case
    if not (names or options.haystack or options.model):
        names = sorted(p.parent.name for p in ROOT.glob("repros/*/expected.toml"))
        names = [name for name in names if not name.startswith("sweep_")]
    yield from filter(None, (_repro(name, folder) for name in names))
    if options.model:
        name, inputs = options.model.stem, options.inputs
        preloads = tuple(str(p.resolve()) for p in options.preload)
        inputs = inputs.resolve() if inputs else None
        asked = (options.until, options.message, preloads, inputs)
        yield Case(name, options.model.resolve(), *asked)


def _repro(name: str, folder: Path) -> Case | None:
    """Export a case of ``repros/``; those for CUDA are left to ``gpu.py``."""
    home = ROOT / "repros" / name
    expected = tomllib.loads((home / "expected.toml").read_text())
    if expected["device"] != "cpu":
        return None
    model = folder / "models" / f"{name}.pt2"
    export = [sys.executable, "-W", "ignore", str(ROOT / "repros" / "export.py")]
    subprocess.run([*export, name, str(model)], check=True, cwd=ROOT)
    inputs = model.with_suffix(".inputs.pt")
    return Case(
        name,
        model,
        expected["kind"],
        expected["message"],
        (str(home / expected["preload"]),) if expected["preload"] else (),
        inputs if inputs.exists() else None,
        tuple(expected["options"]),
    )


def _haystack(spec: str, folder: Path) -> Case:
    family, nodes, needles = spec.split(":")
    model = folder / "models" / f"{family}_{nodes}_{needles}.pt2"
    model.parent.mkdir(parents=True, exist_ok=True)
    export = [sys.executable, "-W", "ignore", str(HERE / "haystacks.py")]
    subprocess.run([*export, family, nodes, needles, str(model)], check=True)
    preload = (str(HERE / "planted_chain.py"),)
    if needles.endswith("wrong"):
        return Case(model.stem, model, Kind.MISMATCH, preloads=preload)
    told = "planted: cannot lower"
    return Case(model.stem, model, Kind.COMPILE_ERROR, told, preload)


def show(row: Row) -> str:
    def said(result: Result) -> str:
        left = "-" if result.operators is None else str(result.operators)
        repro = ("alone" if result.self_contained else "same") if result.refails else ""
        return (
            f"{left:>4} ops {result.checks:>4} checks {result.search:>6.0f} s search "
            f"{result.total:>6.0f} s in all  repro: {repro or 'no':<6}"
            f"{result.ended:.60}"
        )

    return (
        f"{row.case} ({row.operators} operators, floor {row.floor:.0f} s)\n"
        f"  shrinkfx  {said(row.shrinkfx)}\n  pytorch   {said(row.pytorch)}"
    )


def ratios(rows: Sequence[Row]) -> str:
    """Compare where the peer has come to an end with a repro of that failure."""
    both = [r for r in rows if r.pytorch.refails and r.shrinkfx.refails]
    lines = []
    for part in ("search", "total"):
        pairs = [(getattr(r.shrinkfx, part), getattr(r.pytorch, part)) for r in both]
        if quotients := [ours / theirs for ours, theirs in pairs if ours and theirs]:
            mean, most = statistics.geometric_mean(quotients), max(quotients)
            lines.append(f"{part}: {mean:.2f} of the peer's, at most {most:.2f}")
    measured = [r for r in rows if r.floor > 0 and r.shrinkfx.search]
    for part in ("search", "total") if measured else ():
        over = [getattr(r.shrinkfx, part) / r.floor for r in measured]
        median = statistics.median(over)
        lines.append(f"{part}: {median:.1f} times the floor in the median")
    return "\n".join([f"{len(rows)} cases, {len(both)} that both reduce", *lines])


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw operators left against CPU-seconds, a line from tool to tool per case."""
    try:
        import matplotlib
    except ImportError:
        print("no picture: pip install 'shrinkfx[bench]'", file=sys.stderr)
        return
    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 5))
    for row in rows:
        ends = [row.shrinkfx, row.pytorch]
        points = [(e.total, e.operators) for e in ends if e.operators is not None]
        if points:
            axes.plot(*zip(*points, strict=True), color="lightgrey", zorder=1)
    for tool, colour in (("shrinkfx", "tab:blue"), ("pytorch", "tab:orange")):
        ends = [getattr(row, tool) for row in rows]
        there = [e for e in ends if e.operators is not None]
        seconds, left = [e.total for e in there], [e.operators for e in there]
        axes.scatter(seconds, left, label=tool, color=colour, zorder=2)
    axes.set(xlabel="CPU-seconds", ylabel="operators left", xscale="log", yscale="log")
    axes.legend()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--case", action="append", default=[], metavar="NAME")
    parser.add_argument("--haystack", action="append", default=[], metavar="F:N:K")
    parser.add_argument("--model", type=Path, metavar="FILE.pt2")
    parser.add_argument("--inputs", type=Path, metavar="FILE.pt")
    parser.add_argument("--preload", action="append", default=[], type=Path)
    parser.add_argument("--until", default="any", metavar="KIND")
    parser.add_argument("--message", default="", metavar="REGEX")
    parser.add_argument("--limit", type=float, default=1800, help="seconds per tool")
    parser.add_argument(
        "--rows",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="run nothing: put together what earlier runs wrote",
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True)
    folder = options.out.resolve()
    rows: list[Row] = []
    for row in _known(options.rows) if options.rows else _measured(options, folder):
        rows.append(row)
        print(show(row), flush=True)
        about = {"torch": torch.__version__, "rows": [asdict(row) for row in rows]}
        (folder / "peers.json").write_text(json.dumps(about, indent=1))
    print(ratios(rows))
    draw(rows, folder / "peers.svg")


def _measured(options: argparse.Namespace, folder: Path) -> Iterator[Row]:
    for case in find_cases(options, folder):
        yield measure(case, folder / case.name, options.limit)


def _known(files: Sequence[Path]) -> Iterator[Row]:
    for file in files:
        for entry in json.loads(file.read_text())["rows"]:
            tools = {t: Result(**entry.pop(t)) for t in ("shrinkfx", "pytorch")}
            yield Row(**entry, **tools)


if __name__ == "__main__":
    main()
