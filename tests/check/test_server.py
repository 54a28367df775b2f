"""The server and its children as real processes, with every vice they can have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.doubles import request_of, told

import shrinkfx
from shrinkfx.check.client.server import GUARDED_WORKER, WORKER, Server
from shrinkfx.errors import LoadError, UsageError, WorkerError
from shrinkfx.failure.classify import classify_ending
from shrinkfx.protocol.answers import Ending, Unresolved
from shrinkfx.protocol.requests import Job, Request, Setup
from shrinkfx.system import scratch

pytestmark = pytest.mark.processes

Marked = Callable[[], list[int]]
Survivors = Callable[[], list[str]]
WaitFor = Callable[[Callable[[], object]], None]

ROOT = Path(shrinkfx.__file__).parents[1]
LIMIT = 300 << 20
SHARED, MARK = "SHRINKFX_TEST_SHARED", uuid.uuid4().hex


def request(vice: str, *, timeout_s: float = 60.0, **arguments: Any) -> Request:
    asked = request_of(vice, timeout_s=timeout_s, **arguments)
    return replace(asked, max_rss_bytes=LIMIT)


def echo(server: Server, word: str = "still here") -> str:
    answer = server.ask(request("echo", word=word)).answer
    assert isinstance(answer, Unresolved)
    return answer.why


@pytest.fixture
def start(vices: Path, marked: Marked) -> Iterator[Callable[..., Server]]:
    """Start servers of the test's own, which end with it."""
    servers = []

    def start(*manner: str, start_timeout_s: float = 60.0) -> Server:
        command = [sys.executable, str(vices), *manner]
        server = Server(command=command, start_timeout_s=start_timeout_s)
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def shared(vices: Path) -> Iterator[Server]:
    """One server for all the vices: what one leaves behind, the next ones meet."""
    with Server(
        command=[sys.executable, str(vices)], environment={SHARED: MARK}
    ) as server:
        yield server


@pytest.fixture
def serving(processes_with: Callable[[str], list[int]]) -> Marked:
    """List the processes of the shared server, and it."""
    return lambda: processes_with(f"{SHARED}={MARK}")


# --- a child's vice is the child's alone


@pytest.mark.parametrize(
    ("vice", "how", "code", "answer"),
    [
        ("segfault", "signal", signal.SIGSEGV, None),
        ("segfault_by_signal", "signal", signal.SIGSEGV, None),
        ("abort", "signal", signal.SIGABRT, None),
        ("killed_from_outside", "signal", signal.SIGKILL, None),
        ("allocate", "memory", 0, None),
        ("allocate_in_children", "memory", 0, None),
        ("fork", "exit", 0, {"forked": True}),
        ("twin", "exit", 0, {"original": True}),
        ("failing_twin", "exit", 0, {"original": True}),
        ("storm", "exit", 0, {"storm": True}),
        ("runaways", "exit", 0, {"storm": True}),
        ("daemonise", "exit", 0, {"daemon": True}),
        ("leave_compiler", "exit", 0, {"compiler": True}),
        ("half_an_answer", "exit", 0, None),
        ("deep_answer", "exit", 0, None),
        ("speak_on_every_descriptor", "exit", 0, {"forged": False}),
        ("big_answer", "exit", 0, {"big": "x" * (1 << 20)}),
        ("exit_3", "exit", 3, None),
        ("exit_with_text", "exit", 1, None),
        ("exit_with_too_much", "exit", 7, None),
        ("close_all", "exit", 0, {"closed": True}),
    ],
)
def test_server_survives_any_ending_of_a_check(
    shared: Server,
    serving: Marked,
    vice: str,
    how: str,
    code: int,
    answer: dict[str, Any] | None,
) -> None:
    ending = shared.ask(request(vice))
    assert len(serving()) == 1  # the server alone: an answer is the end of the check
    assert (ending.how, ending.code) == (how, code)
    assert ending.stage == "vice"
    assert (told(ending) if ending.answer else None) == answer
    assert echo(shared) == "still here"


