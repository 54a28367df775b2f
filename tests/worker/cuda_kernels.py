"""Kernels that are launched by hand, where interpretation is switched on."""

from __future__ import annotations

import mmap
import resource
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
import triton
import triton.language as tl

from shrinkfx.worker.interpreter.findings import Probe, Report
from shrinkfx.worker.interpreter.launch import interpret_kernels
from shrinkfx.worker.interpreter.memory_checks import (
    CHECKER,
    allocate,
    map_sparse_vector,
)

FAR = (1 << 31) + 12_345
BLOCK = 1024


HALF = tl.constexpr(0.5)


@triton.jit
def halved(x, y, block: tl.constexpr):
    i = tl.arange(0, block)
    value = tl.load(x + i)
    tl.store(y + i, tl.where(value > HALF, HALF * value, 1 - HALF))


@triton.jit
def narrow(x, y, count, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y + i, tl.load(x + i, i < count) + 1, i < count)


@triton.jit
def wide(x, y, count, block: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    tl.store(y + i, tl.load(x + i, i < count) + 1, i < count)


@triton.jit
def by_blocks(x, y, rows, columns, height: tl.constexpr, checked: tl.constexpr):
    source = tl.make_block_ptr(
        x, (rows, columns), (columns, 1), (0, 0), (height, 16), (1, 0)
    )
    value = tl.load(source, boundary_check=(0, 1) if checked else ())
    tl.store(y + tl.arange(0, height), tl.sum(value, 1))


@triton.jit
def by_descriptor(x, y, rows, columns, height: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [height, 16])
    tl.store(y + tl.arange(0, height), tl.sum(source.load([0, 0]), 1))


@triton.jit
def described(source, y, height: tl.constexpr):
    tl.store(y + tl.arange(0, height), tl.sum(source.load([0, 0]), 1))


@triton.jit
def counted(x, y, block: tl.constexpr):
    at = tl.load(x + tl.arange(0, block))
    tl.atomic_add(y + at, 1)


@triton.jit
def chosen(x, y, out, block: tl.constexpr):
    i = tl.arange(0, block)
    tl.store(out + i, tl.load(tl.where(i < 4, x + i, y + i)))


@triton.jit
def by_logic(x, y, count, block: tl.constexpr, wrong: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    mask = (i < count) and not i < 0
    if wrong and block > 1:
        mask = not (i > count or i < 0)
    tl.store(y + i, tl.load(x + i, mask), i < count)


@triton.jit
def by_chain(x, y, count, block: tl.constexpr):
    i = tl.arange(0, block) - 4
    mask = 0 <= i < count
    tl.store(y + i, tl.load(x + i, mask), mask)


@triton.jit
def _larger(a, b):
    return tl.where(a > b, a, b)


@triton.jit
def reduced(x, y, z, block: tl.constexpr):
    value = tl.load(x + tl.arange(0, block))
    tl.store(y, tl.reduce(value, 0, _larger))
    tl.store(z + tl.arange(0, block), tl.associative_scan(value, 0, _larger))


def start() -> None:
    interpret_kernels()
    CHECKER.start(Probe.REAL)


def _launch(kernel: Any, grid: tuple[int, ...], *args: Any, **more: Any) -> Any:
    try:
        kernel[grid](*args, **more)
    except Report as report:
        return [asdict(f) for f in report.findings]
    return []


def _far(kernel: Any) -> Any:
    x, y = map_sparse_vector(FAR, torch.int8), map_sparse_vector(FAR, torch.int8)
    found = _launch(kernel, (triton.cdiv(FAR, BLOCK),), x, y, FAR, block=BLOCK)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    assert peak < FAR, peak
    assert CHECKER.unseen
    return found


def does_not_wrap() -> Any:
    found = _far(wide)
    assert not found, found
    return []


def _blocks(checked: int) -> Any:
    x, y = torch.ones(5, 10), allocate((8,), (1,), torch.float32)
    found = _launch(by_blocks, (1,), x, y, 5, 10, height=8, checked=checked)
    assert found or CHECKER.unseen or y.tolist() == [10.0] * 5 + [0.0] * 3
    return found


SUMS = [12.0] * 5 + [0.0] * 3


def _side_by_side() -> tuple[torch.Tensor, torch.Tensor]:
    """Make two tensors that are adjacent in memory: an overrun of x hits y."""
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    x = torch.frombuffer(memory, dtype=torch.float32, count=60).view(5, 12).fill_(1.0)
    y = torch.frombuffer(memory, dtype=torch.float32, count=60, offset=4 * 60)
    return x, y


def _described(rows: int) -> Any:
    x, y = _side_by_side()
    found = _launch(by_descriptor, (1,), x, y, rows, 12, height=8)
    assert found or y[:8].tolist() == SUMS
    return found


def _described_outside(rows: int) -> Any:
    from triton.tools.tensor_descriptor import TensorDescriptor

    x, y = _side_by_side()
    source = TensorDescriptor(x, [rows, 12], [12, 1], [8, 16])
    found = _launch(described, (1,), source, y, height=8)
    assert found or y[:8].tolist() == SUMS
    return found


def _by_logic(wrong: int) -> Any:
    x, y = torch.arange(1.0, 11.0), allocate((10,), (1,), torch.float32)
    found = _launch(by_logic, (2,), x, y, 10, block=8, wrong=wrong)
    assert found or torch.equal(x, y)
    return found


def chain() -> Any:
    if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9):
        return []  # no kernel with a chain compiles
    x, y = torch.arange(1.0, 11.0), allocate((10,), (1,), torch.float32)
    found = _launch(by_chain, (1,), x, y, 10, block=16)
    assert found or torch.equal(x, y)
    return found


def atomics() -> Any:
    y = torch.zeros(3, dtype=torch.int32)
    found = _launch(counted, (1,), torch.tensor([0, 2, 2, 3]), y, block=4)
    assert y.tolist() == [1, 0, 2]
    return found


def either() -> Any:
    x, y, out = torch.arange(4.0), torch.arange(8.0), torch.empty(8)
    found = _launch(chosen, (1,), x, y, out, block=8)
    assert torch.equal(out, y)
    return found


def own_reduction() -> Any:
    x = torch.randn(64)
    y, z = torch.empty(1), torch.empty(64)
    found = _launch(reduced, (1,), x, y, z, block=64)
    assert y.item() == x.max().item()
    assert torch.equal(z, x.cummax(0).values)
    return found


def global_constant() -> Any:
    x, y = torch.tensor([0.25, 1.0, 2.0, 4.0]), torch.empty(4)
    found = _launch(halved, (1,), x, y, block=4)
    assert y.tolist() == [0.5, 0.5, 1.0, 2.0]
    return found


def quiet() -> Any:
    """Nothing is reported of eager, and nothing is destroyed by it."""
    CHECKER.stop()
    x, y = torch.ones(10), torch.zeros(10)
    found = _launch(narrow, (2,), x, y, 4000, block=8)
    assert torch.equal(y, x + 1)
    return found


CASES: dict[str, Callable[[], Any]] = {
    "wraps": lambda: _far(narrow),
    "does_not_wrap": does_not_wrap,
    "block_pointer": lambda: _blocks(1),
    "block_pointer_unchecked": lambda: _blocks(0),
    "descriptor": lambda: _described(5),
    "descriptor_too_long": lambda: _described(6),
    "descriptor_of_host": lambda: _described_outside(5),
    "descriptor_of_host_too_long": lambda: _described_outside(6),
    "logic": lambda: _by_logic(0),
    "wrong_logic": lambda: _by_logic(1),
    **{each.__name__: each for each in (chain, atomics, either, own_reduction)},
    **{each.__name__: each for each in (global_constant, quiet)},
}
