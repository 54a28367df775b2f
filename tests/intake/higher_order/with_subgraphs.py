"""Programs with higher-order operators: ``python with_subgraphs.py NAME [OUT]``.

Compiles one; with OUT, has ``shrinkfx.minify`` reduce it into that folder. If OUT is
``torch.compile``, calls what that returns.
"""

import sys

import refusing  # noqa: F401 - the planted failure
import torch
from torch import Tensor, nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.invoke_subgraph import mark_compile_region
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


class FlexAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.tensor([0.5, 1.0]), requires_grad=False)
        self.mask = create_block_mask(_causal, None, None, 8, 8, device="cpu")

    def forward(self, x: Tensor) -> Tensor:
        def score(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return score + self.bias[h]

        heads = torch.stack([x, x.sin()])[None]
        return flex_attention(
            heads, heads, heads, score_mod=score, block_mask=self.mask
        )


def _causal(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return q >= k


class WhileLoop(nn.Module):
    """Carries a Python number."""

    def forward(self, x: Tensor) -> Tensor:
        return while_loop(
            lambda i, x: i < 5, lambda i, x: (i + 1, x.sin() + 1), (0, x)
        )[1]


class Scan(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return scan(lambda c, y: (c + y, c * 2), torch.zeros(16), x)[1]


class AssociativeScan(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        scanned = associative_scan(torch.add, x, 0, combine_mode="generic")
        return scanned.cumprod(0)


class Map(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return map_over(lambda row, y: (row + y).sin(), x, torch.ones(16))


class Cond(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos(), (x,))


@mark_compile_region
def region(x: Tensor) -> Tensor:
    return x.sin().cumsum(0) + 1


class InvokeSubgraph(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return region(region(x)).cumprod(0)


class AutoFunctionalized(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        copied = x.clone()
        torch.ops.planted.increase(copied)
        return copied


class Quantized(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (
            torch.quantize_per_tensor(x, 0.1, 10, torch.quint8).dequantize().cumprod(0)
        )


class Model(nn.Module):
    """More operators around one of the programs: (8, 16) -> (8, 16)."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.before, self.inner = nn.Linear(16, 16).requires_grad_(False), inner

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(self.before(x).relu() + x)
        return x.tanh().sum(0) + 1


PROGRAMS = {
    kind.__name__: kind
    for kind in (
        FlexAttention,
        WhileLoop,
        Scan,
        AssociativeScan,
        Map,
        Cond,
        InvokeSubgraph,
        AutoFunctionalized,
        Quantized,
    )
}

if __name__ == "__main__":
    name, *out = sys.argv[1:]
    model, args = Model(PROGRAMS[name]()).eval(), (torch.ones(8, 16),)
    if out == ["torch.compile"]:
        with torch.no_grad():
            torch.compile(model)(*args)
    elif out:
        import shrinkfx

        found = shrinkfx.minify(model, args=args, out=out[0], explain=False)
        print(found.status, found.operators, found.verified)
    else:
        with torch.no_grad():
            exported = torch.export.export(model, args)
        torch._inductor.aoti_compile_and_package(exported, package_path="model.pt2")
