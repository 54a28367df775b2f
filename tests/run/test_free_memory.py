"""How much memory a check may take, on machines that are only told of."""

from __future__ import annotations

from pathlib import Path

import pytest

from shrinkfx.system.host_memory import estimate_available_bytes

MIB = 1 << 20
GIB = 1 << 30


def machine(root: Path, cgroup: str = "") -> Path:
    """Tell of a machine with 8 GiB free."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(
        f"MemTotal: {16 << 20} kB\nMemAvailable: {8 << 20} kB\n"
    )
    (root / "proc/self/cgroup").write_text(cgroup)
    return root


def group(folder: Path, names: tuple[str, str, str], *values: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    limit, used, cache = names
    (folder / limit).write_text(f"{values[0]}\n")
    (folder / used).write_text(f"{values[1]}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{cache} {values[2]}\n")


V2 = ("memory.max", "memory.current", "inactive_file")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def test_free_memory_without_cgroups_is_the_available_memory(tmp_path: Path) -> None:
    assert estimate_available_bytes(machine(tmp_path)) == 8 * GIB
    assert estimate_available_bytes() > 0


@pytest.mark.parametrize(
    ("limit", "left"), [("max", 8 * GIB), (2 * GIB, 2 * GIB - 400 * MIB)]
)
def test_cgroup_limit_minus_unreclaimable_usage_bounds_free_memory(
    tmp_path: Path, limit: object, left: int
) -> None:
    machine(tmp_path, "0::/user/run\n")
    folder = tmp_path / "sys/fs/cgroup/user/run"
    group(folder, V2, limit, 500 * MIB, 100 * MIB)
    assert estimate_available_bytes(tmp_path) == left


def test_tightest_limit_of_nested_cgroups_applies(tmp_path: Path) -> None:
    machine(tmp_path, "0::/user/run\n")
    base = tmp_path / "sys/fs/cgroup"
    group(base / "user/run", V2, 4 * GIB, 0, 0)
    group(base / "user", V2, 1 * GIB, 0, 0)
    assert estimate_available_bytes(tmp_path) == 1 * GIB


def test_limit_at_the_cgroup_root_applies_in_a_container(tmp_path: Path) -> None:
    machine(tmp_path, "0::/as/seen/from/outside\n")
    group(tmp_path / "sys/fs/cgroup", V2, 3 * GIB, 1 * GIB, 0)
    assert estimate_available_bytes(tmp_path) == 2 * GIB


def test_limit_of_cgroups_v1_applies(tmp_path: Path) -> None:
    machine(tmp_path, "5:cpu:/a\n4:memory,hugetlb:/docker/b\n")
    group(tmp_path / "sys/fs/cgroup/memory/docker/b", V1, GIB, GIB, 64 * MIB)
    assert estimate_available_bytes(tmp_path) == 64 * MIB
