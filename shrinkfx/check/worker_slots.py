"""Worker slots: parallel queries, each in a fork of the server, awaited by a thread.

The code that uses an answer learns from it (time limits, whether fast builds pay), in
the order of use. So the queries are the same with any number of slots.

A query is undecided if a parallel one may be the cause of its end: for lack of memory,
disk or time, or because its server died. If its answer is needed, it is repeated alone,
as if there were no slots.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import select
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Protocol

from shrinkfx.check.client.line import Line, held_interrupt
from shrinkfx.check.client.orphans import kill_marked, new_mark
from shrinkfx.check.client.restarting import RestartingServer, refuse_if_full
from shrinkfx.check.client.server import read_log_end
from shrinkfx.check.oracle import CheckClient, LaterBuilds
from shrinkfx.errors import StorageError, WorkerError
from shrinkfx.failure.signature import Kind
from shrinkfx.failure.verdict import ConcurrentQueryError, Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.requests import LINE, CheckOptions, ForkServer, Request
from shrinkfx.system import scratch

logger = logging.getLogger(__name__)

_TRIES = 3
"""Failed forks in a row after which no more slots are made."""


class Ends(Protocol):
    """A running query."""

    def done(self) -> bool: ...


class Answers(Protocol):
    """An oracle whose verdict does not depend on earlier ones."""

    @property
    def client(self) -> CheckClient: ...

    def with_client(self, client: CheckClient) -> Answers: ...

    def answer(self, candidate: Candidate) -> Verdict:
        """Return the verdict without learning from it."""
        ...


class ForkPool:
    """The forks of a server, created on demand, for the thread that asks the server.

    Args:
        count: the number of queries that may run at once.
        heard: called with each ending of an answer that is used.
        gpus: the number of GPUs that the forks are spread over; each fork has one.

    Attributes:
        changed: notified whenever a query has ended.
    """

    def __init__(
        self,
        server: RestartingServer,
        count: int,
        heard: Callable[[Ending], None] = lambda ending: None,
        gpus: int = 1,
    ) -> None:
        self.server, self.count, self.heard = server, count, heard
        self._gpus = gpus
        self.changed = threading.Condition()
        self._free: list[Fork] = []
        self._pending: set[ForkQuery] = set()
        self._failed = 0
        server.add_close_hook(self.close)

    def begin(self, slots: ForkSlots, candidate: Candidate) -> ForkQuery:
        """Start a query in a free fork; wait for one if necessary."""
        self.wait(lambda: len(self._pending) < self.count)
        if not self._have_one(slots.oracle.client):
            return ForkQuery(slots, None, candidate)
        with held_interrupt(), self.changed:
            query = ForkQuery(slots, self._free.pop(), candidate)
            query.start()
            self._pending.add(query)  # before its thread can give the fork back
        return query

    def _have_one(self, client: CheckClient) -> bool:
        """Ensure that a free, living fork exists; False if the server makes none."""
        while self._free and not self._free[-1].is_alive:
            self._free.pop().close()
        if not self._free and self._failed < _TRIES:
            try:
                gpu = choose_least_used_gpu(self._gpus, [q.gpu for q in self._pending])
                self._free.append(Fork(self.server, client.options, self.count, gpu))
                client.meter.add(self._free[-1].birth)
                self._failed = 0
            except (WorkerError, StorageError, OSError) as error:
                # The next query without a slot restarts the server.
                logger.warning("no fork of the worker: %s", error)
                self._failed += 1
        return bool(self._free)

    def release_fork(self, query: ForkQuery, fork: Fork) -> None:
        """Free the fork of a query that has ended; called by the query's thread."""
        with self.changed:
            self._pending.discard(query)
            self._free.append(fork)
            self.changed.notify_all()

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, which the end of a query may change."""
        with self.changed:
            while not condition():
                self.changed.wait()

    def wait_for_all(self) -> None:
        """Wait until no query is running."""
        self.wait(lambda: not self._pending)

    def cancel(self) -> None:
        """Cancel all running queries."""
        for query in tuple(self._pending):
            query.cancel()
        self.wait_for_all()

    def close(self) -> None:
        """End all forks and their queries; safe to call twice."""
        with held_interrupt():
            for query in tuple(self._pending):
                query.end()
            self.wait_for_all()
            while self._free:
                self._free.pop().close()
            self._failed = 0  # the next server process starts afresh


class ForkSlots:
    """The worker slots of an oracle, which can run several queries.

    Args:
        oracle: runs in each slot, and by itself for a query that must run alone.
        forks: the forks, shared with the slots of other oracles.

    Attributes:
        count: the number of queries that may run at once.
    """

    def __init__(self, oracle: Answers, forks: ForkPool) -> None:
        self.oracle, self.forks, self.count = oracle, forks, forks.count

    def begin(self, candidate: Candidate) -> ForkQuery:
        """Start a query; wait while all slots are in use."""
        return self.forks.begin(self, candidate)

    def wait(self, pending: Collection[Ends]) -> None:
        """Wait until at least one of the queries has ended."""
        self.forks.wait(lambda: not pending or any(each.done() for each in pending))

    def alone(self, candidate: Candidate) -> Verdict:
        """Query while no other query runs, with all the memory that a check may use."""
        self.forks.wait_for_all()
        return self.oracle.answer(candidate)


class ForkQuery:
    """A query in a fork, which it occupies until it ends.

    Args:
        fork: None if there was none; then the query has ended without an answer.
    """

    def __init__(
        self, slots: ForkSlots, fork: Fork | None, candidate: Candidate
    ) -> None:
        self._fork = fork
        self._slots, self._candidate = slots, candidate
        self._budget_s = slots.forks.server.seconds_left()
        self._lock, self._cancelled = threading.Lock(), False
        self._ended = fork is None
        self._endings: list[Ending] = []
        self._answer: Verdict | Exception = ConcurrentQueryError(
            "no process was available"
        )
        self._builds = LaterBuilds(slots.oracle.client.builds)
        self._oracle = self._asking_here(slots.oracle)

    @property
    def gpu(self) -> int:
        """The index of the GPU, of its server's, that the fork uses."""
        return self._fork.gpu if self._fork is not None else 0

    def start(self) -> None:
        assert self._fork is not None
        arguments = (self._fork,)
        threading.Thread(target=self._live, args=arguments, daemon=True).start()

    def done(self) -> bool:
        """Tell whether the query has ended, with an answer or without."""
        return self._ended

    def cancel(self) -> None:
        """End the query and all its processes; safe to call after its end."""
        with self._lock:
            self._cancelled = True
            if self._fork is not None and not self._ended:
                self._fork.cancel()

    def end(self) -> None:
        """End the query's fork."""
        if self._fork is not None:
            self._fork.end()

    def result(self) -> Verdict:
        """Wait for the verdict.

        Raises:
            ConcurrentQueryError: there is no verdict; ``ForkSlots.alone`` gets one.
        """
        self._slots.wait([self])
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def count(self) -> None:
        """Count the query's builds and report its endings, once: the answer is used.

        For an unused answer nothing is counted, as if it had not been queried.
        """
        self._builds.count()
        while self._endings:
            self._slots.forks.heard(self._endings.pop(0))

    def ask(self, request: Request) -> Ending:
        """Send a request to the fork; for the oracle, in this query's thread.

        Raises:
            WorkerError: the fork has died, or the query was cancelled.
            StorageError: the disk is full.
        """
        if self._budget_s is not None and self._budget_s < request.wall_clock_limit_s:
            request = dataclasses.replace(request, clock_s=self._budget_s)
        with self._lock:
            if self._cancelled:
                raise WorkerError("cancelled")
            assert self._fork is not None
            self._fork.send(request)
        ending = self._fork.receive(request)
        self._endings.append(dataclasses.replace(ending, log=""))  # the log may be long
        refuse_if_full(ending, (self._fork.directory,))
        return ending

    def _asking_here(self, oracle: Answers) -> Answers:
        """Return the oracle with this query's fork, and its share of the memory."""
        limits, count = oracle.client.limits, self._slots.count
        share = limits.max_rss_bytes // count
        return oracle.with_client(
            dataclasses.replace(
                oracle.client,
                server=self,
                limits=dataclasses.replace(limits, max_rss_bytes=share),
                builds=self._builds,
            )
        )

    def _live(self, fork: Fork) -> None:
        try:
            self._answer = self._oracle.answer(self._candidate)
            last = self._endings[-1:]  # if there are several, the oracle has retried
            if any(map(_may_be_ended_by_others, last)) or _ran_out_of_memory(
                self._answer
            ):
                self._answer = ConcurrentQueryError(self._answer.observation.unresolved)
        except (WorkerError, StorageError, OSError) as error:
            self._answer = ConcurrentQueryError(str(error))
        except Exception as error:  # noqa: BLE001 - raised where it is asked for
            self._answer = error
        finally:
            with self._lock:
                self._ended = True
            self._slots.forks.release_fork(self, fork)


