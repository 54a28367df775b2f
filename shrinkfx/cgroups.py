"""The cgroups that limit this process: what is there of the machine is not all its."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def cgroups(root: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """Yield folder and version of each, from the process's own up, of both versions.

    Args:
        root: where ``proc`` and ``sys`` are.
        controller: what is limited: ``memory``, ``cpu``.
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
            # In a namespace the path is as seen from outside, and base is what counts.
            parts = Path(path.strip("/")).parts
            for end in range(len(parts), -1, -1):
                yield base.joinpath(*parts[:end]), version