@pytest.mark.parametrize(
    "vice", ["hang", "hang_deaf", "hang_on_the_gil", "daemonise_and_hang"]
)
def test_server_ends_a_check_after_its_timeout(
    shared: Server, serving: Marked, vice: str
) -> None:
    ending = shared.ask(request(vice, timeout_s=0.7))
    assert len(serving()) == 1
    assert (ending.how, ending.stage) == ("timeout", "vice")
    assert ending.seconds > 0.7
    assert echo(shared) == "still here"


@pytest.mark.parametrize(
    ("vice", "kind", "message"),
    [
        ("raise_error", "ValueError", "no such thing"),
        ("close_all_and_raise", "ValueError", "closed"),
        ("no_json", "TypeError", "Object of type object is not JSON serializable"),
    ],
)
def test_server_forwards_an_exception(
    shared: Server, vice: str, kind: str, message: str
) -> None:
    ending = shared.ask(request(vice))
    error = ending.raised
    assert error is not None
    assert (ending.how, ending.code) == ("exit", 0)
    assert (error.type, error.message) == (kind, message)
    assert echo(shared) == "still here"


def test_server_forwards_a_message_without_control_characters(shared: Server) -> None:
    assert echo(shared, "\x1b[31mred\x1b[0m\x07") == "red\\x07"


def test_server_forwards_both_ends_of_a_long_message(shared: Server) -> None:
    ending = shared.ask(request("raise_at_length"))
    assert ending.raised is not None
    message = ending.raised.message
    assert len(message) < 600_000
    assert (message[:5], message[-3:]) == ("begin", "end")
    assert len(str(classify_ending(replace(ending, stage="run")).signature)) < 3_000


def test_server_survives_an_exception_that_cannot_be_formatted(shared: Server) -> None:
    ending = shared.ask(request("raise_badly"))
    assert (ending.how, ending.code, ending.answer) == ("exit", 1, None)
    assert echo(shared) == "still here"


def test_server_survives_a_wrong_answer(shared: Server) -> None:
    ending = shared.ask(request("wrong_answer"))
    assert ending.how == "exit"
    assert ending.raised is not None  # it is taken for no pass
    assert "'list' object" in ending.raised.message
    assert echo(shared) == "still here"


def test_server_keeps_both_ends_of_the_output_of_a_check(shared: Server) -> None:
    ending = shared.ask(request("babble"))
    assert told(ending) == {"babble": True}
    first, gap, last = ending.log.partition("\n...\n")
    assert gap
    assert first == "\ufffd\\x00\ufffd{" * 4_000
    assert last.endswith("the last words\n")
    assert len(last) == 512_000 - 16_000 - len(gap)
    ending = shared.ask(request("segfault"))
    assert "Segmentation fault" in ending.log
    assert "the last words" not in ending.log
    assert "what went wrong" in shared.ask(request("exit_with_text")).log


def test_server_measures_a_check_and_its_descendants(shared: Server) -> None:
    ending = shared.ask(request("busy"))
    assert told(ending)["bytes"] == 100 << 20
    assert 0.35 < ending.cpu_seconds < 10
    assert 100 << 20 < ending.peak_rss_bytes < LIMIT
    idle = shared.ask(request("echo", word=""))
    assert 0 < idle.cpu_seconds < ending.cpu_seconds
    assert 0 < idle.peak_rss_bytes < 100 << 20


def test_server_counts_shared_pages_once(shared: Server) -> None:
    ending = shared.ask(request("share"))
    assert (ending.how, told(ending)) == ("exit", {"processes": 8})


def test_server_resets_signal_handlers_of_a_check(
    start: Callable[..., Server],
) -> None:
    with start("--ignores-children") as server:
        answer = told(server.ask(request("signals")))
        default = str(signal.SIG_DFL)
        assert answer == {"SIGTERM": default, "SIGCHLD": default}


@pytest.mark.parametrize("manner", ["--ignores-children", "--waits-for-children"])
def test_server_reads_exit_statuses_despite_a_preload_that_handles_sigchld(
    start: Callable[..., Server], manner: str
) -> None:
    with start(manner) as server:
        assert echo(server) == "still here"
        assert server.ask(request("segfault")).how == "signal"
        assert server.ask(request("exit_3")).code == 3