def choose_least_used_gpu(count: int, used: Sequence[int]) -> int:
    """Choose the GPU that the fewest forks use; the first of equals.

    >>> [choose_least_used_gpu(2, used) for used in ([], [0], [0, 1], [0, 1, 0])]
    [0, 1, 0, 1]
    """
    return min(range(count), key=lambda gpu: (list(used).count(gpu), gpu))


def _may_be_ended_by_others(ending: Ending) -> bool:
    """Tell whether parallel processes may have ended a child.

    A child that slept for long may have waited for a lock of another process.
    """
    match ending.how:
        case "memory" | "late" | "cancelled":
            return True
        case "timeout":
            return ending.cpu_seconds < (ending.seconds - ending.waited_s) / 2
    return (ending.how, ending.code) == ("signal", signal.SIGKILL)


def _ran_out_of_memory(answer: Verdict) -> bool:
    """Tell whether the candidate ran out of memory."""
    seen = answer.observation.signature
    return seen is not None and seen.kind is Kind.OOM


# A fork of a server, which runs checks in parallel: a server runs one at a time.
#
# It shares what the server has loaded, as memory that is copied on write, and ends
# with the server.

_CONNECT_S = 60.0


class Forking(Protocol):
    """A server that can fork; ``Server`` is one."""

    directory: Path

    def fork(self, request: Request) -> Ending: ...


