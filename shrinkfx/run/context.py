"""What every phase of a run shares."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from shrinkfx.check.busy import Busyness
from shrinkfx.check.client.restarting import RestartingServer
from shrinkfx.check.client.server import WORKER, Server
from shrinkfx.check.oracle import Limits, Meter
from shrinkfx.errors import SEE_DOCTOR, LoadError, WorkerError
from shrinkfx.events import Doing, Listener, Noted
from shrinkfx.host_memory import available_bytes
from shrinkfx.journal.journal import Journal
from shrinkfx.options.options import Options
from shrinkfx.protocol.choices import Backend, InductorOptions
from shrinkfx.protocol.fields import with_fields_of
from shrinkfx.protocol.requests import HASH_SEED
from shrinkfx.search.budget import Budget
from shrinkfx.torch_versions import why_untested
from shrinkfx.used import tree_cpu_s, used_before

logger = logging.getLogger(__name__)

PARTS = ("baseline", "search", "verify", "explain")
"""Parts of a run whose CPU-seconds are counted apart: those of the children that are
asked for them."""

OVERHEAD = "overhead"
"""All others: of this process, and of servers, to start, load, fork and supervise."""

INTERRUPTED = "interrupted"
"""Why a run has stopped that may simply go on."""


class RunContext:
    """What was asked for, where results go, and what has been spent.

    Attributes:
        meters: CPU-seconds of children, by part of this session.
        journal: what is known so far, of earlier sessions too.
        busyness: is told of each check, and says once that the machine is busy.
        out_of_budget: what has ended the search; more of it may be given later.
        jobs: candidates that are asked about at once, at most.
    """

    def __init__(
        self,
        options: Options,
        out: Path,
        listener: Listener,
        journal: Journal | None = None,
    ) -> None:
        self.options = options
        self.out = out
        self.listener = listener
        minutes = options.max_minutes
        self.journal = journal or Journal()
        self.out_of_budget, self.jobs = False, 1
        self.budget = Budget(
            options.max_checks,
            minutes * 60 if minutes else None,
            seconds_before=self.journal.seconds_before(),
        )
        self.busyness = Busyness(self.note)
        self.meters = {name: Meter() for name in PARTS}
        self._used_before = used_before()
        task = "sweep" if options.sweeping else "reduction"
        self.journal.follow(task, self._spent_now)
        self._main: Server | None = None

    def elsewhere(self, folder: Path) -> RunContext:
        """Write the results of this run to another folder."""
        context = copy.copy(self)
        context.out = folder
        return context

    def with_options(self, options: Options) -> RunContext:
        """Return a copy of this context with other options."""
        context = copy.copy(self)
        context.options = options
        return context

    def cpu_seconds(self) -> dict[str, float]:
        """Count by part what the run has used until now, in earlier sessions too."""
        spent = self._spent_now()
        for name, seconds in self.journal.spent_before().items():
            spent[name] = spent.get(name, 0.0) + seconds
        return spent

    def _spent_now(self) -> dict[str, float]:
        """Count by part what this session has used; in sum, all of its processes."""
        spent = {name: meter.cpu_seconds for name, meter in self.meters.items()}
        used = tree_cpu_s() - self._used_before
        return {**spent, OVERHEAD: max(0.0, used - sum(spent.values()))}

    def note(self, text: str) -> None:
        """Tell the user a line."""
        logger.info("%s", text)
        self.listener(Noted(text))

    def _doing(self, text: str) -> None:
        self.listener(Doing(text))

    def server(
        self, worker: Sequence[str] = WORKER, variables: Mapping[str, str] | None = None
    ) -> Server:
        """Start the worker that holds the program, for as long as the run takes.

        Args:
            variables: of its environment, where the user does not set them.

        Raises:
            LoadError: it cannot be loaded, or kills the process that loads it.
        """
        self._doing(f"starting PyTorch and loading {self.options.called}")
        settings = _settings(self.options)
        settings["environment"] = {**(variables or {}), **self.options.environment}
        with _blaming_files(self.options):
            self._main = self._lasting(command=worker, leaves_stem=True, **settings)
        if warning := why_untested(self._main.ready.versions.get("torch", "")):
            self.note(warning)
        return self._main

    def bare_server(
        self, backend: str, worker: Sequence[str] = WORKER, device: str | None = None
    ) -> Server:
        """Start a worker without a program, in a stranger's environment.

        Args:
            device: of the scripts that it is to run beside guard pages.
        """
        arch = self.options.arch
        self._doing("starting a process")
        return self._lasting(
            command=worker,
            environment=None,
            backend=backend,
            arch=arch,
            device=device,
            gpus=self.options.gpus if backend == Backend.AOTI else (),
            beside=self._main,
            hash_seed=self.options.environment.get(HASH_SEED, ""),
        )

    @with_fields_of(Server)
    def _lasting(self, **settings: Any) -> Server:  # noqa: ANN401 - its fields
        return RestartingServer(
            seconds_left=lambda: self.budget.seconds_left,
            asking=lambda task: self._doing(task.doing),
            answered=self.journal.tick,
            heard=self.busyness.hear,
            folders=(self.out,),
            **settings,
        )

    def limits(self, default_s: float) -> Limits:
        """Bound a check of this run."""
        return limits_of(self.options, default_s)


def limits_of(options: Options, default_s: float) -> Limits:
    """Bound a check by the user's time limit, and by what memory is free."""
    return Limits(options.timeout_s or default_s, available_bytes() * 3 // 4)


def server_for(options: Options, worker: Sequence[str] = WORKER) -> Server:
    """Start the worker that holds the program, for a few questions.

    Raises:
        LoadError: it cannot be loaded, or kills the process that loads it.
    """
    with _blaming_files(options):
        return Server(command=worker, **_settings(options))


@contextlib.contextmanager
def _blaming_files(options: Options) -> Iterator[None]:
    """Say which files a process has died of."""
    try:
        yield
    except WorkerError as error:
        if error.killed:  # which no file does
            raise WorkerError(f"{error.reason}, twice{_KILLED}", error.log) from error
        files = [options.model, options.inputs, *options.preload]
        subject = ", ".join(str(name) for name in files if name)
        advice = f"check that these files load in Python; {SEE_DOCTOR}"
        raise LoadError(subject, error.reason, advice) from error


_KILLED = ": something outside shrinkfx killed it, possibly because memory ran out"


class _Settings(TypedDict):
    """What a server is told that holds a program: some of its parameters."""

    model: Path
    inputs: Path | None
    preloads: Sequence[str]
    device: str | None
    backend: str
    arch: str
    inductor: InductorOptions
    environment: Mapping[str, str]
    max_disk_bytes: int | None
    gpus: Sequence[str]
    cwd: Path | None


def _settings(options: Options) -> _Settings:
    return {
        "model": options.model.resolve(),
        "inputs": options.inputs.resolve() if options.inputs else None,
        "preloads": options.preload,
        "device": options.device,
        "backend": options.backend,
        "arch": options.arch,
        "inductor": options.inductor,
        "environment": options.environment,
        "max_disk_bytes": round(options.max_disk * 1e9) if options.max_disk else None,
        "gpus": options.gpus,
        "cwd": options.cwd,
    }
