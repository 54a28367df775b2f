"""Versions as ``torch.utils.collect_env`` gives them, made fit to be shared."""

from __future__ import annotations

import re
from collections.abc import Iterable

from shrinkfx.report.issue.plain import without_paths

_OF_GPU = ("GPU ", "compute capability ", "driver ")
"""How entries of a run's versions begin that are of its GPU."""

_DROPPED = re.compile(r"^(Vulnerability |Collecting environment)")
"""How well a machine is defended helps no maintainer."""

_KERNEL = re.compile(
    r"^(Python platform: Linux-\d+(?:\.\d+)*)[^\n]*?(-(?:x86_64|aarch64))"
)
"""What comes after a kernel's number, whoever has built it has made up."""


def environment_text(said: str, hosts: Iterable[str] = ()) -> str:
    """Clean what ``collect_env`` has printed.

    Args:
        hosts: names of this machine.
    """
    rows = [row.rstrip() for row in said.splitlines() if not _DROPPED.match(row)]
    text = "\n".join(_KERNEL.sub(r"\1\2", row) for row in rows)
    return without_paths(text, hosts).strip()


def with_gpu(text: str, versions: Iterable[str]) -> str:
    """Say which of the machine's GPUs the failure was seen on, if on one.

    Args:
        versions: of what it was seen with, such as ``driver 580.95.05``.
    """
    told = [known for known in versions if known.startswith(_OF_GPU)]
    return f"{text}\nSeen on: {', '.join(told)}" if told else text
