"""Read the messages of the GPU's driver while a child runs, from the kernel's log.

An Xid message distinguishes a fault of the program from a fault of the machine, which
CUDA's own messages do not. Reading the log needs privileges that a container seldom
has; without them, the result is empty.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

KERNEL_LOG = Path("/dev/kmsg")
_DRIVER = Path("/dev/nvidiactl")
_RECORD = re.compile(r"^\d+,\d+,\d+,[^;\n]*;([^\n]*NVRM: Xid [^\n]*)", re.MULTILINE)
"""The format in ``Documentation/ABI/testing/dev-kmsg`` of the kernel."""
_MOST = 1000
"""The number of records to read, because other drivers may flood the log."""


class DriverLog:
    """Reads the records that are written to the log after this object was created."""

    def __init__(self, source: int | None) -> None:
        self._source = source

    def read_failures(self) -> str:
        """Return the driver's failure messages since the last call, one a line."""
        return "".join(f"{line}\n" for line in _RECORD.findall(self._read()))

    def _read(self) -> str:
        if self._source is None:
            return ""
        records = []
        for _ in range(_MOST):
            try:
                data = os.read(self._source, 8192)
            except BrokenPipeError:  # overwritten before it was read
                continue
            except OSError:  # there are no more records
                break
            if not data:
                break
            records.append(data.decode(errors="replace"))
        return "".join(records)


@contextlib.contextmanager
def driver_log(path: Path = KERNEL_LOG, driver: Path = _DRIVER) -> Iterator[DriverLog]:
    """Open the kernel's log at its end; without a GPU or permission, read nothing."""
    source = None
    with contextlib.suppress(OSError):
        if driver.exists():
            source = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(source, 0, os.SEEK_END)
    try:
        yield DriverLog(source)
    finally:
        if source is not None:
            os.close(source)
