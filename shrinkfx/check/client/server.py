"""Start a fork server, send requests to it, and leave no process behind."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Self

from shrinkfx.check.client import environment as environments
from shrinkfx.check.client.line import Line, held_interrupt
from shrinkfx.check.client.orphans import kill_marked, new_mark
from shrinkfx.check.client.zygote import ADOPTION, Zygote
from shrinkfx.errors import LoadError, StorageError, UsageError, WorkerError
from shrinkfx.program.display_text import LINE, cut_text, printable
from shrinkfx.protocol.answers import Done, Ending, Ready
from shrinkfx.protocol.choices import ARCHS, Backend, InductorOptions
from shrinkfx.protocol.requests import HASH_SEED, Request, Setup
from shrinkfx.system import scratch
from shrinkfx.system.own_time import OwnTime
from shrinkfx.system.processes import Sample, list_descendants, sample_processes
from shrinkfx.system.sandbox import Sandbox, to_exit_status

_NOTHING: Mapping[str, str] = MappingProxyType({})
_LOG, _EMPTY, _LOADING = "server.log", "empty", "loading"
_MODULE = (sys.executable, "-P", "-m")
"""Run a module, but not one of that name in the current folder."""

WORKER = (*_MODULE, "shrinkfx.worker")
GUARDED_WORKER = (*_MODULE, "shrinkfx.worker.cpu_memory.guard_pages")
"""A worker whose children have guard pages if the request asks for them."""

_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM)
"""Exit statuses of a worker that was killed from outside: no loaded program causes
them."""

_NOEXEC = (
    "{}: this folder is mounted noexec, so compiled programs cannot be loaded from "
    "it: set TMPDIR to a folder on a disk without noexec"
)

REMOVED = (
    "the folder was removed during the run",
    "if something clears $TMPDIR, set TMPDIR to another folder",
)
"""The message and advice for a temporary folder that was removed."""


class Server:
    """The worker's process: it loads the program once, and forks a child per request.

    Use it as a context manager; leaving it kills all processes that it started. All its
    files are in ``directory``, which is removed with it.

    Args:
        environment: variables on top of this process's own; an empty one is removed.
            None for another user's environment and an empty folder: nothing tunes
            PyTorch, and this user's modules are not found.
        cwd: the folder where modules are searched first.
        max_disk_bytes: the disk space that it may use at a time; None for all that is
            free.
        gpus: the numbers of the GPUs that its forks are spread over; it uses the first.
        leaves_zygote: whether to leave a zygote that can become another server.
        zygote_of: a server whose zygote this one may use, if that makes no difference.
        hash_seed: the hash seed of its Python unless a variable sets one: the seed that
            scripts start their own Python with.
        sandbox: the sandbox of all its processes. There is no zygote then, because it
            would end with the sandbox.

    Raises:
        UsageError: no library can be loaded from ``$TMPDIR``.
    """

    def __init__(
        self,
        *,
        model: Path | None = None,
        inputs: Path | None = None,
        preloads: Sequence[str] = (),
        device: str | None = None,
        backend: str = Backend.AUTO,
        arch: str = ARCHS[0],
        inductor: InductorOptions | None = None,
        environment: Mapping[str, str] | None = _NOTHING,
        command: Sequence[str] = WORKER,
        cwd: Path | None = None,
        max_disk_bytes: int | None = None,
        gpus: Sequence[str] = (),
        start_timeout_s: float = 600.0,
        leaves_zygote: bool = False,
        zygote_of: Server | None = None,
        hash_seed: str = "",
        sandbox: Sandbox | None = None,
    ) -> None:
        if not scratch.allows_loading_libraries():
            raise UsageError(_NOEXEC.format(scratch.root().parent))
        self.directory = Path(tempfile.mkdtemp(prefix="server-", dir=scratch.root()))
        self._command, self._environment = command, environment
        self._hash_seed = {HASH_SEED: hash_seed} if hash_seed else {}
        self._cwd = cwd if environment is not None else self.directory / _EMPTY
        self._start_timeout_s = start_timeout_s
        self._sandbox = sandbox
        self._leaves_zygote = leaves_zygote and sandbox is None
        self._zygote_of = zygote_of
        self._zygote: Zygote | None = None
        self._setup = Setup(
            directory=str(self.directory),
            model=str(model) if model else None,
            inputs=str(inputs) if inputs else None,
            preloads=tuple(preloads),
            device=device,
            backend=backend,
            arch=arch,
            inductor=dict(inductor or {}),
            max_disk_bytes=max_disk_bytes,
            gpus=tuple(gpus),
            unset=tuple(k for k, value in (environment or {}).items() if not value),
        )
        self.start()

    def start(self, clock_s: float = math.inf) -> None:
        """Start the process and load the program; also after it was closed.

        If the process is killed from outside while it loads, it is started once more.
        If a zygote dies then, a new process is started instead.

        Args:
            clock_s: the limit of the start in wall time.
        """
        deadline = time.monotonic() + clock_s
        try:
            self._start(deadline)
        except WorkerError as error:
            if not (error.killed or isinstance(self._process, Zygote)):
                raise
            self._start(deadline)

    def _start(self, deadline: float) -> None:
        self.directory.mkdir(exist_ok=True)
        (self.directory / _EMPTY).mkdir(exist_ok=True)
        self._mark = new_mark()
        with held_interrupt() as interrupted, self._adopting():
            self._process = self._start_process()
            self._line = self._line_to(self._process)
            clock = OwnTime(self._look)
            try:
                within = self._start_timeout_s, _LOADING
                self._line.write(self._setup.to_line(), *within)
                if not self._line.wait(*within, interrupted, clock, deadline):
                    raise KeyboardInterrupt
                self.ready = self._line.parse_answer(Ready, _LOADING)
                self._record_zygote()
            except BaseException as error:
                self._process.kill()  # it reads no requests while it loads
                was_there = self.directory.is_dir()
                self.close()
                if isinstance(error, WorkerError) and not (error.killed or was_there):
                    raise StorageError(str(self.directory), *REMOVED) from error
                raise
        if self.ready.error:
            self.close()
            reason = cut_text(self.ready.error, 2 * LINE)
            raise LoadError(self.ready.subject, reason, self.ready.advice)

    def ask(self, request: Request) -> Ending:
        """Send a request and wait for its end.

        Raises:
            WorkerError: the server itself died or stopped answering; it cannot
                answer again.
            StorageError: its folder was removed, so that no answer means anything.
            KeyboardInterrupt: after the child has been ended; the next request is
                answered as if nothing had happened.
        """
        with held_interrupt() as interrupted:
            try:
                ending = self._line.ask(request, interrupted)
            except BaseException:
                self._process.kill()  # a late answer would belong to no request
                raise
        if not self.directory.is_dir():
            raise StorageError(str(self.directory), *REMOVED)
        return ending

    def fork(self, request: Request) -> Ending:
        """Let the process fork a server like itself (``worker_slots.py``).

        Returns:
            The ending of the request: the server prepares itself before its first fork.

        Raises:
            WorkerError: the process died, or did not fork.
        """
        ending = Server.ask(self, request)  # no restart: a new process has no forks
        if not isinstance(ending.answer, Done):
            raise WorkerError(f"the worker did not fork: {ending.how}", self.log)
        return ending

    def close(self) -> None:
        """End the server and all that it started; safe to call twice."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with held_interrupt():
            self._process.stdin.close()
            self._line.closed = True
            try:
                self._process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()
            self._close_zygote()
            kill_marked(self._mark)
            scratch.remove_with_packages(self.directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        """The end of the server's own log."""
        return read_log_end(self.directory)

    def _adopting(self) -> AbstractContextManager[None]:
        return ADOPTION if self._leaves_zygote else contextlib.nullcontext()

    def _record_zygote(self) -> None:
        """Record the zygote that was left; close it if it cannot be used."""
        if self._zygote and not self._zygote.record_pid(self.ready.zygote):
            self._close_zygote()

    def _close_zygote(self) -> None:
        if self._zygote:
            self._zygote.close()
            self._zygote = None

    def _take_zygote(
        self, command: Sequence[str], environment: Mapping[str, str], cwd: Path | None
    ) -> Zygote | None:
        """Turn the zygote into a server, if a new process would be the same."""
        zygote = self._zygote
        if not (zygote and cwd and zygote.become_server(command, environment, cwd)):
            return None
        self._zygote = None
        return zygote

    def _start_process(self) -> subprocess.Popen[bytes] | Zygote:
        environment = environments.make_worker_environment(
            self._environment, self._mark
        )
        environment = {**self._hash_seed, **environment}
        if self._sandbox:
            environment = self._sandbox.change_environment(environment)
        arguments = self._command, environment, self._cwd
        reused = self._zygote_of._take_zygote(*arguments) if self._zygote_of else None
        return reused or self._popen(environment)

    def _popen(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        zygote = Zygote(self._command, environment) if self._leaves_zygote else None
        self._setup = replace(self._setup, zygote=zygote.its_ends if zygote else None)
        try:
            with (self.directory / _LOG).open("ab") as log:
                process = subprocess.Popen(
                    self._sandboxed_command(),
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd=self._cwd,
                    env=environment,
                    start_new_session=True,
                    pass_fds=zygote.its_ends if zygote else (),
                )
        except BaseException:
            if zygote:
                zygote.close()
            shutil.rmtree(self.directory, ignore_errors=True)
            raise
        if zygote:
            zygote.close_inherited_ends()
        self._zygote = zygote
        return process

    def _sandboxed_command(self) -> Sequence[str]:
        if self._sandbox is None:
            return self._command
        return self._sandbox.wrap_command(self._command, self._cwd)

    def _line_to(self, process: subprocess.Popen[bytes] | Zygote) -> Line:
        assert process.stdin is not None
        assert process.stdout is not None
        os.set_blocking(process.stdin.fileno(), False)
        return Line(process.stdout.fileno(), process.stdin.fileno(), self)

    def _look(self) -> Sample:
        return sample_processes([self.pid, *list_descendants(self.pid)])

    def make_death_error(self, doing: str) -> WorkerError:
        """Describe the end of a process that has closed its connection."""
        try:
            status = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return WorkerError(
                f"the worker closed its connection while {doing}", self.log
            )
        status = to_exit_status(status) if self._sandbox else status
        how = f"status {status}" if status >= 0 else signal.Signals(-status).name
        reason = f"the worker died with {how} while {doing}"
        if status == -signal.SIGXCPU and doing == _LOADING:
            limit = self._setup.reading_cpu_s
            reason += f": loading took more than {limit:.0f} CPU-seconds"
            reason += ", or more than ulimit -t allows"
        return WorkerError(reason, self.log, killed=status in _FROM_OUTSIDE)


def read_log_end(directory: Path) -> str:
    """Read the end of a server's own log."""
    with contextlib.suppress(OSError):
        return printable((directory / _LOG).read_text(errors="replace")[-4000:])
    return ""
