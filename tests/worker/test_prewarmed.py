"""Warm children of a server, with a device that is a folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support import folder_device
from support.folder_device import COLD, WARM, FolderDevice

from shrinkfx.check.client.server import Server
from shrinkfx.check.worker_slots import Fork
from shrinkfx.protocol.answers import Ending, Unresolved
from shrinkfx.protocol.choices import Guard
from shrinkfx.protocol.requests import (
    CheckOptions,
    CheckOriginal,
    CollectVersions,
    Request,
)
from shrinkfx.worker.cuda_memory.contexts import Contexts
from shrinkfx.worker.forkserver.serve import MOST, PrewarmedChildren
from shrinkfx.worker.forkserver.supervise import (
    become_subreaper,
    kill_descendants,
    supervise,
)

pytestmark = pytest.mark.processes


@dataclass
class Asked:
    """A server's part: takes a warm child, lets others get ready, supervises."""

    device: FolderDevice
    folder: Path
    apart: set[int] = field(default_factory=set)
    number: int = 0

    def __post_init__(self) -> None:
        self.warm = PrewarmedChildren(self.device, self.device.work, self.apart)

    def ask(self, request: Request) -> Ending:
        self.number += 1
        folder = self.folder / str(self.number)
        folder.mkdir()
        child = self.warm.take_ready_child(request, folder)
        self.warm.refill(request)
        work = self.device.work(request)
        return supervise(work, request, folder, lambda: False, self.apart, child)

    def ask_for_word(self, request: Request) -> str:
        return word(self.ask(request))

    def begin(self, request: Request) -> None:
        """Ask as often as it takes until others are expected to be asked like that."""
        assert [self.ask_for_word(request) for _ in range(2)] == [COLD, COLD]


def word(ending: Ending) -> str:
    assert isinstance(ending.answer, Unresolved)
    return ending.answer.why


CHECK = Request(CheckOriginal())
Settle = Callable[[], None]


@pytest.fixture(name="device")
def _device(tmp_path: Path) -> FolderDevice:
    (tmp_path / "free").write_text("90")
    return FolderDevice(tmp_path)


@pytest.fixture(name="server")
def _server(device: FolderDevice, tmp_path: Path) -> Iterator[Asked]:
    become_subreaper()
    (tmp_path / "children").mkdir()
    server = Asked(device, tmp_path / "children")
    yield server
    server.warm.end()
    kill_descendants()
    become_subreaper(0)


@pytest.fixture(name="settle")
def _settle(server: Asked, wait_for: Callable[[Callable[[], object]], None]) -> Settle:
    """Wait until all that are to wait have said that they are ready, or have ended."""
    return lambda: wait_for(lambda: server.warm.settled_children == MOST)


def test_next_check_runs_in_a_prewarmed_process(server: Asked, settle: Settle) -> None:
    server.begin(CHECK)
    settle()
    assert server.ask_for_word(CHECK) == WARM
    settle()
    assert server.ask_for_word(CHECK) == WARM


def test_prewarmed_process_runs_one_check_and_is_replaced_if_dead(
    server: Asked, settle: Settle
) -> None:
    server.begin(CHECK)
    settle()
    before = set(server.apart)
    dies = Request(CheckOriginal(), CheckOptions(sought="die"))
    ending = server.ask(dies)
    assert (ending.how, ending.stage) == ("signal", "done")
    used = before - server.apart
    assert len(used) == 1
    settle()
    assert used.isdisjoint(server.apart)
    assert server.ask_for_word(CHECK) == WARM


def test_number_of_prewarmed_processes_is_bounded(
    server: Asked, settle: Settle
) -> None:
    server.ask(CHECK)
    assert not server.apart  # it may be the only one of its kind
    for _ in range(3):
        server.ask(CHECK)
        settle()
        assert len(server.apart) == MOST


def test_no_prewarmed_process_is_kept_if_memory_is_short(
    server: Asked, settle: Settle
) -> None:
    """What is free bounds them; they give back what they had themselves."""
    (server.device.folder / "free").write_text("20")
    server.begin(CHECK)
    settle()
    for _ in range(2):
        assert server.ask_for_word(CHECK) == COLD
    assert not server.apart
    assert len(server.device.contexts()) == MOST  # and it is not tried each time


@pytest.mark.parametrize("what", ["no-driver", "broken"])
def test_prewarmed_process_without_a_usable_context_runs_no_check(
    server: Asked, settle: Settle, what: str
) -> None:
    (server.device.folder / what).touch()
    server.begin(CHECK)
    settle()
    assert server.ask_for_word(CHECK) == COLD


def test_other_settings_get_other_prewarmed_processes(
    server: Asked, settle: Settle
) -> None:
    """An allocator, or a variable, counts before there is a context."""
    server.begin(CHECK)
    settle()
    before = set(server.apart)
    beside = Request(CheckOriginal(), CheckOptions(guard_pages=Guard.AFTER))
    server.begin(beside)
    settle()
    assert before.isdisjoint(server.apart)
    assert server.ask_for_word(beside) == WARM


def test_task_without_a_context_uses_no_prewarmed_process(
    server: Asked, settle: Settle
) -> None:
    server.begin(CHECK)
    settle()
    before = set(server.apart)
    assert server.ask_for_word(Request(CollectVersions())) == COLD
    assert server.apart == before


def test_killed_prewarmed_process_is_not_used(server: Asked, settle: Settle) -> None:
    server.begin(CHECK)
    settle()
    for pid in server.apart:
        os.kill(pid, 9)
    assert server.ask_for_word(CHECK) == COLD


def test_gpu_context_settings_depend_on_allocator_and_environment() -> None:
    contexts = Contexts(lambda request: None, "cuda")
    plain = contexts.settings_of(CHECK)
    assert plain is not None
    zones = Request(CheckOriginal(), CheckOptions(guard_pages=Guard.AFTER))
    variable = Request(CheckOriginal(), CheckOptions(environment={"A": "1"}))
    others = {contexts.settings_of(each) for each in (zones, variable)}
    assert len({plain, *others}) == 3
    under = CheckOptions(guard_pages=Guard.MEMCHECK)
    for elsewhere in (
        Request(CheckOriginal(), fresh=True),
        Request(CheckOriginal(), under),
        Request(CollectVersions()),
    ):
        assert contexts.settings_of(elsewhere) is None


def test_server_and_forks_prewarm_processes_and_leave_none_behind(
    device: FolderDevice,
    survivors: Callable[[], list[str]],
    wait_for: Callable[[Callable[[], object]], None],
) -> None:
    command = (sys.executable, folder_device.__file__, str(device.folder))
    with Server(command=command) as server:
        assert word(server.ask(CHECK)) == COLD
        wait_for(lambda: word(server.ask(CHECK)) == WARM)
        fork = Fork(server, CheckOptions(), 2)

        def ask_fork() -> str:
            fork.send(CHECK)
            return word(fork.receive(CHECK))

        assert ask_fork() == COLD
        wait_for(lambda: ask_fork() == WARM)
        wait_for(lambda: word(server.ask(CHECK)) == WARM)
        fork.close()
    assert not survivors()
