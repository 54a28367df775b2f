"""Check that the disk has enough free space before values or weights are written."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

import torch
from torch.export import ExportedProgram

from shrinkfx.errors import LoadError
from shrinkfx.protocol.choices import MANY_BYTES
from shrinkfx.worker.model import weights_of
from shrinkfx.worker.sizes.bindings import nbytes

_CHECK_BYTES = 64 << 20
"""The bytes that a check writes besides values and weights: 25 MB for 122 operators."""

_COPIES = 5
"""How many copies of the weights a package takes: an object file, the library, the
package, the unpacked package; and one in reserve."""


_allowed: tuple[Path, int] | None = None
_sharing = 1


def limit_folder_size(home: Path, most: int | None) -> None:
    """Limit the total size of the files in a folder; None means the free space."""
    global _allowed
    _allowed = (home, most) if most else None


def divide_free_space(processes: int) -> None:
    """Divide the free space by the number of server processes that share it."""
    global _sharing
    _sharing = processes


def _free(folder: Path) -> int:
    free = shutil.disk_usage(folder).free
    if _allowed is not None:
        home, most = _allowed
        free = min(free, most - _used_bytes(home))
    return max(0, free) // _sharing


def _used_bytes(home: Path) -> int:
    """Add up the disk blocks of all files below a folder, in bytes.

    Files of children may disappear during the count.
    """
    total = 0
    for place, _, names in os.walk(home):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
    return total


def require_space_for_values(
    exported: ExportedProgram, runs: int, folder: Path
) -> None:
    """Check that there is space for all values of a number of eager runs.

    Raises:
        LoadError: there is too little space; says how much is needed and what to do.
    """
    weights = weights_of(exported)
    values = [n.meta.get("val") for n in exported.graph.nodes if n.name not in weights]
    run_bytes = sum(
        nbytes(value) for value in values if isinstance(value, torch.Tensor)
    )
    needed, free = _needed(runs * run_bytes), _free(folder)
    if needed > free:
        times = f"of {runs} eager runs" if runs > 1 else "of an eager run"
        reason = (
            f"the values {times}, and what a check writes, take up to "
            f"{_gigabytes(needed)} of disk; {_gigabytes(free)} are free"
        )
        raise LoadError(str(folder), reason, _ADVICE)


def require_space_for_recording(exported: ExportedProgram, folder: Path) -> None:
    """Check that there is space to save the arguments and results of each kernel.

    A value, weights included, is saved where it is computed and at each use.

    Raises:
        LoadError: there is too little space.
    """
    values = [(n.meta.get("val"), 1 + len(n.users)) for n in exported.graph.nodes]
    total = sum(nbytes(v) * uses for v, uses in values if isinstance(v, torch.Tensor))
    needed, free = _needed(total), _free(folder)
    if needed > free:
        reason = (
            f"what each kernel is given and makes takes up to {_gigabytes(needed)} of "
            f"disk; {_gigabytes(free)} are free"
        )
        raise LoadError(str(folder), reason, _ADVICE)


_ADVICE = (
    "free some space, set TMPDIR to a folder on a disk that has more, "
    "or allow more with --max-disk GB"
)


def require_space_for_weights(total: int, folder: Path) -> None:
    """Check that there is space to compile that many bytes of weights into a package.

    Raises:
        OSError: there is too little space; the error is that of a full disk.
    """
    needed, free = _needed(_COPIES * total), _free(folder)
    if needed > free:
        message = (
            f"No space left on device: weights in a package take {_gigabytes(needed)} "
            f"of disk, and {_gigabytes(free)} are free"
        )
        raise OSError(errno.ENOSPC, message, str(folder))


def _needed(nbytes: int) -> int:
    return nbytes + _CHECK_BYTES if nbytes >= MANY_BYTES else 0  # few are not counted


def _gigabytes(number: int) -> str:
    return f"{number / 1e9:.1f} GB"
