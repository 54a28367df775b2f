"""Programs whose CUDA kernels are right, and programs whose kernels are not.

Each entry makes a module, what it is exported with and, where they differ, what it
is run on. The module is imported where kernels are interpreted, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.export import Dim
from torch.library import triton_op, wrap_triton
from torch.nn.attention.flex_attention import flex_attention

F = nn.functional


@dataclass(frozen=True)
class Case:
    """A program; ``run`` stands for ``args`` where the failing inputs are others."""

    module: nn.Module
    args: tuple[Any, ...]
    dynamic: Any = None
    run: tuple[Any, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


class Calls(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any], **children: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, child in children.items():
            self.add_module(name, child)

    def forward(self, *args: Tensor) -> Any:
        return self.function(self, *args)


class Counts(nn.Module):
    """Writes into a buffer at each call."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(7))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(x.sum(0))
        return self.seen * x


class Steps(nn.Module):
    """Takes another row at each call; there are four."""

    at: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("at", torch.zeros(2, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.at.add_(1)
        return x[self.at].relu()


class Scaled(nn.Module):
    """Multiplies with a number that it has learned."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.7))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale.exp()


def of(function: Callable[..., Any], *args: Any, **children: nn.Module) -> Case:
    return Case(Calls(lambda self, *xs: function(*xs), **children), args)


def _grown(x: Tensor, w: Tensor) -> Tensor:
    return torch.softmax(x.relu() + w, -1).sum(0)


def _cumulative(x: Tensor) -> tuple[Tensor, ...]:
    return x.cumsum(-1), x.argmax(-1), x.var(-1), x.cumprod(0), x.amin(0)


def _rows(self: Any, x: Tensor, i: Tensor) -> Tensor:
    made: Tensor = torch.tanh(self.table(i) + x[i]).erf()
    return made


def _attend(x: Tensor) -> Tensor:
    q = x.view(2, 8, 4, 16).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q) + 1


TIMED = {"max_autotune": True}
"""Has Inductor make GEMMs and convolutions from templates."""


def _flexible(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    def causal(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return torch.where(i >= j, score, -float("inf"))

    made: Tensor = flex_attention(q, k, v, score_mod=causal)
    return made + 1


HEALTHY: dict[str, Callable[[], Case]] = {
    "pointwise": lambda: of(
        lambda x, y: torch.sin(x) * y.T + x.abs().log1p(),
        torch.randn(33, 17),
        torch.randn(17, 33),
    ),
    "reduction": lambda: of(lambda x: (x.sum(0), x.amax(1)), torch.randn(65, 130)),
    "long_reduction": lambda: of(lambda x: x.mean() + x.std(), torch.randn(40_000)),
    "embedding_and_index": lambda: Case(
        Calls(_rows, table=nn.Embedding(10, 33)),
        (torch.randn(10, 33), torch.tensor([0, 9, 3])),
    ),
    "matmul_and_bias": lambda: Case(
        Calls(lambda self, x: self.linear(x).relu(), linear=nn.Linear(33, 17)),
        (torch.randn(5, 33),),
    ),
    "softmax": lambda: of(lambda x: x.softmax(-1), torch.randn(5, 300)),
    "layer_norm": lambda: Case(
        Calls(lambda self, x: F.gelu(self.norm(x)), norm=nn.LayerNorm(65)),
        (torch.randn(9, 65),),
    ),
    "dynamic": lambda: Case(
        Calls(lambda self, *xs: _grown(*xs)),
        (torch.randn(5, 33), torch.randn(33)),
        dynamic=(({0: Dim.DYNAMIC}, None),),
        run=(torch.randn(70, 33), torch.randn(33)),
    ),
    "bfloat16": lambda: of(
        lambda x: (x * 3).softmax(-1), torch.randn(9, 65, dtype=torch.bfloat16)
    ),
    "scans": lambda: of(_cumulative, torch.randn(9, 65)),
    "buffer": lambda: Case(Counts(), (torch.randn(3, 7),)),
    "attention": lambda: of(_attend, torch.randn(2, 8, 64)),
    "recurrent": lambda: Case(
        Calls(lambda self, x: self.cell(x), cell=nn.GRUCell(8, 6)), (torch.randn(3, 8),)
    ),
    "recurrent_with_state": lambda: Case(
        Calls(lambda self, x: self.cell(x), cell=nn.LSTMCell(8, 6)),
        (torch.randn(3, 8),),
    ),
    "convolution": lambda: Case(
        Calls(lambda self, x: self.conv(x).relu() + 1, conv=nn.Conv2d(3, 5, 3)),
        (torch.randn(2, 3, 9, 9),),
    ),
    "expanded_input": lambda: of(lambda x: x * 2, torch.randn(1, 7).expand(5, 7)),
    "small_constant": lambda: of(
        lambda x: x * torch.tensor([1.0, 2.0, 3.0]), torch.randn(5, 3)
    ),
    "scalar_constant": lambda: Case(Scaled(), (torch.randn(5, 3),)),
    "number_off_data": lambda: of(lambda x: x * x.sum().item(), torch.randn(5)),
    "nan_argmax": lambda: of(
        lambda x: torch.where(x > 0.5, float("nan"), x).argmax(-1), torch.randn(6, 33)
    ),
    "arctangent": lambda: of(
        lambda x: x.atan(), torch.tensor([0.0, -0.3, 1.0, -7.5, 1e30, 1e-40, -3e38])
    ),
    "half_of_a_dim": lambda: Case(
        Calls(lambda self, x: x[: x.shape[0] // 2].sum(1) * x.shape[0]),
        (torch.randn(10, 33),),
        dynamic=(({0: 2 * Dim("half", min=3, max=50)},),),
        run=(torch.randn(16, 33),),
    ),
    "empty_input": lambda: Case(
        Calls(lambda self, x, y: (torch.minimum(x, x), y + 1)),
        (torch.zeros(3, 0), torch.randn(5)),
        dynamic=(({0: Dim.AUTO}, {}),),
    ),
    "gemm_template": lambda: Case(
        Calls(lambda self, x: self.linear(x).relu(), linear=nn.Linear(40, 24)),
        (torch.randn(33, 40),),
        options=TIMED,
    ),
    "batched_template": lambda: Case(
        Calls(lambda self, x, y: torch.bmm(x, y).sin()),
        (torch.randn(3, 33, 40), torch.randn(3, 40, 20)),
        options=TIMED,
    ),
    "convolution_template": lambda: Case(
        Calls(
            lambda self, x: self.conv(x).relu(), conv=nn.Conv2d(16, 24, 3, padding=1)
        ),
        (torch.randn(2, 16, 9, 9),),
        options=TIMED,
    ),
    "flexible_attention": lambda: of(
        _flexible, *(torch.randn(1, 2, 128, 16) for _ in range(3))
    ),
    "eight_bits": lambda: of(
        lambda x: x.to(torch.float8_e4m3fn).float() + x.to(torch.float8_e5m2).float(),
        4 * torch.randn(200),
    ),
}


@triton.jit
def copy_kernel(x, y, count, block: tl.constexpr, masked: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    mask = (i < count) | (not masked)
    tl.store(y + i, tl.load(x + i, mask) + 1, mask)


tuned_kernel = triton.autotune(
    configs=[triton.Config({"block": 64}), triton.Config({"block": 128})],
    key=["count"],
)(copy_kernel)


half_masked_kernel = triton.autotune(
    configs=[triton.Config({"block": 64, "masked": masked}) for masked in (1, 0)],
    key=["count"],
)(copy_kernel)


@triton.jit
def before_kernel(x, index, y, count, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    at = tl.load(index + i, i < count, 1)
    tl.store(y + i, tl.load(x + at - 1, i < count), i < count)


@triton.jit
def biased_kernel(x, bias, count, y, block: tl.constexpr):
    i = tl.arange(0, block)
    value = tl.load(x + i, i < count)
    if bias is not None:
        value += tl.load(bias + i, i < count)
    tl.store(y + i, value, i < count)


@triton.jit
def rows_kernel(x, y, z, rows, columns, block: tl.constexpr):
    i = tl.arange(0, block)
    row = tl.program_id(0)
    value = tl.load(x + row * columns + i, i < columns) * tl.load(y + row)
    tl.store(z + row * columns + i, value / rows, i < columns)


@triton.jit
def below_kernel(x, y, count, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(x + i, i < count, 0.0)
    tl.device_assert(value < 3.0, "too large")
    tl.store(y + i, value, i < count)


@triton.jit
def assembly_kernel(x, y, count, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(x + i, i < count)
    value = tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [value], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(y + i, value, i < count)


def _copied(x: Tensor, masked: int) -> Tensor:
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 64),)
    wrap_triton(copy_kernel)[grid](x, y, x.numel(), block=64, masked=masked)
    return y


@triton_op("planted_cuda::copy_masked", mutates_args={})
def copy_masked(x: Tensor) -> Tensor:
    return _copied(x, 1)


@triton_op("planted_cuda::copy_unmasked", mutates_args={})
def copy_unmasked(x: Tensor) -> Tensor:
    return _copied(x, 0)


@triton_op("planted_cuda::copy_tuned", mutates_args={})
def copy_tuned(x: Tensor) -> Tensor:
    y = torch.empty_like(x)

    def grid(meta: dict[str, int]) -> tuple[int]:
        return (triton.cdiv(x.numel(), meta["block"]),)

    wrap_triton(tuned_kernel)[grid](x, y, x.numel(), masked=1)
    return y


@triton_op("planted_cuda::copy_half_masked", mutates_args={})
def copy_half_masked(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    wrap_triton(half_masked_kernel)[(2,)](x, y, x.numel())
    return y


@triton_op("planted_cuda::before", mutates_args={})
def before(x: Tensor, index: Tensor) -> Tensor:
    y = torch.empty(index.shape, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(index.numel(), 64),)
    wrap_triton(before_kernel)[grid](x, index, y, index.numel(), block=64)
    return y


@triton_op("planted_cuda::without_bias", mutates_args={})
def without_bias(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    wrap_triton(biased_kernel)[(1,)](x, None, x.numel(), y, block=64)
    return y


@triton_op("planted_cuda::scale_rows", mutates_args={})
def scale_rows(x: Tensor, y: Tensor) -> Tensor:
    z = torch.empty_like(x)
    wrap_triton(rows_kernel)[(x.shape[0],)](x, y, z, *x.shape, block=64)
    return z


@triton_op("planted_cuda::below", mutates_args={})
def below(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    wrap_triton(below_kernel)[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), block=64)
    return y


@triton_op("planted_cuda::assembly", mutates_args={})
def assembly(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    wrap_triton(assembly_kernel)[(1,)](x, y, x.numel(), block=128)
    return y


@torch.library.custom_op("planted_cuda::on_gpu", mutates_args=(), device_types="cuda")
def on_gpu(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    with torch.cuda.device(x.device):
        programs = min(2, torch.cuda.get_device_properties(0).multi_processor_count)
        copy_kernel[(programs,)](x, y, x.numel(), block=64, masked=False)
    return y


@on_gpu.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op(
    "planted_cuda::on_device", mutates_args=(), device_types="cuda"
)
def on_device(x: Tensor) -> Tensor:
    with torch.cuda.stream(torch.cuda.Stream()):
        return x.clone()


@on_device.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("planted_cuda::lies", mutates_args=())
def lies(x: Tensor) -> Tensor:
    return x[:-1].clone()


@lies.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty(x.shape)  # no device, and a row too many


@torch.library.custom_op("planted_cuda::rounded", mutates_args=())
def rounded(x: Tensor) -> Tensor:
    return x.half()


@rounded.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)  # the fake kernel has another dtype


@torch.library.custom_op("planted_cuda::shifted", mutates_args=())
def shifted(x: Tensor) -> Tensor:
    base = x.new_empty(x.numel() + 1)
    base[1:] = x.flatten()
    return base[1:].view(x.shape)


@shifted.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _chosen(x: Tensor, i: Tensor) -> Tensor:
    return x[i] + 1


PLANTED: dict[str, Callable[[], Case]] = {
    "assembly": lambda: of(lambda x: assembly(x) + 1, torch.randn(100)),
    "fourth_call": lambda: Case(Steps(), (torch.randn(4, 7),)),
    "makes_nan": lambda: Case(
        Calls(lambda self, x: x.log().relu() + 1),
        (torch.full((9,), -1.0),),
        options={"nan_asserts": True},
    ),
    "makes_infinity": lambda: Case(
        Calls(lambda self, x: x.log().abs() + 1),
        (torch.zeros(9),),
        options={"nan_asserts": True},
    ),
    "too_many_rows": lambda: Case(
        Calls(lambda self, x: x + 1),
        (torch.randn(5, 7),),
        dynamic=(({0: Dim("rows", min=2, max=8)},),),
        run=(torch.randn(9, 7),),
    ),
    "other_dtype": lambda: Case(
        Calls(lambda self, x, y: x + y),
        (torch.randn(5, 7), torch.randn(7)),
        run=(torch.randn(5, 7), torch.randn(7, dtype=torch.float64)),
    ),
    "beside_assembly": lambda: Case(
        Calls(lambda self, x, w, i: (assembly(x) + 1, _chosen(w, i))),
        (torch.randn(100), torch.randn(10, 3), torch.tensor([1, 2])),
        run=(torch.randn(100), torch.randn(10, 3), torch.tensor([1, 12])),
    ),
    "no_cuda_kernel": lambda: of(
        lambda x: torch.histogram(x, 3).hist + 1, torch.randn(100)
    ),
    "needs_the_cpu": lambda: of(
        lambda x, y: torch.tensor_split(x, y)[0] + 1, torch.ones(2), torch.tensor([1])
    ),
    "needs_a_driver": lambda: of(
        lambda x: torch.ops.aten._batch_norm_with_update_functional(
            x, *(x[0, :, 0].clone() for _ in range(4)), 1, 1
        )[3],
        torch.ones(2, 3, 2),
    ),
    "cuda_operator": lambda: of(lambda x: on_gpu(x) + 1, torch.randn(100)),
    "no_cpu_twin": lambda: of(lambda x: on_device(x) + 1, torch.randn(100)),
    "large": lambda: of(lambda x: x + 1, torch.randn(12_000_000)),
    "large_index": lambda: of(
        lambda x: (x * 2).gather(1, x.argsort(1)[:, :2]) + 1, torch.randn(20_000, 8)
    ),
    "after_large": lambda: Case(
        Calls(lambda self, x, w, i: (x + w[0], _chosen(w.view(4, 3), i))),
        (torch.randn(12_000_000), torch.randn(12), torch.tensor([1, 2])),
        run=(torch.randn(12_000_000), torch.randn(12), torch.tensor([1, 5])),
    ),
    "other_strides": lambda: Case(
        Calls(lambda self, x: x + 1), (torch.randn(8, 8),), run=(torch.randn(8, 8).T,)
    ),
    "second_with_other_strides": lambda: Case(
        Calls(lambda self, x, y: x + y),
        (torch.randn(8, 8), torch.randn(8, 8)),
        run=(torch.randn(8, 8), torch.randn(8, 8).T),
    ),
    "bad_index": lambda: Case(
        Calls(lambda self, *xs: _chosen(*xs)),
        (torch.randn(10, 3), torch.tensor([1, 2])),
        run=(torch.randn(10, 3), torch.tensor([1, 12])),
    ),
    "lying_operator": lambda: of(lambda x: lies(x) * 2, torch.randn(33, 32)),
    "lying_dtype": lambda: of(lambda x: rounded(x) * 2, torch.randn(33, 32)),
    "masked": lambda: of(lambda x: copy_masked(x.relu()) * 2, torch.randn(100)),
    "no_bias": lambda: of(lambda x: without_bias(x.relu()) * 2, torch.randn(50)),
    "one_row": lambda: of(lambda x: scale_rows(x.relu(), x[:, 0]), torch.randn(1, 50)),
    "unmasked": lambda: of(lambda x: copy_unmasked(x.relu()) * 2, torch.randn(100)),
    "autotuned": lambda: of(lambda x: copy_tuned(x) * 2, torch.randn(100)),
    "short_for_a_template": lambda: Case(
        Calls(lambda self, x, w: lies(x) @ w),
        (torch.randn(64, 64), torch.randn(64, 32)),
        options=TIMED,
    ),
    "half_masked": lambda: of(lambda x: copy_half_masked(x) * 2, torch.randn(100)),
    "assertion": lambda: of(lambda x: below(x) + 1, torch.full((70,), 3.5)),
    "misaligned": lambda: of(lambda x: shifted(x).relu(), torch.randn(32, 32)),
    "hinted": lambda: of(
        lambda x, i: before(x, i) * 2, torch.randn(10), torch.tensor([1, 10, 3])
    ),
    "wrong_in_eager": lambda: of(
        lambda x, i: before(x, i) * 2, torch.randn(10), torch.tensor([1, 0, 3])
    ),
}

CASES = {**HEALTHY, **PLANTED}
