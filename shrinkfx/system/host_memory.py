"""The memory that is available to this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def estimate_available_bytes(root: Path = Path("/")) -> int:
    """Estimate the available memory in bytes, within the cgroup limits of this process.

    Args:
        root: folder that contains ``proc`` and ``sys``.
    """
    limits = [_read_machine_memory(root)]
    for folder, version in list_cgroups(root, "memory"):
        names = _V2 if version == 2 else _V1
        with suppress(OSError, ValueError, KeyError):  # "max" is no limit
            limits.append(_read_cgroup_memory(folder, *names))
    return max(0, min(limits))


def _read_machine_memory(root: Path) -> int:
    fields = _read_fields(root / "proc/meminfo", ":")
    return int(fields["MemAvailable"].split()[0]) * 1024


def _read_cgroup_memory(folder: Path, limit: str, used: str, reclaimable: str) -> int:
    """Return the memory in bytes that a cgroup may still allocate.

    Inactive pages of the file cache count as available, because the kernel can reclaim
    them.
    """
    cache = int(_read_fields(folder / "memory.stat", " ")[reclaimable])
    taken = int((folder / used).read_text()) - cache
    return int((folder / limit).read_text()) - taken


def _read_fields(path: Path, separator: str) -> dict[str, str]:
    lines = path.read_text(encoding="ascii").splitlines()
    return {k: v for k, _, v in (line.partition(separator) for line in lines)}


def list_cgroups(root: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """Yield the folder and the version (1 or 2) of each cgroup of this process.

    The cgroup of the process comes first, then its ancestors.

    Args:
        root: folder that contains ``proc`` and ``sys``.
        controller: the limited resource: ``memory`` or ``cpu``.
    """
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                base, version = root / "sys/fs/cgroup", 2
            elif controller in controllers.split(","):
                base, version = root / "sys/fs/cgroup" / controller, 1
            else:
                continue
            # In a cgroup namespace, the path may be that outside the namespace; then
            # only the root of the hierarchy exists here, which is the last folder.
            parts = Path(path.strip("/")).parts
            for end in range(len(parts), -1, -1):
                yield base.joinpath(*parts[:end]), version
