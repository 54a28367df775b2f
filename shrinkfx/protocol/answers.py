"""What a worker says: that it is ready, and how a child ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.record import Reported


@dataclass(frozen=True)
class Ending(Reported):
    """How a child ended, and what it said before.

    Attributes:
        how: ``exit``, ``signal``, ``timeout``, ``late`` (by the clock), ``memory`` or
            ``cancelled``; ``server`` where that has died and cannot tell; ``lost``
            where something else in it has waited for the child.
        code: the exit status or the signal's number.
        stage: the last stage that the child noted.
        answer: the child's own JSON object, empty if it came to none.
        log: the end of its stdout and stderr.
        runs: how often it came to running the program, the last time included.
        built: what the fast build has done: the ``step`` that it came to, and why it
            was a ``fallback`` to the stock one; empty where there was none.
        operator: the one that eager was at when it was described, or ''.
        waited_s: of its seconds, those in which it waited for a core or a disk.
        runnable: threads on the machine meanwhile, its own among them.
    """

    how: str
    code: int = 0
    stage: str = "start"
    answer: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0
    log: str = ""
    runs: int = 1
    built: Mapping[str, str] = field(default_factory=dict)
    operator: str = ""
    waited_s: float = 0.0
    runnable: int = 0


@dataclass(frozen=True)
class Ready(Reported):
    """The server's first answer: loaded, or why not.

    Attributes:
        error: '' or what went wrong, with the subject at fault.
        preload_files: the Python file behind each preload, '' where it is
            installed or a library.
        environment: variables that the device makes necessary.
        backend: the one chosen.
        for_cuda: the program is for CUDA, wherever it lies now.
        ignored_options: Inductor options that the back end sets otherwise itself.
        no_guard_pages: why there are none although they were asked for, or ''.
        beside: what the preloads have used that is not installed, as ``Beside``.
    """

    error: str = ""
    subject: str = ""
    advice: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    preload_files: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    backend: str = Backend.AOTI
    for_cuda: bool = False
    ignored_options: tuple[str, ...] = ()
    no_guard_pages: str = ""
    beside: Mapping[str, Any] = field(default_factory=dict)
