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


class LstmTagger(nn.Module):
    """Token ids ``(batch, steps)`` to tag scores, the recurrence written out.

    The needle runs on the hidden state half-way through the sentence.
    """

    def __init__(
        self, needle: nn.Module, *, dropout: float = 0.0, seed: int = 0
    ) -> None:
        super().__init__()
        torch.manual_seed(seed)
        width, words, tags = 16, 50, 7
        self.words = nn.Embedding(words, width)
        self.from_input = nn.Linear(width, 4 * width)
        self.from_hidden = nn.Linear(width, 4 * width, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.needle = needle
        self.head = nn.Linear(width, tags)

    def forward(self, ids: Tensor) -> Tensor:
        embedded = self.dropout(self.words(ids))
        hidden = cell = torch.zeros_like(embedded[:, 0])
        states = []
        for step, word in enumerate(embedded.unbind(1)):
            gates = self.from_input(word) + self.from_hidden(hidden)
            enter, forget, update, leave = gates.chunk(4, -1)
            cell = forget.sigmoid() * cell + enter.sigmoid() * update.tanh()
            hidden = leave.sigmoid() * cell.tanh()
            if step == ids.shape[1] // 2:
                hidden = self.needle(hidden)
            states.append(hidden)
        return self.head(self.dropout(torch.stack(states, 1)))


class CrossBlock(nn.Module):
    """A transformer block whose middle reads ``memory``, of a length of its own."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.block = TransformerBlock(width, heads)

    def forward(self, hidden: Tensor, memory: Tensor) -> Tensor:
        parts = [self.query(self.norm(hidden)), *self.key_value(memory).chunk(2, -1)]
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in parts)
        read = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.block(hidden + read)


class EncoderDecoder(nn.Module):
    """``source`` and ``target``, each ``(batch, length, 16)``, to ``target``'s shape.

    The needle maps ``(hidden, memory)`` to a hidden state, between the decoder's
    two blocks.
    """

    def __init__(self, needle: nn.Module, *, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        width, heads = 16, 2
        self.encoder = TransformerBlock(width, heads)
        self.first = CrossBlock(width, heads)
        self.needle = needle
        self.second = CrossBlock(width, heads)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self.encoder(source)
        hidden = self.needle(self.first(target, memory), memory)
        return self.second(hidden, memory)


class TemporalConv(nn.Module):
    """Signals ``(batch, 4, time)`` to the same shape, through dilated convolutions.

    The needle runs on 8 channels in the middle.
    """

    def __init__(self, needle: nn.Module, *, layers: int = 6, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        channels = 8
        self.enter = nn.Conv1d(4, channels, 1)
        self.filters = nn.ModuleList(
            nn.Conv1d(channels, 2 * channels, 2, dilation=2 ** (i % 3))
            for i in range(layers)
        )
        self.skips = nn.ModuleList(
            nn.Conv1d(channels, channels, 1) for _ in range(layers)
        )
        self.needle = needle
        self.leave = nn.Conv1d(channels, 4, 1)

    def forward(self, signal: Tensor) -> Tensor:
        hidden = self.enter(signal)
        total = torch.zeros_like(hidden)
        layers = zip(self.filters, self.skips, strict=True)
        for number, (filtered, skip) in enumerate(layers):
            if number == len(self.filters) // 2:
                hidden = self.needle(hidden)
            past = F.pad(hidden, (filtered.dilation[0], 0))
            value, gate = filtered(past).chunk(2, 1)
            update = value.tanh() * gate.sigmoid()
            total = total + skip(update)
            hidden = hidden + update
        return self.leave(F.relu(total))


class Experts(nn.Module):
    """Tokens ``(rows, 16)`` to the same shape, each through the expert of its choice.

    How many rows an expert gets depends on the data. The needle runs on the rows
    of the middle one.
    """

    def __init__(self, needle: nn.Module, *, experts: int = 5, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        width = 16
        self.router = nn.Linear(width, experts)
        self.up = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(experts))
        self.down = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(experts))
        self.needle = needle

    def forward(self, tokens: Tensor) -> Tensor:
        choice = self.router(tokens).argmax(-1)
        mixed = tokens
        for number, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            rows = (choice == number).nonzero().squeeze(-1)
            chosen = tokens.index_select(0, rows)
            if number == len(self.up) // 2:
                chosen = self.needle(chosen)
            mixed = mixed.index_add(0, rows, down(F.gelu(up(chosen))))
        return mixed
