"""shrinkfx beside PyTorch's own AOTI minifier, on the same failing programs.

Both reduce the same programs one after the other, each in its own process tree with
its own caches, which last from case to case as they do on a user's machine: the first
case fills them. The peer is helped: its process has the custom operators, starts from
the failing inputs, and knows what the failure says. CPU-seconds are those of the whole
tree. In a folder of an earlier run, cases that it has measured are left out, and so is
the tool that it has run on a case whose other one it has not: so a long run can be made
in pieces, by ``--case`` or by being stopped.

    python benchmarks/peers.py --out DIR                  # the CPU cases of repros/
    python benchmarks/peers.py --out DIR --case mismatch_random
    python benchmarks/peers.py --out DIR --haystack transformer:200:3
    python benchmarks/peers.py --out DIR --model case.pt2 --preload case.py --until ima
    python benchmarks/peers.py --out DIR --only pytorch --others FILE   # run one anew

Compared are programs of which the peer leaves one that fails as asked: geometric means,
of the search and of all. ``floor`` is what a verified result cannot cost less than
(``tools.py``). Prints rows, writes ``peers.json`` and ``peers.md``, and draws
``peers.svg`` if matplotlib is there. What each side was measured on, and with which
revision of this code, stands in its ``measured``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from peer_rows import Row, draw, kept, ratios, read, show, write
from tools import HERE, ROOT, Case, Result, floor, with_shrinkfx
from torch_side import with_pytorch

from repros.expected import fails_with, read_expected, with_torch
from shrinkfx.failure.signature import Kind


def measure(case: Case, folder: Path, limit: float) -> Row:
    """Measure both tools, or the one that an earlier run has not come to."""

    def ours() -> Result:
        shutil.rmtree(folder / "shrinkfx", ignore_errors=True)  # of one cut off
        return stamped(with_shrinkfx(case, folder / "shrinkfx", limit))

    def theirs() -> Result:
        for left in folder.glob("*/"):
            if left.name != "shrinkfx":
                shutil.rmtree(left)
        return stamped(with_pytorch(case, folder / "pytorch", limit))

    found = kept(folder / "shrinkfx.json", ours)
    return _row(case, folder, found, kept(folder / "pytorch.json", theirs))


def _row(case: Case, folder: Path, found: Result, peer: Result) -> Row:
    """Hold what both have made of a case against the floor of what shrinkfx leaves."""
    summary = folder / "shrinkfx" / "out" / "summary.json"
    if not summary.exists():
        return Row(case.name, 0, 0, found, peer, float("nan"), kind=case.until)
    before = {name: json.loads(summary.read_text())[name]["before"] for name in SIZES}
    parts = floor(case, folder / "shrinkfx") if found.refails else {}
    least = sum(parts.values()) if parts else float("nan")
    sizes = before["operators"], before["dynamic_dims"]
    return Row(case.name, *sizes, found, peer, least, parts, case.until)


SIZES = ("operators", "dynamic_dims")


def measure_one(tool: str, other: Row, case: Case, folder: Path, limit: float) -> Row:
    """Measure one of the tools; the other's side is that of an earlier run."""
    if tool == "pytorch":
        theirs = with_pytorch(case, folder / "pytorch", limit)
        return replace(other, pytorch=stamped(theirs))
    ours = stamped(with_shrinkfx(case, folder / "shrinkfx", limit))
    return _row(case, folder, ours, other.pytorch)


def stamped(result: Result) -> Result:
    asked = ["git", "describe", "--always", "--dirty"]
    git = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    revision = git.stdout.strip() or "unknown"
    return replace(result, measured=f"{date.today()}, revision {revision}")


def find_cases(
    options: argparse.Namespace, folder: Path, known: set[str]
) -> Iterator[Case]:
    """Export the cases that are asked for, but for those that are known."""
    for spec in options.haystack:
        if spec.replace(":", "_") not in known:
            yield _haystack(spec, folder)
    names = options.case
    if not (names or options.haystack or options.model):
        names = sorted(p.parent.name for p in ROOT.glob("repros/*/expected.toml"))
        names = [name for name in names if not name.startswith("sweep_")]
    unknown = [name for name in names if name not in known]
    yield from filter(None, (_repro(name, folder) for name in unknown))
    if options.model and options.model.stem not in known:
        name, inputs = options.model.stem, options.inputs
        preloads = tuple(str(p.resolve()) for p in options.preload)
        inputs = inputs.resolve() if inputs else None
        asked = (options.until, options.message, preloads, inputs)
        yield Case(name, options.model.resolve(), *asked)


def _repro(name: str, folder: Path) -> Case | None:
    """Export a case of ``repros/``; those for CUDA are left to ``gpu.py``.

    A case that passes with this PyTorch, or whose model is of a library that is not
    installed, is left out.
    """
    home, torch = ROOT / "repros" / name, version("torch")
    expected = with_torch(read_expected(home), torch)
    if expected["device"] != "cpu" or not fails_with(expected, torch):
        return None
    if "needs" in expected and find_spec(expected["needs"]) is None:
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
        tries=10 if "flaky" in expected["notes"] else 1,
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
    parser.add_argument(
        "--limit", type=float, default=1800, help="CPU-seconds per tool"
    )
    parser.add_argument("--only", choices=("shrinkfx", "pytorch"), help="run this tool")
    parser.add_argument(
        "--others",
        type=Path,
        metavar="FILE",
        help="with --only: take the other tool's side from these rows",
    )
    parser.add_argument(
        "--rows",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="run nothing: put together what earlier runs wrote",
    )
    options = parser.parse_args()
    if bool(options.only) != bool(options.others):
        parser.error("--only and --others go together")
    options.out.mkdir(parents=True, exist_ok=True)
    folder = options.out.resolve()
    rows = read([file for file in [folder / "peers.json"] if file.exists()])
    if options.rows:
        rows += read(options.rows)
        write(rows, folder)
    else:
        for row in _measured(options, folder, {row.case for row in rows}):
            rows.append(row)
            print(show(row), flush=True)
            write(rows, folder)
    print(ratios(rows))
    draw(rows, folder / "peers.svg")


def _measured(
    options: argparse.Namespace, folder: Path, known: set[str]
) -> Iterator[Row]:
    others = {row.case: row for row in read([options.others] * bool(options.only))}
    for case in find_cases(options, folder, known):
        home = folder / case.name
        if options.only and case.name not in others:
            print(f"{case.name} left out: {options.others} does not have it")
        elif options.only:
            shutil.rmtree(home, ignore_errors=True)  # of a run that was cut off
            other = others[case.name]
            yield measure_one(options.only, other, case, home, options.limit)
        else:
            yield measure(case, home, options.limit)


if __name__ == "__main__":
    main()
