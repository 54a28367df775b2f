"""The cgroups that limit the resources of this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


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
