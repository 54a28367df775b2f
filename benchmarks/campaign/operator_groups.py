"""Export PyTorch's operators in groups, for CUDA code on Triton's interpreter.

``python benchmarks/campaign/operator_groups.py DIR`` exports a program for each eight
entries of PyTorch's operator database (it needs ``pip install expecttest``), with
dynamic sizes and between elementwise operators. They run with ``shrinkfx triage DIR --
--device cuda --backend interpreter``.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path

import operators
import torch
from torch.testing._internal.common_methods_invocations import op_db

GROUP = 8
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.uint8)
HOW = {"dynamic": True, "chained": True}


def make_group(entries: Sequence[object]) -> operators.Calls:
    calls = [call for op in entries for call in operators.sample_calls(op, 1, DTYPES)]
    calls = [call for call in calls if operators.can_be_compared(call, **HOW)]
    return operators.Calls(calls, chained=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    entries, total = list(op_db), 0
    for first in range(0, len(entries), GROUP):
        module = make_group(entries[first : first + GROUP])
        if module.calls:
            program = module.export(dynamic=True)
            torch.export.save(program, folder / f"entries-{first:03d}.pt2")
        total += len(module.calls)
    print(f"{len(entries)} entries, {total} calls")


if __name__ == "__main__":
    main()
