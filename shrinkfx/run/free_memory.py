"""How much memory there is: of the machine, and of what this process may have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_bytes(root: Path = Path("/")) -> int:
    """Estimate what is free now, within the limits of this process's cgroups.

    Args:
        root: where ``proc`` and ``sys`` are.
    """
    left = [_of_machine(root)]
    for folder, names in _cgroups(root):
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


def _cgroups(root: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """Yield each cgroup that limits this process, from its own up, of both versions."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                base, names = root / "sys/fs/cgroup", _V2
            elif "memory" in controllers.split(","):
                base, names = root / "sys/fs/cgroup/memory", _V1
            else:
                continue
            # In a namespace the path is as seen from outside, and base is what counts.
            parts = Path(path.strip("/")).parts
            for end in range(len(parts), -1, -1):
                yield base.joinpath(*parts[:end]), names


def _fields(path: Path, separator: str) -> dict[str, str]:
    lines = path.read_text(encoding="ascii").splitlines()
    return {k: v for k, _, v in (line.partition(separator) for line in lines)}