class Fork:
    """A fork that runs one request at a time, which another thread may cancel.

    Args:
        server: the server to fork. Only the thread that asks the server may create a
            fork.
        options: the options of the candidates to check.
        servers: how many servers share the disk.
        gpu: the index of the server's GPU to use, if it has several.

    Attributes:
        birth: the server's answer to the request to fork.
    """

    def __init__(
        self, server: Forking, options: CheckOptions, servers: int, gpu: int = 0
    ) -> None:
        self.gpu = gpu
        self._mark, self._lock = new_mark(), threading.Lock()
        self.directory = Path(tempfile.mkdtemp(prefix="fork-", dir=server.directory))
        task = ForkServer(str(self.directory), self._mark, servers, gpu)
        try:
            with socket.socket(socket.AF_UNIX) as awaited:
                _bind(awaited, self.directory)
                self.birth = server.fork(Request(task, options))
                self._socket = _accept(awaited, self)
        except BaseException:
            self._remove()
            raise
        descriptor = self._socket.fileno()
        self._line = Line(descriptor, descriptor, self)

    def send(self, request: Request) -> None:
        """Send a request.

        Raises:
            WorkerError: the fork has closed its connection.
        """
        with self._lock:
            self._line.write(request.to_line())

    def receive(self, request: Request) -> Ending:
        """Wait for the answer to the request that was sent.

        Raises:
            WorkerError: there will be no answer.
        """
        return self._line.receive(request)

    def cancel(self) -> None:
        """Let the running request end soon; do nothing if it has ended."""
        # The thread that waits for the answer gets the error.
        with self._lock, contextlib.suppress(WorkerError):
            self._line.cancel()

    @property
    def is_alive(self) -> bool:
        """Whether an idle fork is alive: its connection is open and silent."""
        return not self._line.can_be_read()

    def end(self) -> None:
        """End the fork and its processes; a thread waiting for an answer gets none."""
        with self._lock:
            self._line.closed = True
            with contextlib.suppress(OSError):  # the fork has ended
                self._socket.shutdown(socket.SHUT_RDWR)
        self._remove()

    def close(self) -> None:
        """End the fork, if no thread waits for an answer; safe to call twice."""
        self.end()
        self._socket.close()

    def _remove(self) -> None:
        kill_marked(self._mark)
        scratch.remove_with_packages(self.directory)

    @property
    def log(self) -> str:
        """The end of the fork's own log."""
        return read_log_end(self.directory)

    def make_death_error(self, doing: str) -> WorkerError:
        """Create the error for a dead fork; only its server knows the exit status."""
        return WorkerError(f"a fork of the worker died while {doing}", self.log)


def _bind(awaited: socket.socket, directory: Path) -> None:
    """Listen in the fork's folder through /proc, because its path may be too long."""
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        awaited.bind(f"/proc/self/fd/{folder}/{LINE}")
    finally:
        os.close(folder)
    awaited.listen(1)


def _accept(awaited: socket.socket, fork: Fork) -> socket.socket:
    poll = select.poll()
    poll.register(awaited, select.POLLIN)
    if not poll.poll(_CONNECT_S * 1000):
        raise WorkerError("a fork of the worker did not connect", fork.log)
    connected, _ = awaited.accept()
    connected.setblocking(False)
    return connected
