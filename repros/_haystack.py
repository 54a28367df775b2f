"""Build the haystacks: small, realistic models that compile cleanly on their own.

Each takes a ``needle``, a module that maps the hidden state to a hidden state of
the same shape, and runs it in the middle. Weights come from one seed.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def random_tensor(*shape: int, seed: int) -> Tensor:
    """Draw from a normal distribution without touching the global generator."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def random_ids(*shape: int, high: int, seed: int) -> Tensor:
    """Draw indices in ``[0, high)`` without touching the global generator."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(high, shape, generator=generator)


class TransformerBlock(nn.Module):
    """Pre-norm attention and MLP, on ``(batch, seq, width)``."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_up = nn.Linear(width, 2 * width)
        self.mlp_down = nn.Linear(2 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        qkv = self.qkv(self.attention_norm(hidden)).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in qkv)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        hidden = hidden + self.projection(attended)
        return hidden + self.mlp_down(F.gelu(self.mlp_up(self.mlp_norm(hidden))))


class Transformer(nn.Module):
    """Token ids ``(batch, seq)`` to logits; the needle sits between two blocks."""

    def __init__(self, needle: nn.Module, *, blocks: int = 4, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        width, vocabulary, longest = 32, 64, 32
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(longest, width)
        self.before = nn.Sequential(
            *(TransformerBlock(width, heads=4) for _ in range(blocks // 2))
        )
        self.needle = needle
        self.after = nn.Sequential(
            *(TransformerBlock(width, heads=4) for _ in range(blocks - blocks // 2))
        )
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, vocabulary))

    def forward(self, ids: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device)
        hidden = self.before(self.tokens(ids) + self.positions(positions))
        return self.head(self.after(self.needle(hidden)))


class ResidualBlock(nn.Module):
    """Two convolutions around a shortcut, on ``(batch, channels, height, width)``."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, features: Tensor) -> Tensor:
        update = F.relu(self.norm1(self.conv1(features)))
        return F.relu(features + self.norm2(self.conv2(update)))


class ResidualCnn(nn.Module):
    """Images ``(batch, 3, height, width)`` to logits; the needle sits mid-way."""

    def __init__(self, needle: nn.Module, *, blocks: int = 6, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        channels, classes = 8, 10
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU()
        )
        self.before = nn.Sequential(
            *(ResidualBlock(channels) for _ in range(blocks // 2))
        )
        self.needle = needle
        self.after = nn.Sequential(
            *(ResidualBlock(channels) for _ in range(blocks - blocks // 2))
        )
        self.head = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        features = self.needle(self.before(self.stem(images)))
        return self.head(self.after(F.max_pool2d(features, 2)).mean((2, 3)))


class Dlrm(nn.Module):
    """``{"dense": (batch, 6), "ids": [(batch, 3), ...]}`` to a score per row.

    The needle runs on the dense vector, before it meets the embeddings.
    """

    def __init__(self, needle: nn.Module, *, tables: int = 12, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        width, rows, dense = 16, 40, 6
        self.register_buffer("dense_mean", random_tensor(dense, seed=seed) / 4)
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = nn.Sequential(
            nn.Linear(dense, 32), nn.ReLU(), nn.Linear(32, width), nn.ReLU()
        )
        self.needle = needle
        pairs = (tables + 1) ** 2
        self.top = nn.Sequential(
            nn.Linear(pairs + width, 32), nn.ReLU(), nn.Linear(32, 1)
        )

    def forward(self, batch: Mapping[str, Tensor | list[Tensor]]) -> Tensor:
        dense = self.needle(self.bottom(batch["dense"] - self.dense_mean))
        bags = zip(self.tables, batch["ids"], strict=True)
        pooled = [table(ids).mean(1) for table, ids in bags]
        features = torch.stack([dense, *pooled], dim=1)
        pairs = torch.bmm(features, features.transpose(1, 2)).flatten(1)
        return self.top(torch.cat([dense, pairs], dim=1)).squeeze(-1)
