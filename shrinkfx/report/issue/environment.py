"""The output of ``torch.utils.collect_env``, without private data."""

from __future__ import annotations

import re
from collections.abc import Iterable

from shrinkfx.report.issue.plain import strip_paths

_OF_GPU = ("GPU ", "compute capability ", "driver ")
"""Prefixes of version entries that describe the GPU."""

_DROPPED = re.compile(r"^(Vulnerability |Collecting environment)")
"""CPU mitigations, which do not help a maintainer, and a progress line."""

_KERNEL = re.compile(
    r"^(Python platform: Linux-\d+(?:\.\d+)*)[^\n]*?(-(?:x86_64|aarch64))"
)
"""The suffix of a kernel release is dropped because its builder can choose any text."""


def environment_text(output: str, hosts: Iterable[str] = ()) -> str:
    """Remove private and useless lines from the output of ``collect_env``.

    Args:
        hosts: names of this machine.
    """
    rows = [row.rstrip() for row in output.splitlines() if not _DROPPED.match(row)]
    text = "\n".join(_KERNEL.sub(r"\1\2", row) for row in rows)
    return strip_paths(text, hosts).strip()


def with_gpu(text: str, versions: Iterable[str]) -> str:
    """Add the GPU on which the failure was seen, if any.

    Args:
        versions: software and hardware of the run, such as ``driver 580.95.05``.
    """
    gpus = [known for known in versions if known.startswith(_OF_GPU)]
    return f"{text}\nSeen on: {', '.join(gpus)}" if gpus else text
