"""Write a program as wide as the models that people have, with the demo's bug in it.

``layers`` times ``x + relu(linear(x))``, and in the middle the roll of a flip, which
``repros/assert_roll_bound/planted.py`` lowers past the end. 40 layers of 2,560 are 122
operators and 1.05 GB of weights, and each kernel has work for several threads; the
same with ``--width 32`` is what to compare costs with. A run should find two operators:

    python benchmarks/wide.py wide.pt2
    python benchmarks/wide.py --width 32 narrow.pt2

Prints what was written, and the command that reduces it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

PLANTED = Path(__file__).resolve().parents[1] / "repros/assert_roll_bound/planted.py"


class Wide(nn.Module):
    """A row of residual layers, with a shift of the reversed features in the middle.

    Takes and returns (rows, width).
    """

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, hidden: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            if number == len(self.layers) // 2:
                hidden = torch.roll(torch.flip(hidden, [1]), 3, 1)
            hidden = hidden + torch.relu(layer(hidden))
        return hidden


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, metavar="FILE.pt2")
    parser.add_argument("--width", type=int, default=2560)
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--rows", type=int, default=64, help="of the input")
    options = parser.parse_args()
    torch.manual_seed(0)
    module = Wide(options.width, options.layers).eval()
    with torch.no_grad():
        args = (torch.rand(options.rows, options.width),)
        program = torch.export.export(module, args)
    options.file.parent.mkdir(parents=True, exist_ok=True)
    torch.export.save(program, options.file)
    operators = sum(node.op == "call_function" for node in program.graph.nodes)
    size = options.file.stat().st_size / 1e6
    print(f"{options.file}: {operators} operators, {size:.0f} MB")
    print(f"shrinkfx {options.file} --until assert --preload {_shown(PLANTED)}")


def _shown(path: Path) -> Path:
    """Name a file as it is seen from here, where it lies below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


if __name__ == "__main__":
    main()
