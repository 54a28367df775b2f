"""Train GPT-2 as a script for transformers does: AdamW, clipped gradients, dropout."""

from collections.abc import Callable
from typing import Any

import torch
import wrong_lowerings
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

wrong_lowerings.install(torch.ops.aten._unsafe_masked_index_put_accumulate.default)
torch.manual_seed(0)
config = GPT2Config(
    vocab_size=64,
    n_positions=16,
    n_embd=32,
    n_layer=2,
    n_head=4,
    use_cache=False,
    bos_token_id=0,
    eos_token_id=0,
)
model = GPT2LMHeadModel(config).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
compiled: Callable[..., Any] = torch.compile(model)


@torch.compile
def update() -> None:
    optimizer.step()


for _ in range(2):
    tokens = torch.randint(64, (4, 12))
    loss: Tensor = compiled(input_ids=tokens, labels=tokens).loss
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    update()
    optimizer.zero_grad()
raise SystemExit("stands for a check of the model that fails")
