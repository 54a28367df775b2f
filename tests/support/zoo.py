"""Small programs that hold what real exported programs hold."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim, ExportedProgram

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.requests import Setup
from shrinkfx.worker.eager.intermediates import SEED, EagerValues, RunRecord, run_eager
from shrinkfx.worker.graph.describe import describe
from shrinkfx.worker.graph.rebuild import RebuiltCandidate, rebuild
from shrinkfx.worker.loading.load import load
from shrinkfx.worker.model import Inputs, Program
from shrinkfx.worker.printing.module import export_source

Made = tuple[nn.Module, tuple[Any, ...], dict[str, Any], Any]


class Weights(nn.Module):
    """A parameter, a buffer, a buffer that is not saved, and a plain constant."""

    scale: Tensor
    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("scale", torch.linspace(1, 2, 4))
        self.register_buffer("shift", torch.ones(4), persistent=False)
        self.table = torch.arange(8.0).reshape(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.linear(x)) * self.scale + self.shift
        return torch.tanh(y) + self.table[0]


def weights() -> Made:
    torch.manual_seed(0)
    return Weights().eval(), (torch.randn(3, 4),), {}, None


class Nested(nn.Module):
    """Nested inputs, keyword arguments, and nested outputs."""

    def forward(
        self, batch: dict[str, Any], *, gain: Tensor, flag: bool = True
    ) -> dict[str, Any]:
        left, right = batch["pair"]
        total = torch.sin(left) + torch.cos(right)
        gated = total * gain if flag else total
        return {"sum": gated, "parts": [left.exp(), (right - 1).abs()]}


def nested() -> Made:
    torch.manual_seed(0)
    batch = {"pair": (torch.randn(2, 3), torch.randn(2, 3))}
    return Nested(), (batch,), {"gain": torch.rand(3), "flag": True}, None


class Dynamic(nn.Module):
    """A dynamic batch whose size is computed with, and shared by two inputs."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([x, y])
        flat = both.reshape(x.shape[0] * 2, -1).softmax(-1)
        tail = flat[: x.shape[0]] + x
        mean = flat.sum(0) / x.shape[0]
        return tail, mean


def dynamic() -> Made:
    torch.manual_seed(0)
    batch = Dim("batch", min=2, max=64)
    shapes = ({0: batch}, {0: batch})
    return Dynamic(), (torch.randn(5, 4), torch.randn(5, 4)), {}, shapes


class Several(nn.Module):
    """Operators with several results, some of them unused, and views with gaps."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = torch.topk(x, 3)
        first, _, third = torch.split(x, 2, 1)
        every_other = x[:, ::2] * third.mean()
        return values + first.sum(), every_other.gather(1, indices % 3)


def several() -> Made:
    torch.manual_seed(0)
    return Several(), (torch.randn(4, 6),), {}, None


class Branches(nn.Module):
    """A higher-order operator between plain ones, and an empty tensor."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, [x.abs()])
        return torch.sigmoid(y) + x, x[:0] + 1


def branches() -> Made:
    torch.manual_seed(0)
    return Branches(), (torch.randn(3, 3),), {}, None


class InPlace(nn.Module):
    """In-place operators on views, and a buffer that counts calls."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        y = x.clone()
        y[0].mul_(3)
        y.relu_()
        return y + self.calls


def in_place() -> Made:
    torch.manual_seed(0)
    return InPlace(), (torch.randn(3, 2),), {}, None


class SizesAsInputs(nn.Module):
    """A dynamic integer argument, and a dim computed from another one."""

    def forward(self, x: Tensor, y: Tensor, k: int) -> tuple[Tensor, Tensor]:
        wide = x.sin().expand(k, *x.shape).cos() + torch.arange(3, device="cpu")
        return wide.sum(0), (y[1:] * 2).exp() + y[:-1]


def sizes_as_inputs() -> Made:
    torch.manual_seed(0)
    t = Dim("t", min=2, max=20)
    shapes = ({0: t}, {0: 2 * t + 1}, Dim.DYNAMIC)
    return SizesAsInputs(), (torch.randn(4, 3), torch.randn(9, 3), 5), {}, shapes


class DataDependent(nn.Module):
    """Sizes and numbers that are read off data."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        found = torch.nonzero(x > 0)
        picked = x[found[:, 0], found[:, 1]].sin()
        total = x.sum().item()
        return picked.cos() * 2, x.relu() + total


def data_dependent() -> Made:
    torch.manual_seed(0)
    return DataDependent(), (torch.randn(5, 4),), {}, None


class Kinds(nn.Module):
    """Integers, truth values, complex numbers; no dims, no elements; odd strides."""

    def forward(self, x: Tensor, y: Tensor, z: Tensor, ids: Tensor) -> tuple[Any, ...]:
        rows = torch.flip(ids, [0]).cummax(0).values
        turned = torch.roll(x.t(), 1, 0) + y.t()
        positive = torch.roll((x > 0).logical_not(), 1, 1).any(1)
        spread = torch.fft.fft(torch.roll(z, 1, 0)).abs()
        total = torch.cumsum(x[:0], 0).sum() + torch.std(y)
        picked = torch.index_select(x, 0, rows).gather(0, ids[:, None] % 2)
        return turned, positive, spread, total, picked, torch.bincount(ids, minlength=3)


