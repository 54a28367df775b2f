"""Small models of the kinds that people export, without a fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

F = nn.functional
ROUNDED = {
    *("transformer", "cnn", "unet", "lstm", "dlrm", "experts", "noisy"),
    *("grouped_queries", "convolutions", "bags", "norms", "scattered"),
}
"""Models whose values a smaller float only rounds: it puts none elsewhere."""
SIZES = (1, 2, 5, 8, 13)
"""Sizes that a program with a dynamic first dim is run at; exported at 5."""


class Transformer(nn.Module):
    """Two encoder layers over tokens, heads split and joined by hand."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.tokens = nn.Embedding(50, width)
        self.places = nn.Parameter(torch.randn(12, width) * 0.1)
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.up = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places
        batch, length, width = x.shape
        for layer in range(2):
            y = self.qkv[layer](self.norms[2 * layer](x))
            q, k, v = y.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v)
            y = y.transpose(1, 2).reshape(batch, length, width)
            x = x + self.out[layer](y)
            y = F.gelu(self.up[layer](self.norms[2 * layer + 1](x)))
            x = x + self.down[layer](y)
        result: Tensor = x
        return result


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=2)
        self.head = nn.Linear(8, 4)

    def forward(self, image: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.first(image))), 2)
        x = F.silu(self.second(x))
        scores: Tensor = self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return scores.log_softmax(-1)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(2, 6, 3, padding=1)
        self.deep = nn.Conv2d(6, 12, 3, padding=1)
        self.up = nn.ConvTranspose2d(12, 6, 2, stride=2)
        self.last = nn.Conv2d(12, 2, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        wide = F.relu(self.down(image))
        deep = F.relu(self.deep(F.avg_pool2d(wide, 2)))
        up = F.interpolate(F.group_norm(self.up(deep), 2), scale_factor=2.0)
        up = F.pad(F.avg_pool2d(up, 2), (1, 1, 1, 1))[..., 1:-1, 1:-1]
        result: Tensor = self.last(torch.cat([wide, up], 1))
        return result


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(6, 10, num_layers=2, batch_first=True)
        self.head = nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.cells(x)
        result: Tensor = self.head(hidden[:, -1])
        return result


class Recommender(nn.Module):
    """As DLRM: dense features, embedding bags, pairwise products, a tower."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom = nn.Linear(5, 8)
        self.tables = nn.ModuleList(nn.EmbeddingBag(20, 8, mode="sum") for _ in "ab")
        self.top = nn.Linear(8 + 3, 1)

    def forward(self, dense: Tensor, first: Tensor, second: Tensor) -> Tensor:
        bottom = F.relu(self.bottom(dense))
        bags = [t(i) for t, i in zip(self.tables, (first, second), strict=True)]
        parts: Tensor = torch.stack([bottom, *bags], 1)
        products = parts @ parts.transpose(1, 2)
        rows, columns = torch.triu_indices(3, 3, offset=1)
        pairs = products[:, rows, columns]
        result: Tensor = self.top(torch.cat([bottom, pairs], 1))
        return result.sigmoid()


class Experts(nn.Module):
    """A mixture: each token goes to the best two of four, by gather and scatter."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 4)
        self.weights = nn.Parameter(torch.randn(4, width, width) * 0.2)

    def forward(self, x: Tensor) -> Tensor:
        scores, chosen = self.gate(x).softmax(-1).topk(2, -1)
        results = torch.einsum("tw,ewv->tev", x, self.weights)
        index = chosen.unsqueeze(-1).expand(-1, -1, x.shape[-1])
        picked = results.gather(1, index)
        counts = torch.zeros_like(x[:, :4]).scatter_add(1, chosen, scores)
        mixed: Tensor = (picked * scores.unsqueeze(-1)).sum(1)
        return mixed + counts.sum(-1, keepdim=True)


class Noisy(nn.Module):
    """Draws random numbers: which they are differs from eager, what they do not."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        kept = F.dropout(F.gelu(self.layer(x)), 0.3, training=True)
        result: Tensor = kept + torch.rand_like(x) + torch.randn_like(x).relu()
        return result


@dataclass(frozen=True)
class Model:
    """How to make a module, and its inputs for a size of the first dim.

    Attributes:
        compares: results must be eager's.
        dims: what is declared dynamic, where it is not the first dim of each input.
    """

    make: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Tensor, ...]]
    compares: bool = True
    dims: Callable[[], Any] | None = None

    def dynamic(self) -> Any:
        """Say what is dynamic: else the first dim of each input, the same for all."""
        if self.dims:
            return self.dims()
        dim = torch.export.Dim("n", min=1, max=64)
        return tuple({0: dim} for _ in self.inputs(1))


def tokens(n: int, *sizes: int, below: int) -> Tensor:
    return torch.randint(0, below, (n, *sizes))


MODELS = {
    "transformer": Model(Transformer, lambda n: (tokens(n, 12, below=50),)),
    "cnn": Model(Convolutions, lambda n: (torch.randn(n, 3, 12, 12),)),
    "unet": Model(UNet, lambda n: (torch.randn(n, 2, 8, 8),)),
    "lstm": Model(Recurrent, lambda n: (torch.randn(n, 4, 6),)),
    "dlrm": Model(
        Recommender,
        lambda n: (
            torch.randn(n, 5),
            tokens(n, 3, below=20),
            tokens(n, 2, below=20),
        ),
    ),
    "experts": Model(Experts, lambda n: (torch.randn(n, 16),)),
    "noisy": Model(Noisy, lambda n: (torch.randn(n, 16),), compares=False),
}


class GroupedQueries(nn.Module):
    """Attention of six heads that share two keys, causal, with a mask, and cross."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.pair = nn.Linear(width, 2 * width // 3)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        batch, length, width = x.shape
        q = self.query(x).view(batch, length, 6, -1).transpose(1, 2)
        k, v = self.pair(x).view(batch, length, 2, 2, -1).permute(2, 0, 3, 1, 4)
        past = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        wide, deep = (t.repeat_interleave(3, 1) for t in (k, v))
        mask = keep[:, None, None, :]
        seen = F.scaled_dot_product_attention(q, wide, deep, attn_mask=mask)
        joined = (past + seen).transpose(1, 2).reshape(batch, length, width)
        result: Tensor = x + self.out(joined)
        return result


class ManyConvolutions(nn.Module):
    """In one and two dims; transposed, grouped, depthwise, dilated, circular."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv1d(2, 6, 5, stride=2, padding=2)
        self.dilated = nn.Conv1d(
            6, 6, 3, dilation=2, padding=2, padding_mode="circular"
        )
        self.up = nn.ConvTranspose1d(6, 4, 4, stride=2, padding=1)
        self.depthwise = nn.Conv2d(4, 8, 3, padding=1, groups=4)
        self.point = nn.Conv2d(8, 4, 1, bias=False)
        self.wide = nn.ConvTranspose2d(4, 2, 3, stride=2, output_padding=1, groups=2)

    def forward(self, sound: Tensor) -> Tensor:
        x = self.up(F.gelu(self.dilated(F.relu(self.one(sound)))))
        image = x.unflatten(2, (4, 6))
        image = self.point(F.hardswish(self.depthwise(image)))
        result: Tensor = self.wide(image).tanh()
        return result


class Scans(nn.Module):
    """Sums, products and extremes of all that came before; runs, differences, ways."""

    def forward(self, x: Tensor) -> Tensor:
        sums = x.cumsum(-1) / (1 + torch.arange(x.shape[1], dtype=x.dtype))
        products = (x.sigmoid() + 0.5).cumprod(0)
        most, at = x.cummax(-1)
        weighed = x.logcumsumexp(-1) + at.to(x.dtype) * 0.1
        back = x.flip(-1).cumsum(-1).flip(-1)
        changed = x.diff(dim=-1, prepend=x[:, :1]) + x.roll(2, -1) + x.tril(1)
        result: Tensor = sums + products + most + weighed + back + changed
        return result


class Norms(nn.Module):
    """Batch, instance, group, layer and root mean square, of some size each."""

    def __init__(self) -> None:
        super().__init__()
        self.batch = nn.BatchNorm1d(10)
        self.instance = nn.InstanceNorm1d(10, affine=True)
        self.group = nn.GroupNorm(5, 10)
        self.layer = nn.LayerNorm((10, 7))
        self.root = nn.RMSNorm(7)
        self.local = nn.LocalResponseNorm(3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.group(self.batch(x)) + self.instance(x)
        y = self.root(self.layer(y)) + self.local(x) + F.normalize(x, dim=-1)
        result: Tensor = y + x.std(-1, keepdim=True) + x.norm(dim=1, keepdim=True)
        return result


class Quantised(nn.Module):
    """Whole numbers of eight bits: weights, scales by row, rounded and clamped."""

    weight: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer(
            "weight", torch.randint(-127, 127, (12, 16)).to(torch.int8)
        )
        self.register_buffer("scale", torch.rand(12) / 100)

    def forward(self, x: Tensor) -> Tensor:
        largest = x.abs().amax(-1, keepdim=True).clamp(min=1e-3).float()
        whole = (x.float() / largest * 127).round().clamp(-128, 127).to(torch.int8)
        sums = (whole.int()[:, None] * self.weight.int()).sum(-1)
        bits = (whole.to(torch.uint8) >> 3) ^ (whole.to(torch.uint8) & 5)
        shown = torch.bitwise_left_shift(bits.int().sum(-1), 2) // 3 % 7
        real = sums.float() * self.scale * largest / 127
        return (real + shown[:, None]).to(x.dtype)


class Sorted(nn.Module):
    """Sorts, both ways and stably; the best few, the middle one, places of a value."""

    def forward(self, x: Tensor) -> Tensor:
        ordered, places = x.sort(-1, descending=True)
        ranks = x.argsort(-1).argsort(-1)
        best, at = x.topk(3, -1)
        middle = x.median(-1, keepdim=True).values
        steps = (
            torch.linspace(-1, 1, 5, dtype=x.dtype).expand(x.shape[0], 5).contiguous()
        )
        found = torch.searchsorted(steps, x.contiguous())
        low = x.kthvalue(2, -1).values
        back = torch.empty_like(x).scatter_(1, places, ordered)
        whole = (ranks + found).to(x.dtype) + back
        return torch.cat([whole, best, at.to(x.dtype), middle, low[:, None]], -1)


class Scattered(nn.Module):
    """Writes where indices say: put, add, reduce, of rows, of elements, by a mask."""

    def forward(self, x: Tensor, rows: Tensor, places: Tensor) -> Tensor:
        table = torch.zeros(12, x.shape[1], dtype=x.dtype)
        put = table.index_put((rows,), x, accumulate=True)
        added = table.index_add(0, rows, x, alpha=2.0)
        most = table.scatter_reduce(0, places, x, "amax", include_self=False)
        mean = (table + 1).scatter_reduce(0, places, x, "mean")
        taken = put.gather(0, places).relu() + added[rows] + mean[rows]
        copied = most.index_copy(0, torch.tensor([3, -1 % 12]), taken[:1].expand(2, -1))
        filled = copied.masked_fill(copied > 1, 1.0).index_fill(1, rows[:1] % 4, 0.5)
        return filled.take_along_dim(places, 0) + taken.masked_scatter(x > 0, x)


class Bags(nn.Module):
    """Embedding bags: of all modes, weighted, with a padding index, in a flat list."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.EmbeddingBag(30, 6, mode="mean", padding_idx=0)
        self.most = nn.EmbeddingBag(30, 6, mode="max")
        self.sum = nn.EmbeddingBag(30, 6, mode="sum")
        self.rows = nn.Embedding(30, 6, padding_idx=0)

    def forward(self, words: Tensor, weights: Tensor) -> Tensor:
        offsets = torch.arange(words.shape[0]) * words.shape[1]
        flat = self.sum(words.flatten(), offsets, weights.flatten())
        shown = F.one_hot(words[:, 0] % 6, 6).to(flat.dtype)
        rows: Tensor = self.rows(words).amax(1)
        result: Tensor = flat + self.mean(words) + self.most(words) + rows + shown
        return result


class Pools(nn.Module):
    """Pools: with indices and back, over their edges, adaptive to odd sizes, fold."""

    def forward(self, image: Tensor) -> Tensor:
        top, at = F.max_pool2d(image, 3, 2, 1, return_indices=True)
        most, place = F.max_pool2d(image, 2, return_indices=True)
        back = F.max_unpool2d(most, place, [2, 2])
        ceiled = F.avg_pool2d(image, 3, 2, ceil_mode=True, count_include_pad=False)
        adapted = F.adaptive_avg_pool2d(image, (4, 3)) + F.adaptive_max_pool2d(
            image, (4, 3)
        )
        tiles = F.unfold(image, 3, padding=1).sum(1)
        larger = F.interpolate(adapted, (8, 10), mode="bilinear", align_corners=True)
        shuffled = F.pixel_unshuffle(F.pad(image, (1, 1, 0, 0), "reflect"), 2)
        parts = [top + at.to(top.dtype) * 0.01, ceiled, back, larger, shuffled, tiles]
        return torch.cat([part.flatten(1) for part in parts], 1)


class DependsOnData(nn.Module):
    """Sizes that only the values know: what is not zero, chosen, repeated."""

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        rows, columns = (x > 0).nonzero(as_tuple=True)
        chosen = x[rows, columns]
        kept = x.masked_select(x > 0.5).exp()
        count = times.sum().item()
        torch._check(count > 0)
        torch._check(count <= 64)
        more = torch.arange(count, dtype=x.dtype).sin()
        repeated = x.repeat_interleave(times, 0).cumsum(0)
        sums = torch.stack([chosen.sum(), kept.sum(), more.sum(), repeated.mean()])
        return sums + columns.sum().to(x.dtype)


class SeveralDims(nn.Module):
    """Three dims of their own, one of them even, and one that follows from another."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        halves = x.reshape(x.shape[0], x.shape[1] // 2, 2).sum(-1)
        longer = y[1:] @ x.softmax(-1)
        mixed = torch.cat([halves, x[:, : x.shape[1] // 2]], 0)
        padded = F.pad(mixed, (1, 2)).unfold(1, 3, 1).amax(-1)
        result = torch.einsum("ij,ik->jk", padded, padded).atan() + longer.mean()
        return result.flatten()[::3].sigmoid()


def _several(n: int) -> tuple[Tensor, ...]:
    return torch.randn(n + 1, 2 * n + 4), torch.randn(n + 3, n + 1)


def _several_dims() -> Any:
    rows, half = Dim("rows", min=2, max=65), Dim("half", min=3, max=66)
    longer = Dim("longer", min=4, max=67)
    return {0: rows, 1: 2 * half}, {0: longer, 1: rows}


MODELS |= {
    "grouped_queries": Model(
        GroupedQueries,
        lambda n: (torch.randn(n, 7, 24), torch.ones(n, 7).cumsum(1) < 6),
    ),
    "convolutions": Model(ManyConvolutions, lambda n: (torch.randn(n, 2, 24),)),
    "scans": Model(Scans, lambda n: (torch.randn(n, 40),)),
    "norms": Model(Norms, lambda n: (torch.randn(n, 10, 7),)),
    "quantised": Model(Quantised, lambda n: (torch.randn(n, 16),)),
    # No two values of a row are equal, whose places a sort may choose.
    "sorted": Model(Sorted, lambda n: (torch.rand(n, 33).argsort(-1) / 16 - 1,)),
    "scattered": Model(
        Scattered,
        lambda n: (
            torch.randn(n, 4),
            tokens(n, below=12),
            tokens(n, 4, below=min(n, 12)),
        ),
    ),
    "bags": Model(Bags, lambda n: (tokens(n, 5, below=30), torch.rand(n, 5))),
    "pools": Model(Pools, lambda n: (torch.randn(n, 2, 10, 12),)),
    "depends_on_data": Model(
        DependsOnData, lambda n: (torch.randn(n, 9), tokens(n, below=3) + 1)
    ),
    "several_dims": Model(SeveralDims, _several, dims=_several_dims),
}
