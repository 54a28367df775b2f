"""Which programs of a grid are run."""

from __future__ import annotations

from shrinkfx.worker.interpreter.launch import MAX_PROGRAMS, choose_programs


def test_small_grid_is_run_completely() -> None:
    chosen, some = choose_programs((3, 2, 1), [64])
    assert list(chosen) == [(x, y, 0) for x in range(3) for y in range(2)]
    assert some == ""


def test_large_grid_sample_includes_ends_and_index_wraps() -> None:
    count = (1 << 33) // 1024
    chosen, some = choose_programs((count, 1, 1), [1024])
    found = {x for x, _, _ in chosen}
    wraps = [(1 << 31) // 1024, (1 << 32) // 1024]
    assert {0, count - 1, *wraps, *(w - 1 for w in wraps)} <= found
    assert some == f"{len(found)} of {count} programs"
    assert len(found) < MAX_PROGRAMS


def test_large_grid_sample_is_deterministic_and_covers_each_axis() -> None:
    grid = (500, 300, 2)
    chosen = list(choose_programs(grid, [])[0])
    assert chosen == list(choose_programs(grid, [])[0])
    assert {(499, 0, 0), (0, 299, 0), (0, 0, 1), (499, 299, 1)} <= set(chosen)
    assert all(place < grid for place in chosen)