def kinds() -> Made:
    torch.manual_seed(0)
    batch = Dim("batch", min=3, max=64)
    x, y = torch.randn(4, 3), torch.randn(3, 4).t()
    z = torch.randn(4, 3, dtype=torch.complex64)
    ids = torch.tensor([2, 0, 1, 1])
    return Kinds(), (x, y, z, ids), {}, ({0: batch}, {0: batch}, {0: batch}, None)


class ComputedDims(nn.Module):
    """A symbol that no input has as a dim of its own, and a write into a view."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.exp()
        y[0].mul_(2)
        square = y.diag().abs()
        flat = square.reshape(-1).cos()
        return square.expand(2, *square.shape).tanh(), flat * (x.shape[0] - 1)


def computed_dims() -> Made:
    torch.manual_seed(0)
    shapes = ({0: 2 * Dim("t", min=2, max=20) + 1},)
    return ComputedDims(), (torch.randn(9),), {}, shapes


class SizeArithmetic(nn.Module):
    """Numbers that are computed from sizes of inner values, not all whole."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.sin()
        more = torch.sym_max(y.shape[0], 3)
        return y.cos() / y.shape[0] ** 0.5, torch.zeros(more, 2) + y.mean()


def size_arithmetic() -> Made:
    torch.manual_seed(0)
    return SizeArithmetic(), (torch.randn(5, 2),), {}, ({0: Dim("t", max=40)},)


@torch.library.custom_op("zoo::write", mutates_args={"x"})
def write(x: Tensor, factor: float) -> None:
    """Return nothing and write into an argument, as kernels of libraries do."""
    x.mul_(factor)


write.register_fake(lambda x, factor: None)


class Writes(nn.Module):
    """An operator that returns nothing, and sizes that data decides around it."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.relu()
        torch.ops.zoo.write(y, 3.0)
        found = y[y > 1].sin()
        torch.ops.zoo.write(found, 0.5)
        return y.cos(), found + 1


def writes() -> Made:
    torch.manual_seed(0)
    return Writes(), (torch.randn(4, 3),), {}, None


class Wrapped(nn.Module):
    """Loops, and regions with other settings: all of them hold a graph."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        start = torch.zeros((), dtype=torch.int64), x

        def more(count: Tensor, v: Tensor) -> Tensor:
            return count < 3

        _, looped = while_loop(  # type: ignore[no-untyped-call]
            more, lambda count, v: (count + 1, v * y), start
        )
        return looped.sin(), y.float().exp()


def wrapped() -> Made:
    torch.manual_seed(0)
    return Wrapped(), (torch.rand(3, 3),), {}, None


class Fixing(nn.Module):
    """A program that loses a dynamic dim when its writes are taken out."""

    def forward(self, x: Tensor) -> Tensor:
        y = x.sin()
        y.unbind(0)[0].add_(1)
        return y.cos()


ZOO: dict[str, Callable[[], Made]] = {
    made.__name__: made
    for made in (
        *(weights, nested, dynamic, several, branches),
        *(in_place, data_dependent, sizes_as_inputs, kinds),
        *(computed_dims, size_arithmetic, writes, wrapped),
    )
}


def export(name: str) -> ExportedProgram:
    module, args, kwargs, shapes = ZOO[name]()
    with torch.no_grad():
        return torch.export.export(module, args, kwargs, dynamic_shapes=shapes)


Loaded = tuple[Program, Skeleton, EagerValues]


def load_program(exported: ExportedProgram, folder: Path) -> Loaded:
    """Save, load, describe and run a program, as the worker does."""
    torch.export.save(exported, folder / "model.pt2")
    program = load(Setup(str(folder), model=str(folder / "model.pt2")))
    return run_program(program, folder / "values")


def run_program(program: Program, folder: Path) -> Loaded:
    """Describe a program and keep its eager values in a folder."""
    values = EagerValues(folder, program)
    assert values.record(program) == RunRecord()
    return program, describe(program, ""), values


def temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="shrinkfx-test-"))
    atexit.register(shutil.rmtree, folder)
    return folder


@functools.cache
def loaded(name: str) -> Loaded:
    """Load a program of the zoo."""
    return load_program(export(name), temporary_folder())


@functools.cache
def as_exported(name: str) -> Loaded:
    """Load a program of the zoo with its in-place operators."""
    return run_program(loaded(name)[0].as_exported(), temporary_folder())


def eager(exported: ExportedProgram, inputs: Inputs) -> list[Any]:
    return run_eager(exported, inputs, seed=SEED)


def real(
    program: Program, candidate: Candidate, values: EagerValues
) -> RebuiltCandidate:
    """Rebuild as the worker does, exported again where that is needed."""
    built = rebuild(program, candidate, values)
    if not built.stale:
        return built
    return RebuiltCandidate(export_source(built)[0], built.example, built.failing)
