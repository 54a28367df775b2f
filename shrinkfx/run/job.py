"""What every phase of a run shares."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from shrinkfx.check.oracle import Limits, Meter
from shrinkfx.check.server import WORKER, Server
from shrinkfx.errors import LoadError, WorkerError
from shrinkfx.options import Options
from shrinkfx.search.budget import Budget
from shrinkfx.search.events import Listener, Noted

logger = logging.getLogger(__name__)


class Job:
    """What was asked for, where results go, and what has been spent.

    Attributes:
        meters: CPU-seconds by part of the run: baseline, search, verify.
        lies: operators whose results are not what their fake kernels say.
        warnings: what else may be the cause, for the report.
    """

    def __init__(self, options: Options, out: Path, listener: Listener) -> None:
        self.options = options
        self.out = out
        self.listener = listener
        self.lies: list[str] = []
        self.warnings: list[str] = []
        minutes = options.max_minutes
        self.budget = Budget(options.max_checks, minutes * 60 if minutes else None)
        self.meters = {name: Meter() for name in ("baseline", "search", "verify")}

    def note(self, text: str) -> None:
        """Tell the user a line."""
        logger.info("%s", text)
        self.listener(Noted(text))

    def limits(self, default_s: float) -> Limits:
        """Bound a check of this run."""
        return limits_of(self.options, default_s)


def limits_of(options: Options, default_s: float) -> Limits:
    """Bound a check by the user's time limit, and by what memory is free."""
    return Limits(options.timeout_s or default_s, available_bytes() * 3 // 4)


def server_for(options: Options, worker: Sequence[str] = WORKER) -> Server:
    """Start the worker that holds the program.

    Raises:
        LoadError: it cannot be loaded, or kills the process that loads it.
    """
    try:
        return Server(
            model=options.model.resolve(),
            inputs=options.inputs.resolve() if options.inputs else None,
            preloads=options.preload,
            device=options.device,
            backend=options.backend,
            arch=options.arch,
            inductor=options.inductor,
            environment=options.environment,
            command=worker,
        )
    except WorkerError as error:
        files = [options.model, options.inputs, *options.preload]
        subject = ", ".join(str(name) for name in files if name)
        raise LoadError(subject, error.reason, "do they load in Python?") from error


def available_bytes() -> int:
    """Memory that is free now, as the kernel estimates it."""
    with open("/proc/meminfo", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["MemAvailable"].split()[0]) * 1024
