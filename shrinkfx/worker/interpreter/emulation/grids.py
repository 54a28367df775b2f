"""Choose the programs of a grid to run: all of them, or a sample of a large grid."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from random import Random

MAX_PROGRAMS = 10_000
"""The largest grid that is run in full; a program takes 0.2 to 3 ms."""

_EDGE = 32
_RANDOM = 256
_SEED = 0
_WRAPS = (1 << 31, 1 << 32)

Place = tuple[int, int, int]


def choose_programs(grid: Place, blocks: Iterable[int]) -> tuple[Iterator[Place], str]:
    """Return the programs to run, and a description of the sample.

    Args:
        blocks: block sizes that a program may step by. The sample includes the programs
            where such steps reach 2^31 and 2^32, because a 32-bit index wraps there.

    Returns:
        The positions in the grid, and a text that is '' if all programs run.
    """
    total = grid[0] * grid[1] * grid[2]
    if total <= MAX_PROGRAMS:
        return list_all_programs(grid), ""
    chosen = _sample_programs(grid, set(blocks))
    return iter(chosen), f"{len(chosen)} of {total} programs"


def list_all_programs(grid: Place) -> Iterator[Place]:
    """Return the positions of all programs."""
    return itertools.product(range(grid[0]), range(grid[1]), range(grid[2]))


def _sample_programs(grid: Place, blocks: set[int]) -> list[Place]:
    """Sample positions: both ends of each axis, the last one, and random ones."""
    axes = [sorted(_sample_axis(n, blocks)) for n in grid]
    corners = {
        tuple(axis[i] if k == along else 0 for k in range(3))
        for along, axis in enumerate(axes)
        for i in range(len(axis))
    }
    last = (grid[0] - 1, grid[1] - 1, grid[2] - 1)
    random = Random(_SEED)
    anywhere = {
        (
            random.randrange(grid[0]),
            random.randrange(grid[1]),
            random.randrange(grid[2]),
        )
        for _ in range(_RANDOM)
    }
    return sorted({(x, y, z) for x, y, z in corners} | {last} | anywhere)


def _sample_axis(count: int, blocks: set[int]) -> set[int]:
    """Return an axis's first and last indices, and those where a 32-bit index wraps."""
    indices = {*range(min(count, _EDGE)), *range(max(0, count - _EDGE), count)}
    for limit, block in itertools.product(_WRAPS, blocks):
        at = limit // block
        indices |= {i for i in (at - 1, at, at + 1) if 0 <= i < count}
    return indices
