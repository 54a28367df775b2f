"""The program under reduction, and the context that all phases of a run share."""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shrinkfx.check.baseline.with_guard_pages import Guarding
from shrinkfx.check.client.restarting import RestartingServer
from shrinkfx.check.client.server import WORKER, Server
from shrinkfx.check.command import Command
from shrinkfx.check.limits import BusyNotice
from shrinkfx.check.oracle import CheckClient, Limits, Meter
from shrinkfx.errors import SEE_DOCTOR, LoadError, WorkerError
from shrinkfx.events import ActivityStarted, Listener, NoteAdded
from shrinkfx.failure.blame import Suspect
from shrinkfx.failure.signature import Signature
from shrinkfx.journal.journal import Journal
from shrinkfx.options.options import Options
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Ready
from shrinkfx.protocol.choices import Backend, Build
from shrinkfx.protocol.record import with_fields_of
from shrinkfx.protocol.requests import HASH_SEED, CheckOptions
from shrinkfx.report.record import OtherCauses, ProgramSize
from shrinkfx.report.summary import warn_of_versions
from shrinkfx.search.asker import Budget
from shrinkfx.system.processes import (
    estimate_available_bytes,
    measure_earlier_cpu_s,
    measure_tree_cpu_s,
)
from shrinkfx.system.sandbox import Sandbox


@dataclass(frozen=True)
class Subject:
    """The program under reduction, after its failure was reproduced.

    Attributes:
        context: what it shares with all phases of the run.
        whole: the candidate with all operators.
        before: the size of the input program.
        client: the client, with options that show the failure.
        rate: the fraction of the input program's runs that failed.
        command: the user's own test, or None.
        guarding: the guard pages that the failure needs.
        suspects: operators that may cause the failure, the most likely first.
        other_causes: possible causes other than the compiler.
        not_tested: why it was not tested whether this graph form can be cut, or ''.
        short_results: operators whose result's storage is smaller than declared, if
            the failure depends on the adjacent memory.
    """

    context: RunContext = field(repr=False)
    whole: Candidate
    before: ProgramSize
    client: CheckClient
    target: Signature
    rate: float
    command: Command | None = None
    guarding: Guarding = field(default_factory=Guarding)
    suspects: tuple[Suspect, ...] = ()
    other_causes: OtherCauses = field(default_factory=OtherCauses)
    not_tested: str = ""
    short_results: tuple[str, ...] = ()

    @property
    def calls(self) -> int:
        """The number of calls in a run before the program fails."""
        return self.client.options.calls

    @property
    def build(self) -> Build:
        """The build of its candidates."""
        return self.client.options.build

    def built_stock(self) -> Subject:
        """Return this subject with the stock build."""
        return replace(self, client=self.client.with_stock_build())

    def built_as(self, build: str) -> Subject:
        """Return this subject with a build that is its own, or the stock build."""
        return self if build == self.build else self.built_stock()

    @with_fields_of(CheckOptions)
    def with_options(self, **changes: Any) -> Subject:  # noqa: ANN401 - its fields
        """Return this subject with further options of the worker."""
        return replace(self, client=self.client.with_options(**changes))


logger = logging.getLogger(__name__)

PARTS = ("baseline", "search", "verify", "explain")
"""Parts of a run whose CPU-seconds are counted separately, as those of their child
processes.
"""

OVERHEAD = "overhead"
"""All other CPU-seconds: of this process, and of servers, which start, load, fork and
supervise.
"""

INTERRUPTED = "interrupted"
"""The reason of a stop by Ctrl-C, after which a run can be resumed as it is."""


