"""Self-test of the checks: a kernel with known faults, each of which they must find."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from shrinkfx.worker.interpreter.findings import Fault, Probe, Report, Unsupported
from shrinkfx.worker.interpreter.memory_checks import CHECKER, allocate

_COUNT, _BLOCK = 10, 8


@triton.jit  # type: ignore[untyped-decorator]
def _double(x: Any, y: Any, count: Any, block: tl.constexpr) -> Any:
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.device_assert(i < 2 * block, "far out")
    mask = (i < count) and not i < 0
    tl.store(y + i, 2 * tl.load(x + i, mask), mask)


def run_self_test() -> None:
    """Run one kernel correctly, with a bound that is too high, and on too large a grid.

    Raises:
        Unsupported: the checks missed a fault, or found one that does not exist.
    """
    seen = [_found(2, _COUNT), _found(2, _COUNT + 1), _found(3, _COUNT)]
    expected = [[], [(Fault.LOAD, 1), (Fault.STORE, 1)], [(Fault.ASSERT, _BLOCK)]]
    if seen != expected:
        raise Unsupported(f"the self-test has seen {seen} and not {expected}")


def _found(programs: int, count: int) -> list[tuple[Fault, int]]:
    """Run the kernel under the checks, and return the faults with their lane counts."""
    x = torch.arange(_COUNT, dtype=torch.float32)
    y = allocate((_COUNT,), (1,), torch.float32)
    CHECKER.start(Probe.REAL)
    try:
        _double[(programs,)](x, y, count, _BLOCK)
    except Report as report:
        return [(f.fault, f.lanes) for f in report.findings]
    finally:
        CHECKER.stop()
    if not torch.equal(y, 2 * x):
        raise Unsupported("the self-test's kernel has computed something else")
    return []
