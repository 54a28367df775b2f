"""What the GPU's driver says while a child runs, where the kernel's log can be read.

An Xid message tells what CUDA's own words leave open: a fault of the program's from one
of the machine's. Reading needs privileges that a container seldom has; without them
there is nothing to read.
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
"""As ``Documentation/ABI/testing/dev-kmsg`` of the kernel has it."""
_MOST = 1000
"""Records that are read; other drivers may flood the log."""


class DriverLog:
    """Reads what is written from its creation on."""

    def __init__(self, source: int | None) -> None:
        self._source = source

    def said(self) -> str:
        """Take what the driver has written of failures, a line each."""
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
            except OSError:  # there is no more
                break
            if not data:
                break
            records.append(data.decode(errors="replace"))
        return "".join(records)


@contextlib.contextmanager
def driver_log(path: Path = KERNEL_LOG, driver: Path = _DRIVER) -> Iterator[DriverLog]:
    """Read the kernel's log from here on; nothing where no GPU or no right to is."""
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
