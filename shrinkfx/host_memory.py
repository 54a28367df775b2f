"""How much memory there is: of the machine, and of what this process may have."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from shrinkfx.cgroups import cgroups

_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_bytes(root: Path = Path("/")) -> int:
    """Estimate what is free now, within the limits of this process's cgroups.

    Args:
        root: where ``proc`` and ``sys`` are.
    """
    left = [_of_machine(root)]
    for folder, version in cgroups(root, "memory"):
        names = _V2 if version == 2 else _V1
        with suppress(OSError, ValueError, KeyError):  # "max" is no limit
            left.append(_of_cgroup(folder, *names))
    return max(0, min(left))


def _of_machine(root: Path) -> int:
    fields = _fields(root / "proc/meminfo", ":")
    return int(fields["MemAvailable"].split()[0]) * 1024


def _of_cgroup(folder: Path, limit: str, used: str, reclaimable: str) -> int:
    """Count what files take, and nobody has looked at for a while, as free."""
    cache = int(_fields(folder / "memory.stat", " ")[reclaimable])
    taken = int((folder / used).read_text()) - cache
    return int((folder / limit).read_text()) - taken


def _fields(path: Path, separator: str) -> dict[str, str]:
    lines = path.read_text(encoding="ascii").splitlines()
    return {k: v for k, _, v in (line.partition(separator) for line in lines)}
