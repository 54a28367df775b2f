"""Several questions at once: each in a fork of the server, awaited by a thread.

What an answer teaches (time limits, whether fast builds pay) is learned by whoever
consumes it, in the order in which that is done: what is asked is the same with any
number of lanes.

A question stays undecided where others beside it may be to blame: for want of memory,
of disk or of minutes, or since its server has died. If the answer is wanted it is asked
again, alone, as if there were no lanes.
"""

from __future__ import annotations

import dataclasses
import logging
import signal
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from shrinkfx.check.client.fork import Fork
from shrinkfx.check.client.interrupts import held_interrupt
from shrinkfx.check.client.restarting import RestartingServer, refuse_if_full
from shrinkfx.check.fast_builds import LaterBuilds
from shrinkfx.check.oracle import CheckClient
from shrinkfx.errors import StorageError, WorkerError
from shrinkfx.failure.signature import Kind
from shrinkfx.failure.verdict import Undecided, Verdict
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.requests import Request

logger = logging.getLogger(__name__)

_TRIES = 3
"""Times in a row that a server may fail to fork before there are no more lanes."""


class Ends(Protocol):
    """A question under way."""

    def done(self) -> bool: ...


class Answers(Protocol):
    """An oracle whose answer to a question does not depend on those before."""

    @property
    def client(self) -> CheckClient: ...

    def with_client(self, client: CheckClient) -> Answers: ...

    def answer(self, candidate: Candidate) -> Verdict:
        """Find the answer, and learn nothing of it."""
        ...


class Forks:
    """The forks of a server, made when they are needed. For the thread that asks it.

    Args:
        count: how many questions may be under way at once.
        heard: given each answer that is consumed.
        gpus: how many GPUs the server spreads its forks over; each has one.

    Attributes:
        changed: told whenever a question has ended.
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
        self._asked: set[Question] = set()
        self._failed = 0
        server.close_first(self.close)

    def begin(self, lanes: Lanes, candidate: Candidate) -> Question:
        """Put a question to a fork that has none; wait for one if need be."""
        self.wait(lambda: len(self._asked) < self.count)
        if not self._have_one(lanes.oracle.client):
            return Question(lanes, None, candidate)
        with held_interrupt(), self.changed:
            question = Question(lanes, self._free.pop(), candidate)
            question.start()
            self._asked.add(question)  # before it can give the fork back
        return question

    def _have_one(self, client: CheckClient) -> bool:
        """Have a fork that lives and has nothing to do, if the server makes any."""
        while self._free and not self._free[-1].lives:
            self._free.pop().close()
        if not self._free and self._failed < _TRIES:
            try:
                gpu = least_used(self._gpus, [q.gpu for q in self._asked])
                self._free.append(Fork(self.server, client.options, self.count, gpu))
                client.meter.add(self._free[-1].birth)
                self._failed = 0
            except (WorkerError, StorageError, OSError) as error:
                # Whoever asks that server next, alone, begins it anew.
                logger.warning("no fork of the worker: %s", error)
                self._failed += 1
        return bool(self._free)

    def give_back(self, question: Question, fork: Fork) -> None:
        """Take the fork of a question that has ended; called by its thread."""
        with self.changed:
            self._asked.discard(question)
            self._free.append(fork)
            self.changed.notify_all()

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until the ends of questions have brought something about."""
        with self.changed:
            while not condition():
                self.changed.wait()

    def wait_for_all(self) -> None:
        """Wait until nothing is under way."""
        self.wait(lambda: not self._asked)

    def cancel(self) -> None:
        """End whatever is under way."""
        for question in tuple(self._asked):
            question.cancel()
        self.wait_for_all()

    def close(self) -> None:
        """End all forks, and what they are at; safe to call twice."""
        with held_interrupt():
            for question in tuple(self._asked):
                question.end()
            self.wait_for_all()
            while self._free:
                self._free.pop().close()
            self._failed = 0  # the next process has not


class Lanes:
    """An oracle that has several questions under way.

    Args:
        oracle: asked in each lane; and itself where a question must be asked alone.
        forks: shared with the lanes of other oracles.

    Attributes:
        count: how many questions may be under way at once.
    """

    def __init__(self, oracle: Answers, forks: Forks) -> None:
        self.oracle, self.forks, self.count = oracle, forks, forks.count

    def begin(self, candidate: Candidate) -> Question:
        """Begin with a question; wait where there are as many as there may be."""
        return self.forks.begin(self, candidate)

    def wait(self, pending: Collection[Ends]) -> None:
        """Wait until at least one of them has ended."""
        self.forks.wait(lambda: not pending or any(each.done() for each in pending))

    def alone(self, candidate: Candidate) -> Verdict:
        """Ask when nothing else is under way, with all that there is of memory."""
        self.forks.wait_for_all()
        return self.oracle.answer(candidate)