def test_server_takes_a_request_larger_than_a_pipe(shared: Server) -> None:
    assert echo(shared, "word" * 100_000) == "word" * 100_000


# --- the server's own end


def test_server_leaves_no_process_when_closed_twice(
    start: Callable[..., Server], survivors: Survivors
) -> None:
    server = start()
    assert echo(server) == "still here"
    server.close()
    server.close()
    assert survivors() == []
    assert not server.directory.exists()


@pytest.mark.parametrize("vice", ["kill_server_and_hang", "kill_server_in_storm"])
def test_killed_server_is_reported_and_leaves_no_process(
    start: Callable[..., Server], survivors: Survivors, vice: str
) -> None:
    with start() as server:
        with pytest.raises(WorkerError, match="SIGKILL while compiling") as caught:
            server.ask(request(vice))
        assert "loading" in caught.value.log
        with pytest.raises(WorkerError, match="SIGKILL while waiting for a request"):
            server.ask(request("echo", word=""))
    assert survivors() == []
    assert not server.directory.exists()


def lives(note: Path) -> bool:
    """Tell whether the process whose number is noted there has not ended."""
    try:
        status = Path(f"/proc/{int(note.read_text())}/stat").read_text()
    except FileNotFoundError:
        return False
    return ") Z " not in status


def test_worker_imports_shrinkfx_if_not_installed(tmp_path: Path) -> None:
    note = tmp_path / "path"
    code = f"import os; open({str(note)!r}, 'w').write(os.environ['PYTHONPATH'])"
    with pytest.raises(WorkerError):
        Server(command=(sys.executable, "-c", code))
    assert (Path(note.read_text().split(os.pathsep)[0]) / "shrinkfx/worker").is_dir()


TORCH_OF_ITS_OWN = """
import sys, shrinkfx
raise RuntimeError(f"shrinkfx at {shrinkfx.__file__}, first {sys.path[0]}")
"""


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    """A folder with modules of its user's, one of which has our name."""
    (tmp_path / "shrinkfx").mkdir()
    (tmp_path / "shrinkfx" / "__init__.py").write_text("raise RuntimeError('theirs')")
    (tmp_path / "torch.py").write_text(TORCH_OF_ITS_OWN)
    return tmp_path


@pytest.mark.parametrize("command", [WORKER, GUARDED_WORKER])
def test_worker_imports_modules_of_its_folder_first_except_shrinkfx(
    command: tuple[str, ...], folder: Path
) -> None:
    with pytest.raises(LoadError) as refused:
        Server(command=command, cwd=folder)
    assert f"shrinkfx at {shrinkfx.__file__}, first {folder}" in refused.value.reason


