"""Which operators of PyTorch fail under AOTInductor, on PyTorch's own sample inputs?

``python benchmarks/operators.py DIR`` takes each operator of PyTorch's operator
database (``op_db``; it needs ``pip install expecttest``), calls it on sample inputs in
one program, and compiles that program with AOTInductor on the CPU, in a process of its
own. The programs that do not compile, crash, or compute other values than eager are in
``DIR/failing``, for ``shrinkfx triage DIR/failing``; ``DIR/tried-0.jsonl`` has a line
for each operator. A second call continues where the first one ended.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._inductor import aoti_compile_and_package, aoti_load_package, config
from torch.export import ExportedProgram
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from shrinkfx.worker.aoti.fast_build import fast_build, with_plain_wrapper

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
)
SAMPLES = 4
"""Sample inputs of each dtype."""

LIMIT_S = 300
LOOSENESS = 10
"""Factor on PyTorch's tolerances; shrinkfx judges what differs by more."""

Call = tuple[Callable[..., Any], list[Any], Any]
"""An operator, the leaves of its arguments, and their structure."""


class Calls(nn.Module):
    """Call an operator on several samples; the tensors among them are the inputs."""

    def __init__(self, calls: Sequence[Call]) -> None:
        super().__init__()
        self.calls = calls

    def inputs(self) -> tuple[Tensor, ...]:
        leaves = (leaf for _, leaves, _ in self.calls for leaf in leaves)
        return tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))

    def forward(self, *inputs: Tensor) -> list[Any]:
        tensors, results = iter(inputs), []
        for function, leaves, structure in self.calls:
            filled = [next(tensors) if isinstance(x, Tensor) else x for x in leaves]
            first, args, kwargs = pytree.tree_unflatten(filled, structure)
            results.append(function(first, *args, **kwargs))
        return results


def sample_calls(op: Any) -> list[Call]:
    calls = []
    for dtype in DTYPES:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        samples = op.reference_inputs("cpu", dtype, requires_grad=False)
        for sample in islice(samples, SAMPLES):
            arguments = sample.input, sample.args, sample.kwargs
            leaves, structure = pytree.tree_flatten(arguments)
            calls.append((op.op, leaves, structure))
    return calls


def can_be_compared(call: Call) -> bool:
    """Return whether a call can be exported, and gives the same values twice."""
    alone = Calls([call])
    try:
        one, two = (alone(*copies(alone.inputs())) for _ in range(2))
        torch.testing.assert_close(one, two, equal_nan=True, rtol=0, atol=0)
        nodes = torch.export.export(alone, alone.inputs()).graph.nodes
    except Exception:  # noqa: BLE001 - this operator is not for export
        return False
    tags = (tag for node in nodes for tag in getattr(node.target, "tags", ()))
    return torch.Tag.nondeterministic_seeded not in tags


def try_operator(op: Any, path: Path) -> dict[str, Any]:
    """Return how an operator fails, and save its program if it does."""
    calls = [call for call in sample_calls(op) if can_be_compared(call)]
    if not calls:
        return {"outcome": "no sample", "samples": 0}
    module = Calls(calls)
    inputs = module.inputs()
    expected = module(*copies(inputs))
    program = torch.export.export(module, inputs)
    torch.export.save(program, path)
    report = {"samples": len(calls), "outcome": "passes"}
    try:
        package = build(program)
    except Exception as error:  # noqa: BLE001 - a compile error is a result
        return report | {"outcome": "does not compile", "error": shorten(error)}
    try:
        compare(aoti_load_package(package)(*copies(inputs)), expected)
    except AssertionError as error:
        return report | {"outcome": "other values", "error": shorten(error)}
    except Exception as error:  # noqa: BLE001
        return report | {"outcome": "raises", "error": shorten(error)}
    path.unlink()
    return report


def copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.clone() for tensor in tensors]


def shorten(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:400]


def compare(seen: Any, expected: Any) -> None:
    leaves, wanted = pytree.tree_leaves(seen), pytree.tree_leaves(expected)
    assert len(leaves) == len(wanted), f"{len(leaves)} results, not {len(wanted)}"
    for one, two in zip(leaves, wanted, strict=True):
        if not isinstance(two, Tensor):
            assert one == two, f"{one}, not {two}"
            continue
        limits = torch.testing._comparison.default_tolerances(two)
        rtol, atol = (LOOSENESS * limit for limit in limits)
        torch.testing.assert_close(one, two, equal_nan=True, rtol=rtol, atol=atol)


def in_a_process(op: Any, path: Path) -> dict[str, Any]:
    """Try an operator in a fork, which may crash or hang."""
    out = path.with_suffix(".json")
    out.unlink(missing_ok=True)
    began = time.monotonic()
    if (child := os.fork()) == 0:
        os.setsid()
        with (path.parent / "output.txt").open("w") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            try:
                report = try_operator(op, path)
            except Exception as error:  # noqa: BLE001
                path.unlink(missing_ok=True)  # it may be incomplete
                report = {"outcome": "not tried", "error": shorten(error)}
            out.write_text(json.dumps(report))
            os._exit(0)
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.05)
        if time.monotonic() - began > LIMIT_S:
            os.killpg(child, signal.SIGKILL)
    if out.exists():
        report = json.loads(out.read_text())
        out.unlink()
    else:
        outcome = "crashes" if time.monotonic() - began < LIMIT_S else "hangs"
        report = {"outcome": outcome}
    return {"seconds": round(time.monotonic() - began, 1), **report}


def build(program: ExportedProgram) -> str:
    """Compile a program with shrinkfx's fast build."""
    with tempfile.TemporaryDirectory() as folder, fast_build(Path(folder), None):
        return str(
            aoti_compile_and_package(
                program, inductor_configs=dict(with_plain_wrapper({}))
            )
        )


def warm_up(folder: Path) -> None:
    """Compile once, so that the forks find compiled headers and imported modules."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder.resolve())
    aoti_load_package(build(torch.export.export(nn.ReLU(), (torch.ones(2),))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", default="0/1", help="I/N: each N-th from the I-th")
    parser.add_argument("--only", nargs="+", help="names of operators")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    config.compile_threads = 1
    config.fx_graph_cache = False
    warm_up(arguments.folder / "warm-up")
    index, count = map(int, arguments.part.split("/"))
    failing = arguments.folder / "failing"
    failing.mkdir(parents=True, exist_ok=True)
    scratch = arguments.folder / f"part-{index}"
    scratch.mkdir(exist_ok=True)
    lines = arguments.folder / f"tried-{index}.jsonl"
    done = set()
    if lines.exists():
        done = {json.loads(line)["name"] for line in lines.read_text().splitlines()}
    tally: Counter[str] = Counter()
    for op in op_db[index::count]:
        name = f"{op.name}-{op.variant_test_name}".rstrip("-").replace(".", "_")
        if name in done or (arguments.only and op.name not in arguments.only):
            continue
        report = {"name": name, **in_a_process(op, scratch / f"{name}.pt2")}
        if (scratch / f"{name}.pt2").exists():
            (scratch / f"{name}.pt2").rename(failing / f"{name}.pt2")
        tally[report["outcome"]] += 1
        with lines.open("a") as file:
            print(json.dumps(report), file=file)
        print(json.dumps(report), flush=True)
    print(dict(tally), file=sys.stderr)


if __name__ == "__main__":
    main()