class Question:
    """A question under way, in a fork that it has until it ends.

    Args:
        fork: None where there was none: then it has ended, without an answer.
    """

    def __init__(self, lanes: Lanes, fork: Fork | None, candidate: Candidate) -> None:
        self._fork = fork
        self._lanes, self._candidate = lanes, candidate
        self._left_s = lanes.forks.server.seconds_left()
        self._lock, self._cancelled = threading.Lock(), False
        self._ended = fork is None
        self._endings: list[Ending] = []
        self._answer: Verdict | Exception = Undecided("no process was available")
        self._builds = LaterBuilds(lanes.oracle.client.builds)
        self._oracle = self._asking_here(lanes.oracle)

    @property
    def gpu(self) -> int:
        """Which of its server's GPUs its fork uses."""
        return self._fork.gpu if self._fork is not None else 0

    def start(self) -> None:
        assert self._fork is not None
        arguments = (self._fork,)
        threading.Thread(target=self._live, args=arguments, daemon=True).start()

    def done(self) -> bool:
        """Tell whether it has ended, with an answer or without."""
        return self._ended

    def cancel(self) -> None:
        """End it and all that was started for it; safe if it has ended."""
        with self._lock:
            self._cancelled = True
            if self._fork is not None and not self._ended:
                self._fork.cancel()

    def end(self) -> None:
        """End its fork, too."""
        if self._fork is not None:
            self._fork.end()

    def result(self) -> Verdict:
        """Wait for the answer.

        Raises:
            Undecided: there is none from here; ``Lanes.alone`` finds one.
        """
        self._lanes.wait([self])
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def count(self) -> None:
        """Count its builds, and have its time heard, once: the search has its answer.

        Where it never does, nothing of that is told, as if it had not been asked.
        """
        self._builds.count()
        while self._endings:
            self._lanes.forks.heard(self._endings.pop(0))

    def ask(self, request: Request) -> Ending:
        """Have the fork answer; for the oracle, in this question's thread.

        Raises:
            WorkerError: it has died, or the question was cancelled.
            StorageError: the disk is full.
        """
        if self._left_s is not None and self._left_s < request.most_s:
            request = dataclasses.replace(request, clock_s=self._left_s)
        with self._lock:
            if self._cancelled:
                raise WorkerError("cancelled")
            assert self._fork is not None
            self._fork.send(request)
        ending = self._fork.receive(request)
        self._endings.append(dataclasses.replace(ending, log=""))  # kept for long
        refuse_if_full(ending, (self._fork.directory,))
        return ending

    def _asking_here(self, oracle: Answers) -> Answers:
        """Have an oracle ask the fork, which has its part of the memory."""
        limits, count = oracle.client.limits, self._lanes.count
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
            last = self._endings[-1:]  # of several the oracle has looked again
            if any(map(_is_of_others, last)) or _is_hungry(self._answer):
                self._answer = Undecided(self._answer.observation.unresolved)
        except (WorkerError, StorageError, OSError) as error:
            self._answer = Undecided(str(error))
        except Exception as error:  # noqa: BLE001 - raised where it is asked for
            self._answer = error
        finally:
            with self._lock:
                self._ended = True
            self._lanes.forks.give_back(self, fork)


def least_used(count: int, used: Sequence[int]) -> int:
    """Choose the first of some GPUs that no fewer forks use than any other.

    >>> [least_used(2, used) for used in ([], [0], [0, 1], [0, 1, 0])]
    [0, 1, 0, 1]
    """
    return min(range(count), key=lambda gpu: (list(used).count(gpu), gpu))


def _is_of_others(ending: Ending) -> bool:
    """Tell whether what runs beside a child may have ended it.

    One that has slept for long may have waited for a lock of another.
    """
    match ending.how:
        case "memory" | "late" | "cancelled":
            return True
        case "timeout":
            return ending.cpu_seconds < (ending.seconds - ending.waited_s) / 2
    return (ending.how, ending.code) == ("signal", signal.SIGKILL)


def _is_hungry(answer: Verdict) -> bool:
    """Tell whether it wanted memory that there was none of."""
    seen = answer.observation.signature
    return seen is not None and seen.kind is Kind.OOM