def test_fresh_worker_imports_modules_of_its_folder_first_except_shrinkfx(
    folder: Path,
) -> None:
    job = Job(Setup(directory=str(folder)), request("echo"))
    (folder / "job.json").write_text(job.to_line())
    done = subprocess.run(
        [*WORKER, "--once", str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"shrinkfx at {shrinkfx.__file__}, first {folder}" in done.stderr


def test_worker_imports_no_module_of_its_folder_with_pythonsafepath(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (folder / "torch.py").rename(elsewhere / "torch.py")
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    monkeypatch.setenv("PYTHONPATH", str(elsewhere))
    with pytest.raises(LoadError) as refused:
        Server(cwd=folder)
    assert f"first {ROOT}" in refused.value.reason


def test_server_ends_a_daemon_with_an_empty_environment(
    shared: Server, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    asked = request("leave_daemon_without_environment", note=str(note))
    assert told(shared.ask(asked)) == {"daemon": True}
    assert not lives(note)


def test_killed_server_leaves_no_daemon_with_an_empty_environment(
    start: Callable[..., Server], tmp_path: Path
) -> None:
    note = tmp_path / "note"
    with start() as server, start() as other:
        with pytest.raises(WorkerError, match="SIGKILL"):
            server.ask(request("kill_server_of_daemon", note=str(note)))
        server.close()
        assert not lives(note)
        assert echo(other) == "still here"


def test_server_leaves_no_process_when_terminated(
    start: Callable[..., Server],
    marked: Marked,
    survivors: Survivors,
    wait_for: WaitFor,
) -> None:
    server = start()
    (pid,) = marked()
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not server.directory.exists())
    assert survivors() == []
    with pytest.raises(WorkerError, match="died"):
        echo(server)


def test_server_raises_load_error_when_the_worker_cannot_load(
    start: Callable[..., Server], survivors: Survivors
) -> None:
    with pytest.raises(LoadError) as caught:
        start("--refuses")
    error = caught.value
    assert (str(error.subject), error.reason) == ("m.pt2", "not a zip")
    assert str(error.advice) == "save it again"
    assert survivors() == []


@pytest.mark.parametrize(
    ("manner", "message"),
    [
        ("--dies", "died with status 1 while loading\n.*\nno torch here"),
        (
            "--spins",
            "died with SIGXCPU while loading: loading took more than 300 CPU-seconds",
        ),
        ("--babbles", r"invalid message \('welcome to this machine'\) while loading"),
    ],
)
def test_failed_server_start_raises_worker_error(
    start: Callable[..., Server],
    survivors: Survivors,
    manner: str,
    message: str,
) -> None:
    before = list(scratch.root().iterdir())
    with pytest.raises(WorkerError, match=message):
        start(manner)
    assert survivors() == []
    assert list(scratch.root().iterdir()) == before


def test_server_start_ends_after_its_timeout(
    start: Callable[..., Server], survivors: Survivors, tmp_path: Path
) -> None:
    note = tmp_path / "directory"
    with pytest.raises(WorkerError, match=r"in 4 s \(loading\)\n.*\nloading"):
        start("--loads-for-ever", str(note), start_timeout_s=4.0)
    assert survivors() == []
    assert not Path(note.read_text()).exists()


def test_server_refuses_to_start_on_a_noexec_file_system(
    start: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each program would fail to load, and that would be reduced."""
    seen = SimpleNamespace(f_flag=os.ST_NOEXEC | os.ST_NOSUID)
    monkeypatch.setattr(os, "statvfs", lambda _: seen)
    before = {*scratch.root().iterdir()}
    with pytest.raises(UsageError, match=r"noexec.*set TMPDIR"):
        start()
    assert {*scratch.root().iterdir()} == before


def test_server_leaves_no_directory_when_its_command_is_missing(
    tmp_path: Path,
) -> None:
    before = list(scratch.root().iterdir())
    with pytest.raises(FileNotFoundError):
        Server(command=[str(tmp_path / "nothing")])
    assert list(scratch.root().iterdir()) == before


# --- the parent's end: Ctrl-C, and kill -9

PARENT = """
import sys
from pathlib import Path
from shrinkfx.check.client.server import GUARDED_WORKER, WORKER, Server
from shrinkfx.protocol.requests import CheckOptions, Request
from shrinkfx.protocol.requests import CheckOriginal

vices, vice, ready, note = sys.argv[1:]
with Server(command=[sys.executable, vices]) as server:
    Path(note).write_text(str(server.directory))
    try:
        asked = CheckOptions(inductor={"vice": vice, "ready": ready})
        server.ask(Request(CheckOriginal(), asked, timeout_s=60))
    except KeyboardInterrupt:
        print("interrupted")
    echo = CheckOptions(inductor={"vice": "echo", "word": "go on"})
    print(server.ask(Request(CheckOriginal(), echo)).answer)
"""

STUBBORN_PARENT = """
import signal
import sys
from pathlib import Path
from shrinkfx.check.client.server import GUARDED_WORKER, WORKER, Server
from shrinkfx.protocol.answers import Unresolved
from shrinkfx.protocol.requests import CheckOptions, Request
from shrinkfx.protocol.requests import CheckOriginal

vices, ready = sys.argv[1:]
number = interrupts = 0
with Server(command=[sys.executable, vices]) as server:
    Path(ready).touch()
    while interrupts < 30:
        try:
            while interrupts < 30:
                number += 1
                echo = CheckOptions(inductor={"vice": "echo", "word": number})
                asked = Request(CheckOriginal(), echo)
                assert server.ask(asked).answer == Unresolved(str(number))
        except KeyboardInterrupt:
            interrupts += 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
print("in step")
"""


@dataclass
class Parent:
    """A process that asks a server, in a session of its own as under a shell."""

    process: subprocess.Popen[str]
    note: Path

    @property
    def directory(self) -> Path:
        return Path(self.note.read_text())


def run(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


@pytest.fixture
def ask(
    vices: Path, marked: Marked, tmp_path: Path, wait_for: WaitFor
) -> Iterator[Callable[[str], Parent]]:
    """Start a parent and wait until its check is in the midst of the vice."""
    parents = []

    def ask(vice: str) -> Parent:
        ready, note = tmp_path / "ready", tmp_path / "note"
        parent = Parent(run(PARENT, vices, vice, ready, note), note)
        parents.append(parent)
        wait_for(ready.exists)
        return parent

    yield ask
    for parent in parents:
        parent.process.kill()
        parent.process.communicate()


def wait_for_removal(folder: Path, wait_for: WaitFor) -> None:
    """Wait until the folder of a killed run is gone.

    A test beside this one may find the killed run first. It kills the server, which
    then cannot remove its folder, and removes the folder itself a moment later.
    """
    wait_for(lambda: not folder.exists())


HANGING = [
    "hang_deaf",
    "storm_and_hang",
    "daemonise_and_hang",
    "leave_compiler_and_hang",
]


@pytest.mark.parametrize("vice", HANGING)
def test_server_ends_the_check_and_continues_after_ctrl_c(
    ask: Callable[[str], Parent], survivors: Survivors, vice: str
) -> None:
    parent = ask(vice)
    parent.process.send_signal(signal.SIGINT)
    said, _ = parent.process.communicate(timeout=600)
    assert said == "interrupted\nUnresolved(why='go on')\n"
    assert survivors() == []
    assert not parent.directory.exists()


@pytest.mark.parametrize("vice", HANGING)
def test_server_leaves_no_process_when_its_parent_is_killed(
    ask: Callable[[str], Parent], survivors: Survivors, wait_for: WaitFor, vice: str
) -> None:
    parent = ask(vice)
    parent.process.kill()
    parent.process.wait()
    assert survivors() == []
    wait_for_removal(parent.directory, wait_for)


def test_answers_match_queries_after_many_interrupts(
    vices: Path, marked: Marked, survivors: Survivors, tmp_path: Path, wait_for: WaitFor
) -> None:
    process = run(STUBBORN_PARENT, vices, tmp_path / "ready")
    wait_for((tmp_path / "ready").exists)
    enough = threading.Event()

    def interrupt() -> None:
        for number in range(1000):
            # Now before, now after the answer to a request that takes some 10 ms.
            if enough.wait(0.02 + number % 17 * 0.001):
                return
            process.send_signal(signal.SIGINT)

    sender = threading.Thread(target=interrupt)
    sender.start()
    try:
        assert process.stdout is not None
        said = process.stdout.read()
    finally:
        enough.set()
        sender.join()
        process.kill()
        process.communicate()
    assert said == "in step\n"
    assert survivors() == []


def test_server_answers_a_query_from_another_thread(shared: Server) -> None:
    endings: list[Ending] = []
    asking = request("echo", word="thread")
    thread = threading.Thread(target=lambda: endings.append(shared.ask(asking)))
    thread.start()
    thread.join(timeout=600)
    assert [ending.answer for ending in endings] == [Unresolved("thread")]


def test_server_leaves_no_process_when_its_parent_is_killed_during_loading(
    vices: Path, marked: Marked, survivors: Survivors, tmp_path: Path, wait_for: WaitFor
) -> None:
    note = tmp_path / "note"
    code = (
        "import sys; from shrinkfx.check.client.server import Server; "
        "Server(command=[sys.executable, *sys.argv[1:]])"
    )
    process = run(code, vices, "--loads-for-ever", note)
    wait_for(lambda: note.exists() and note.read_text())
    process.kill()
    process.communicate()
    assert survivors() == []
    wait_for_removal(Path(note.read_text()), wait_for)
