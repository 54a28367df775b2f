"""Ten programs with two suspects each: an innocent one dies of what a guilty one made.

    python benchmarks/two_suspects/programs.py NAME FILE.pt2
    shrinkfx FILE.pt2 --preload benchmarks/two_suspects/plants/NAME.py --until KIND

``run.py`` does that for all of them, and judges what is said. ``plants/NAME.py`` has
the bug, ``causes.toml`` the right answers (``tests/support/causes.py`` says how to read
them), written before anything explained these programs. All fail under AOTInductor on
the CPU; how, says ``causes.toml`` too.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

sys.path.append(str(Path(__file__).resolve().parents[2] / "repros"))
from _haystack import (
    TemporalConv,
    Transformer,
    random_ids,
    random_tensor,
)

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Made:
    """What a program is exported from."""

    module: nn.Module
    args: tuple[Tensor, ...]
    dynamic_shapes: tuple[dict[int, Any] | None, ...] | None = None


class FloorTooHigh(nn.Module):
    """Floor levels, share them by a matrix product, look the shares up."""

    shared: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(6, 4)
        # Each of the three takes over what one of the eight has.
        self.register_buffer("shared", torch.eye(8)[:, [1, 6, 3]])

    def forward(self, levels: Tensor) -> Tensor:
        steps = torch.floor(levels * 6)
        bins = (steps @ self.shared).long()
        found: Tensor = self.table(bins)
        return found.tanh()


def floor_too_high() -> Made:
    levels = torch.rand(5, 8, generator=torch.Generator().manual_seed(1))
    levels[2, 6] = 0.95
    return Made(FloorTooHigh(), (levels,))


class SegmentEnds(nn.Module):
    """Pick the last token of each segment of ``(tokens, 8)``."""

    def forward(self, packed: Tensor, mask: Tensor) -> Tensor:
        lengths = mask.sum(1)
        last = torch.cumsum(lengths, 0) - 1
        return packed.relu()[last] * 0.5


def segment_ends() -> Made:
    mask = torch.arange(4) < torch.tensor([2, 4, 3])[:, None]
    args = random_tensor(9, 8, seed=1), mask
    return Made(SegmentEnds(), args, ({0: Dim("tokens", min=9, max=64)}, None))


class PeakLost(nn.Module):
    """Weigh values by a softmax that is written out, and project what that gives."""

    values: Tensor
    project: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("values", random_tensor(16, 6, seed=2).abs())
        self.register_buffer("project", random_tensor(6, 5, seed=3))

    def forward(self, scores: Tensor) -> Tensor:
        peak = scores.amax(-1, keepdim=True)
        weights = torch.exp(scores - peak)
        read = torch.relu(weights @ self.values) * 0.25
        return torch.tanh(read @ self.project)


def peak_lost() -> Made:
    return Made(PeakLost(), (random_tensor(3, 16, seed=1) * 60,))


class ExpandedResult(nn.Module):
    """Gate features by what their row has in common."""

    def forward(self, features: Tensor) -> Tensor:
        common = torch.ops.planted.row_mean(features.cos())
        gate = torch.sigmoid(common)
        return features * gate


def expanded_result() -> Made:
    plant("expanded_result")
    return Made(ExpandedResult(), (random_tensor(24, 160, seed=1),))


class ShortResult(nn.Module):
    """Add to each sentence of the batch what the loud ones have in common."""

    def forward(self, hidden: Tensor) -> Tensor:
        loud = torch.ops.planted.keep_loud(hidden)
        common = torch.tanh(loud).mean(0, keepdim=True)
        return hidden + 0.1 * common


def short_result() -> Made:
    plant("short_result")
    ids = random_ids(6, 8, high=64, seed=1)
    batch = ({0: Dim("batch", min=2, max=64)},)
    return Made(Transformer(ShortResult(), blocks=2), (ids,), batch)


class BentPhase(nn.Module):
    """Mix the channels of ``(batch, 8, time)`` by their phases."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv1d(8, 8, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        phase = torch.atan(3 * hidden)
        mixed: Tensor = self.mix(phase)
        return hidden + mixed


def bent_phase() -> Made:
    torch.manual_seed(1)
    needle = BentPhase()
    return Made(TemporalConv(needle, layers=5), (random_tensor(2, 4, 40, seed=1),))


class NegativeRoot(nn.Module):
    """Add up what is positive of rows, by weights that are, and take the root."""

    weights: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weights", random_tensor(12, 3, seed=2).abs())

    def forward(self, rows: Tensor) -> Tensor:
        kept = torch.relu(rows - 1)
        energy = kept @ self.weights
        return torch.sqrt(energy) + 1


def negative_root() -> Made:
    rows = ({0: Dim("rows", min=2, max=256)},)
    return Made(NegativeRoot(), (random_tensor(7, 12, seed=1),), rows)


class SpoiledInput(nn.Module):
    """Add the shape of the hidden state to its standardised form."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.hidden = nn.Linear(10, 16)

    def forward(self, rows: Tensor) -> Tensor:
        hidden = self.hidden(rows)
        shape = torch.tanh(hidden)
        level = torch.ops.planted.standardise(hidden)
        both: Tensor = shape + 0.1 * level
        return both


def spoiled_input() -> Made:
    plant("spoiled_input")
    return Made(SpoiledInput(), (random_tensor(6, 10, seed=1),))


class NarrowIds(nn.Module):
    """Hash numbers to ids, hide some of them, and look the rest up."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(50, 4)

    def forward(self, numbers: Tensor) -> Tensor:
        ids = torch.ops.planted.hash_ids(numbers)
        shown = torch.ops.planted.hide_rare(ids)
        found: Tensor = self.table(shown)
        return found.sum(1)


def narrow_ids() -> Made:
    plant("narrow_ids")
    return Made(NarrowIds(), (random_ids(4, 6, high=10_000, seed=1),))


class BagOfBest(nn.Module):
    """Sum the embeddings of each row's best column."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.bag = nn.EmbeddingBag(12, 4, mode="sum")

    def forward(self, scores: Tensor) -> Tensor:
        best = torch.argmax(scores.sigmoid(), -1)
        bags: Tensor = self.bag(best.view(3, -1))
        return bags.relu()


def bag_of_best() -> Made:
    scores = random_tensor(6, 12, seed=1)
    scores[4, 11] = 5.0
    return Made(BagOfBest(), (scores,))


PROGRAMS: dict[str, Callable[[], Made]] = {
    made.__name__: made
    for made in (
        *(floor_too_high, segment_ends, peak_lost, expanded_result, short_result),
        *(bent_phase, negative_root, spoiled_input, narrow_ids, bag_of_best),
    )
}


def plant(name: str) -> None:
    """Register the operators of a program, once."""
    module = f"two_suspects_{name}"
    if module in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(module, HERE / f"plants/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[module] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[module])


def export(name: str) -> ExportedProgram:
    """Export a program. Planted lowerings are not needed for that, nor planted."""
    made = PROGRAMS[name]()
    with torch.no_grad():
        return torch.export.export(
            made.module.eval(), made.args, dynamic_shapes=made.dynamic_shapes
        )


if __name__ == "__main__":
    torch.export.save(export(sys.argv[1]), sys.argv[2])
