"""What do weights cost? ``python benchmarks/weights.py --megabytes 100 1000``.

Checks a program of forty ``Linear`` layers, 122 operators, that holds so many megabytes
of weights, and the same graph with layers 32 wide: bytes written, CPU-seconds and the
peak of memory of each question that a run asks, and how many times those of the narrow
program they are. Nothing fails in it. With ``--reduce`` it also reduces both programs,
with the planted bug of the demo in the middle (``repros/assert_roll_bound``), in one
thread: what a kernel throws in several is another question.

With 1,000 MB the server holds 1.5 GB, and the processes beside it 2.5 GB at the peak.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tools import Case, with_shrinkfx, written_bytes  # noqa: E402

from shrinkfx.check.client.server import Server  # noqa: E402
from shrinkfx.check.oracle import CheckClient, Limits  # noqa: E402
from shrinkfx.program.apply import apply  # noqa: E402
from shrinkfx.program.candidate import Candidate  # noqa: E402
from shrinkfx.program.edits import Drop  # noqa: E402
from shrinkfx.program.skeleton import Skeleton  # noqa: E402
from shrinkfx.protocol.answers import (  # noqa: E402
    Description,
    Ending,
)
from shrinkfx.protocol.choices import Build, Weights  # noqa: E402
from shrinkfx.protocol.requests import CheckCandidate, CheckOriginal, Describe  # noqa: E402

LAYERS, NARROW = 40, 32
BUG = HERE.parent / "repros" / "assert_roll_bound" / "planted.py"
LIMITS = Limits(timeout_s=3600.0, max_rss_bytes=64 << 30)


class Layers(nn.Module):
    """Forty layers, each beside a residual connection; what fails in the middle."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = x + nn.functional.gelu(layer(x))
            if number == LAYERS // 2:
                x = torch.roll(torch.flip(x, [1]), 3, 1)
        return x


@dataclass(frozen=True)
class Row:
    """What was used to answer one question about a program.

    Attributes:
        written: bytes that went to disk, or would when the cache is written back.
        peak: bytes that the processes that answer held at most, with what they share
            with the server.
        ended: how, if not well.
    """

    program: str
    question: str
    written: int
    cpu: float
    peak: int
    ended: str = ""

    def __str__(self) -> str:
        return (
            f"{self.program:>8}  {self.question:<24} {self.written / 1e6:10.1f} MB "
            f"{self.cpu:8.1f} CPU-s {self.peak / 1e6:9.0f} MB at the peak  {self.ended}"
        )


def exported(megabytes: int, folder: Path) -> Path:
    """Export the program with so many megabytes of weights; 0 for the narrow one."""
    elements = megabytes * 1_000_000 / 4
    width = round((elements / LAYERS) ** 0.5) if megabytes else NARROW
    torch.manual_seed(0)
    with torch.no_grad():
        x = torch.randn(2, 12, width) / 100
        program = torch.export.export(Layers(width).eval(), (x,))
    path = folder / f"{megabytes}.pt2"
    torch.export.save(program, path)
    return path


def checked(model: Path, name: str, kept: Path) -> Iterator[Row]:
    """Ask a server what a run asks it, and measure each answer."""
    with Server(model=model) as server:
        # What a server has used while it started is its own, and what it read.
        peak = _status(server.pid, "VmHWM") * 1024
        written = written_bytes(server.pid)
        yield Row(name, "load", written, server.ready.cpu_seconds, peak)
        beside = CheckClient(server, LIMITS).with_options(weights=Weights.BESIDE)
        fast = beside.with_options(build=Build.FAST)
        package = beside.with_options(package=str(kept))

        def row(question: str, ending: Ending) -> Row:
            nonlocal written
            before, written = written, written_bytes(server.pid)
            ended = "" if ending.stage == "done" else f"{ending.how} in {ending.stage}"
            used = written - before, ending.cpu_seconds, ending.peak_rss_bytes
            return Row(name, question, *used, ended)

        ending = beside.ask(Describe())
        yield row("eager, every value kept", ending)
        assert isinstance(ending.answer, Description)
        text = Path(ending.answer.skeleton).read_text(encoding="utf-8")
        program = Skeleton.from_json(json.loads(text))
        yield row("baseline, first run", package.ask(CheckOriginal(), fresh=True))
        yield row("baseline, another run", package.ask(CheckOriginal()))
        for part, name_of_part in ((1, "all"), (2, "half"), (8, "an eighth")):
            operators = program.operators
            dropped = frozenset(operators[: len(operators) - len(operators) // part])
            cut = _without(program, dropped).to_json()
            ending = fast.ask(CheckCandidate(cut))
            yield row(f"candidate, {name_of_part}", ending)
        ending = fast.with_stock_build().ask(CheckCandidate(cut))
        yield row("confirmed, an eighth", ending)


def _without(program: Skeleton, operators: frozenset[str]) -> Candidate:
    whole = Candidate.from_skeleton(program)
    return apply(whole, [Drop(operators)]) if operators else whole


def reduced(model: Path, name: str, folder: Path) -> Row:
    """Reduce a program, from its baseline to a verified repro."""
    case = Case(name, model, "assert", preloads=(str(BUG),))
    os.environ["OMP_NUM_THREADS"] = "1"
    before = written_bytes(os.getpid())
    result = with_shrinkfx(case, folder / name / "shrinkfx", 4 * 3600.0)
    written = written_bytes(os.getpid()) - before
    left = f"{result.ended} {result.operators} operators, {result.checks} checks"
    verified = " and verified" if result.refails else ", not verified"
    return Row(name, "reduced", written, result.total, 0, left.strip() + verified)


def _status(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def compared(rows: list[Row]) -> Iterator[str]:
    """State how many times what the narrow program takes each question takes."""
    narrow = {row.question: row for row in rows if row.program == "narrow"}
    for row in rows:
        base = narrow.get(row.question)
        if base is None or base is row:
            continue
        written = row.written / base.written if base.written else float("nan")
        peak = f", {row.peak / base.peak:.1f} x memory" if base.peak else ""
        yield (
            f"{row.program:>8}  {row.question:<24} {written:.2f} x written, "
            f"{row.cpu / max(base.cpu, 0.01):.2f} x CPU-seconds{peak}"
        )


def main(arguments: argparse.Namespace) -> None:
    """Measure and print; write all rows as JSON if asked to."""
    rows: list[Row] = []
    started = time.strftime("%Y-%m-%d")
    with tempfile.TemporaryDirectory(prefix="weights-") as temporary:
        folder = Path(temporary)
        for megabytes in (0, *arguments.megabytes):
            name = f"{megabytes} MB" if megabytes else "narrow"
            model = exported(megabytes, folder)
            found = [] if arguments.only_reduce else checked(model, name, folder / "k")
            for row in found:
                rows.append(row)
                print(row, flush=True)
            (folder / "k").unlink(missing_ok=True)
            if arguments.reduce or arguments.only_reduce:
                rows.append(reduced(model, name.replace(" ", ""), folder))
                print(rows[-1], flush=True)
            model.unlink()
    print(*compared(rows), sep="\n")
    if arguments.out:
        about = {
            "date": started,
            "torch": metadata.version("torch"),
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
        }
        found_rows: list[dict[str, Any]] = [asdict(row) for row in rows]
        text = json.dumps({**about, "rows": found_rows}, indent=1)
        arguments.out.write_text(f"{text}\n")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[100])
    parser.add_argument("--reduce", action="store_true", help="reduce them as well")
    parser.add_argument("--only-reduce", action="store_true")
    parser.add_argument("--out", type=Path, help="a file for all rows, as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main(parsed())