class RunContext:
    """The options, output folder, journal and spent resources of a run.

    Attributes:
        meters: CPU-seconds of children, by part, in this session.
        journal: all that is known so far, from earlier sessions, too.
        busyness: receives each check, and notes once that the machine is busy.
        out_of_budget: the budget ended the search, so a larger one continues it.
        jobs: the maximum number of candidates that are checked at once.
        worker: the server that holds the program; its starter sets it.
        bare_servers: closes the workers without a program; enter it with ``worker``.

    Args:
        written: folders besides ``out`` that workers write to.
    """

    worker: Server

    def __init__(
        self,
        options: Options,
        out: Path,
        listener: Listener,
        journal: Journal | None = None,
        written: Sequence[Path] = (),
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
        self.busyness = BusyNotice(self.note)
        self.meters = {name: Meter() for name in PARTS}
        self._used_before = measure_earlier_cpu_s()
        task = "sweep" if options.sweeping else "reduction"
        self.journal.follow(task, self._spent_now)
        self._written = written
        self.bare_servers = contextlib.ExitStack()
        self._bare_servers_by_kind: dict[object, RestartingServer] = {}

    @property
    def ready(self) -> Ready:
        """The worker's description of itself."""
        return self.worker.ready

    @property
    def interprets(self) -> bool:
        """Whether kernels run on Triton's interpreter, which checks each access."""
        return self.ready.backend == Backend.INTERPRETER

    @property
    def on_cpu(self) -> bool:
        """Whether compiled code runs on the CPU."""
        return not self.interprets and not self.ready.for_cuda

    @property
    def on_gpu(self) -> bool:
        """Whether the worker runs programs on a GPU."""
        return not self.interprets and self.ready.for_cuda

    @property
    def makes_packages(self) -> bool:
        """Whether a program is compiled into a package, which later checks run."""
        return self.ready.backend == Backend.AOTI

    @functools.cached_property
    def sandbox(self) -> Sandbox | None:
        """The sandbox of all workers; None without one.

        Raises:
            UsageError: the options require a sandbox, and none works here.
        """
        options, written = self.options, (self.out, *self._written)
        return Sandbox.choose(options.sandbox, self.note, written, options.files)

    def with_output_folder(self, folder: Path) -> RunContext:
        """Return a copy of this context that writes to another folder."""
        context = copy.copy(self)
        context.out = folder
        return context

    def with_options(self, options: Options) -> RunContext:
        """Return a copy of this context with other options."""
        context = copy.copy(self)
        context.options = options
        return context

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU-seconds of the run by part, with those of earlier sessions."""
        spent = self._spent_now()
        for name, seconds in self.journal.spent_before().items():
            spent[name] = spent.get(name, 0.0) + seconds
        return spent

    def _spent_now(self) -> dict[str, float]:
        """Return this session's CPU-seconds by part; they add up to all processes."""
        spent = {name: meter.cpu_seconds for name, meter in self.meters.items()}
        used = measure_tree_cpu_s() - self._used_before
        return {**spent, OVERHEAD: max(0.0, used - sum(spent.values()))}

    def note(self, text: str) -> None:
        """Log a line and show it to the user."""
        logger.info("%s", text)
        self.listener(NoteAdded(text))

    def _doing(self, text: str) -> None:
        self.listener(ActivityStarted(text))

    def server(
        self, worker: Sequence[str] = WORKER, variables: Mapping[str, str] | None = None
    ) -> Server:
        """Start the worker that holds the program for the whole run.

        Args:
            variables: environment variables; those that the user sets take precedence.

        Raises:
            LoadError: the program cannot be loaded, or kills the worker that loads it.
        """
        self._doing(f"starting PyTorch and loading {self.options.called}")
        server = _start(
            *(self._lasting, self.options, variables or {}),
            command=worker,
            leaves_zygote=True,
            folders=(self.out,),
        )
        for warning in warn_of_versions(server.ready.versions):
            self.note(warning)
        return server

    def bare_server(
        self, backend: str, worker: Sequence[str] = WORKER, device: str | None = None
    ) -> RestartingServer:
        """Return a worker without a program and without this run's environment.

        It is started once, and lasts as long as ``bare_servers``.

        Args:
            device: the device of scripts that run with guard pages.
        """
        known, key = self._bare_servers_by_kind, (backend, tuple(worker), device)
        if key in known:
            known[key].forget_deaths()
            return known[key]
        self._doing("starting a process")
        server = self._lasting(
            command=worker,
            environment=None,
            backend=backend,
            arch=self.options.arch,
            device=device,
            gpus=self.options.gpus if backend == Backend.AOTI else (),
            zygote_of=getattr(self, "worker", None),
            hash_seed=self.options.environment.get(HASH_SEED, ""),
        )
        known[key] = self.bare_servers.enter_context(server)
        return known[key]

    @with_fields_of(Server)
    def _lasting(self, **settings: Any) -> RestartingServer:  # noqa: ANN401 - its fields
        return RestartingServer(
            seconds_left=lambda: self.budget.seconds_left,
            asking=lambda task: self._doing(task.doing),
            answered=self.journal.tick,
            heard=self.busyness.record_ending,
            sandbox=self.sandbox,
            **settings,
        )

    def limits(self, default_s: float) -> Limits:
        """Return the limits of a check in this run."""
        return limits_of(self.options, default_s)


def limits_of(options: Options, default_s: float) -> Limits:
    """Return the user's or the default time limit, and 3/4 of the available memory."""
    return Limits(options.timeout_s or default_s, estimate_available_bytes() * 3 // 4)


def server_for(
    options: Options, worker: Sequence[str], sandbox: Sandbox | None = None
) -> Server:
    """Start the worker that holds the program, for a short task.

    Raises:
        LoadError: the program cannot be loaded, or kills the worker that loads it.
    """
    return _start(Server, options, {}, command=worker, sandbox=sandbox)


@contextlib.contextmanager
def _blaming_files(options: Options) -> Iterator[None]:
    """Name the files that were loading when a worker process died."""
    try:
        yield
    except WorkerError as error:
        if error.killed:  # the kill came from outside, so no file caused it
            raise WorkerError(f"{error.reason}, twice{_KILLED}", error.log) from error
        files = [options.model, options.inputs, *options.preload]
        names = ", ".join(str(name) for name in files if name)
        advice = f"check that these files load in Python; {SEE_DOCTOR}"
        raise LoadError(names, error.reason, advice) from error


_KILLED = ": something outside shrinkfx killed it, possibly because memory ran out"


def _start(
    make: Callable[..., Server],
    options: Options,
    variables: Mapping[str, str],
    **more: Any,  # noqa: ANN401 - other parameters of a server
) -> Server:
    """Start a server that holds the program of a run."""
    with _blaming_files(options):
        return make(
            model=options.model.resolve(),
            inputs=options.inputs.resolve() if options.inputs else None,
            preloads=options.preload,
            device=options.device,
            backend=options.backend,
            arch=options.arch,
            inductor=options.inductor,
            environment={**variables, **options.environment},
            max_disk_bytes=round(options.max_disk * 1e9) if options.max_disk else None,
            gpus=options.gpus,
            cwd=options.cwd,
            **more,
        )
