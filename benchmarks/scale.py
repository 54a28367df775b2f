"""Measure what a reduction costs for a model with many weights.

    python benchmarks/scale.py DIR --millions 10 100 1000

The model is a Llama with random bfloat16 weights and a dynamic number of tokens. The
MLP of its middle layer calls one operator that ``planted_activation.py`` makes Inductor
lower to another (the result is wrong) or refuse to lower (``--bug compile``). The
program measures for each number of weights:

- the CPU-seconds of one plain compilation with AOTInductor, one run in eager and one
  compiled run, in a process of its own;
- the CPU-seconds of a reduction by phase, the seconds until its first summary of a
  verified repro and in all, the peak of its memory, and the bytes that it wrote.

1,000 million weights need 2 GB of disk for the program, and 9 GB of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tools import Case, Result, with_shrinkfx, written_bytes  # noqa: E402

from shrinkfx.system.processes import list_descendants, read_pss_bytes  # noqa: E402

PLANT = HERE / "planted_activation.py"
SHAPES = {
    10: (256, 1024, 8, 8000),
    100: (768, 3072, 12, 8000),
    1000: (2048, 8192, 16, 32000),
    3000: (3072, 8192, 28, 32000),
}
"""Width, width of the MLP, layers and vocabulary, by millions of weights."""

BUGS = {"wrong": ("mismatch", torch.atan), "compile": ("compile", torch.log2)}
"""The failure, and the operator that Inductor lowers wrongly or refuses."""

TOKENS = 16


@dataclass(frozen=True)
class Row:
    """What a program cost.

    Attributes:
        file_bytes: the size of the exported program.
        plain: CPU-seconds of one compilation and of one run each in eager and compiled.
        first_s: seconds until the first summary of a repro; None if there was none.
        peak_bytes: proportional memory of the whole process tree, at its peak.
        written: bytes that the process tree wrote to the disk.
    """

    millions: int
    weights: int
    operators: int
    file_bytes: int
    plain: dict[str, float]
    plain_peak_bytes: int
    first_s: float | None = None
    peak_bytes: int = 0
    written: int = 0
    result: dict[str, Any] = field(default_factory=dict)


def export(millions: int, bug: str, file: Path) -> tuple[int, int]:
    """Export the model, and return its numbers of weights and of operators."""
    from transformers import LlamaConfig, LlamaForCausalLM

    width, inner, layers, vocabulary = SHAPES[millions]
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 256,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        use_cache=False,
        dtype="bfloat16",
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    model = LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    mlp = model.model.layers[layers // 2].mlp
    mlp.act_fn = _Activation(BUGS[bug][1])
    ids = torch.randint(0, vocabulary, (1, TOKENS))
    length = Dim("length", min=2, max=2048)
    with torch.no_grad():
        shapes = {"input_ids": {1: length}}
        program = torch.export.export(_Logits(model), (ids,), dynamic_shapes=shapes)
    torch.export.save(program, file)
    operators = sum(node.op == "call_function" for node in program.graph.nodes)
    return sum(p.numel() for p in model.parameters()), operators


class _Logits(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=input_ids).logits
        return logits


class _Activation(torch.nn.Module):
    def __init__(self, operator: Any) -> None:
        super().__init__()
        self._operator = operator

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self._operator(4 * x.abs() + 1)
        return result


def plain(file: Path) -> Iterator[tuple[str, float]]:
    """Do once what a user does with a healthy program; yield CPU-seconds by step."""

    def used() -> float:
        both = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
        return sum(sum(resource.getrusage(who)[:2]) for who in both)

    before = used()
    program = torch.export.load(file)
    yield "load", used() - before
    args, kwargs = program.example_inputs or ((), {})
    before = used()
    with torch.no_grad():
        program.module()(*args, **kwargs)
    yield "eager", used() - before
    before = used()
    package = torch._inductor.aoti_compile_and_package(
        program, package_path=str(file.with_suffix(".package.pt2"))
    )
    yield "compile", used() - before
    before = used()
    torch._inductor.aoti_load_package(package)(*args, **kwargs)
    yield "run", used() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield "peak", float(peak * 1024)


class _Watch:
    """Samples the memory of the processes that this one starts, and the time."""

    def __init__(self, out: Path) -> None:
        self._summary, self._start = out / "summary.json", time.monotonic()
        self._stop = threading.Event()
        self.peak_bytes = 0
        self.first_s: float | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            used = sum(map(read_pss_bytes, list_descendants(os.getpid())))
            self.peak_bytes = max(self.peak_bytes, used)
            if self.first_s is None and self._summary.exists():
                self.first_s = time.monotonic() - self._start

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


def measure(millions: int, bug: str, folder: Path) -> Row:
    """Export a program, run it plainly, and reduce it."""
    file = folder / f"{bug}-{millions}.pt2"
    weights, operators = _in_own_process("--export", str(millions), bug, str(file))
    steps = dict(_in_own_process("--plain", str(file)))
    peak = int(steps.pop("peak"))
    size = file.stat().st_size
    row = Row(millions, weights, operators, size, steps, peak)
    until, _ = BUGS[bug]
    work = folder / file.stem / "shrinkfx"
    watch, before = _Watch(work / "out"), written_bytes(os.getpid())
    case = Case(file.stem, file, until, preloads=(str(PLANT),))
    result: Result = with_shrinkfx(case, work, 4 * 3600.0)
    watch.end()
    return replace(
        row,
        first_s=watch.first_s,
        peak_bytes=watch.peak_bytes,
        written=written_bytes(os.getpid()) - before,
        result=asdict(result),
    )


def _in_own_process(*arguments: str) -> Any:
    """Run a step of this file in a new process; return what it prints at the end."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def in_words(row: Row) -> Iterator[str]:
    """State the figures of a row, and how often the plain steps fit into them."""
    all_plain, found = sum(row.plain.values()), row.result
    unloaded = all_plain - row.plain["load"]
    steps = ", ".join(f"{name} {spent:.1f}" for name, spent in row.plain.items())
    yield f"{row.weights / 1e6:,.0f} million weights, {row.operators} operators"
    peak = row.plain_peak_bytes / 1e9
    yield f"  plain: {all_plain:.1f} CPU-s ({steps}), {peak:.1f} GB"
    spent = ", ".join(f"{name} {s:.1f}" for name, s in found["parts"].items())
    yield f"  shrinkfx: {found['total']:.1f} CPU-s ({spent})"
    first = "none" if row.first_s is None else f"{row.first_s:.0f} s"
    yield (
        f"  {found['wall']:.0f} s, first verified repro: {first}, {found['checks']} "
        f"checks, {found['operators']} operators, verified: {found['refails']}"
    )
    baseline = found["parts"].get("baseline", 0.0)
    yield (
        f"  baseline: {baseline / unloaded:.2f} x plain without load; peak "
        f"{row.peak_bytes / 1e9:.1f} GB; written {row.written / row.file_bytes:.2f} x "
        f"the program's {row.file_bytes / 1e9:.2f} GB"
    )


def main() -> None:
    """Measure and print; or do one step, for the process that measures."""
    match sys.argv[1:]:
        case ["--export", millions, bug, file]:
            print(json.dumps(export(int(millions), bug, Path(file))))
            return
        case ["--plain", file]:
            print(json.dumps(list(plain(Path(file)))))
            return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--millions", type=int, nargs="+", choices=SHAPES, default=[10, 100]
    )
    parser.add_argument("--bug", choices=BUGS, default="wrong")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for millions in arguments.millions:
        row = measure(millions, arguments.bug, arguments.folder)
        print(*in_words(row), sep="\n", flush=True)
        rows = arguments.folder / "rows.jsonl"
        with rows.open("a") as file:
            file.write(json.dumps(asdict(row)) + "\n")


if __name__ == "__main__":
    main()
