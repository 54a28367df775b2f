"""Convert errors of a full, broken or removed disk to StorageError."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from shrinkfx.check.client.restarting import OUT_REMOVED
from shrinkfx.check.client.server import REMOVED
from shrinkfx.errors import StorageError
from shrinkfx.system import scratch

_STORAGE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG)


@contextlib.contextmanager
def raise_storage_errors(out: Path) -> Iterator[None]:
    """Raise StorageError if a file cannot be written, or its folder was removed.

    Args:
        out: the folder of the run, which the error names if no file is known.

    Raises:
        StorageError: the message says what to do.
    """
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOENT and scratch.is_root_removed():
            raise StorageError(str(scratch.root()), *REMOVED) from error
        if error.errno == errno.ENOENT and not out.is_dir():
            raise StorageError(str(out), *OUT_REMOVED) from error
        if error.errno not in _STORAGE:
            raise
        where = str(error.filename or out)
        raise StorageError(
            where, error.strerror or "", "free some disk space"
        ) from error
