"""Export bugs of PyTorch from public issues, each in a model, for a triage.

``python benchmarks/campaign/issues.py DIR`` exports each module of ``issues/`` after a
small transformer; the results of both are in the output. The modules are written from
the descriptions in the issues, after which they are named. Each has a ``Model``, a
function ``make`` that returns a model with inputs, and a docstring that says what goes
wrong; ``DYNAMIC`` may have the dynamic shapes of the inputs.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

sys.path.append(str(Path(__file__).resolve().parents[2] / "repros"))
sys.path.append(str(Path(__file__).resolve().parent / "issues"))

from _haystack import Transformer, random_ids

ISSUES = Path(__file__).resolve().parent / "issues"


class InTransformer(nn.Module):
    """Run a model after a transformer, and add the mean of its results to the output.

    The model's results are outputs, too, so that no operator hides a wrong value.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.transformer = Transformer(nn.Tanh(), blocks=2)
        self.model = model

    def forward(self, ids: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
        hidden = self.transformer(ids)
        results = pytree.tree_leaves(self.model(*inputs))
        tensors = [result for result in results if isinstance(result, Tensor)]
        for result in tensors:
            real = result.abs() if result.is_complex() else result
            hidden = hidden + real.to(torch.float32).nan_to_num().mean()
        return hidden, *tensors


def export(name: str, path: Path) -> None:
    issue = importlib.import_module(name)
    model, inputs = issue.make()
    module, ids = InTransformer(model).eval(), random_ids(2, 6, high=50, seed=1)
    dynamic = getattr(issue, "DYNAMIC", None)
    shapes = None if dynamic is None else (None, tuple(dynamic))
    with torch.no_grad():
        program = torch.export.export(module, (ids, *inputs), dynamic_shapes=shapes)
    torch.export.save(program, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", help="names of modules")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(ISSUES.glob("*.py")):
        if not arguments.only or path.stem in arguments.only:
            export(path.stem, arguments.folder / f"{path.stem}.pt2")


if __name__ == "__main__":
    main()
