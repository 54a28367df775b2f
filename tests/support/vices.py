"""A server without torch whose children misbehave, each in a way of its own.

``vices.py [MANNER]`` serves as ``shrinkfx.worker`` does; a request names the
vice in its arguments. Each answers with a reason, or with JSON in the place of one.
``vices.py --once REQUEST FOLDER`` supervises one child and prints its ending. A vice
that goes on for ever touches the file ``ready`` first.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import json
import os
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shrinkfx.protocol.answers import Description, Ending, Ready, Unresolved
from shrinkfx.protocol.requests import Request, Setup
from shrinkfx.system import processes
from shrinkfx.system.processes import list_descendants
from shrinkfx.worker.forkserver.serve import Line, open_connection, serve
from shrinkfx.worker.forkserver.supervise import Note, Work, become_subreaper, supervise
from shrinkfx.worker.forkserver.zygote import fork_zygote


def _told(request: Request) -> Mapping[str, Any]:
    return request.options.inductor


Answer = dict[str, Any] | str | Description
Vice = Callable[[Request, Path], Answer]


def echo(request: Request, folder: Path) -> Answer:
    return str(_told(request)["word"])


def core_limit(request: Request, folder: Path) -> Answer:
    return {"limit": resource.getrlimit(resource.RLIMIT_CORE)[0]}


def surroundings(request: Request, folder: Path) -> Answer:
    held = sorted(os.readlink(entry) for entry in _descriptors())
    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": sys.path,
        "held": [name.partition(":")[0] for name in held],
        "SIGTERM": str(signal.getsignal(signal.SIGTERM)),
    }


def list_pipes(request: Request, folder: Path) -> Answer:
    held = [os.readlink(entry) for entry in _descriptors()]
    return {"pipes": [name for name in held if name.startswith("pipe:")]}


def segfault(request: Request, folder: Path) -> Answer:
    ctypes.string_at(0)
    return {}


def segfault_by_signal(request: Request, folder: Path) -> Answer:
    os.kill(os.getpid(), signal.SIGSEGV)
    return {}


def abort(request: Request, folder: Path) -> Answer:
    print("about to abort")
    os.abort()


def killed_from_outside(request: Request, folder: Path) -> Answer:
    subprocess.Popen(["kill", "-9", str(os.getpid())])
    return hang(request, folder)


def hang(request: Request, folder: Path) -> Answer:
    _tell(request)
    while True:
        time.sleep(1000)


def meet(request: Request, folder: Path) -> Answer:
    """Wait for another child to be here at the same time."""
    mine, other = (Path(_told(request)[name]) for name in ("mine", "other"))
    mine.touch()
    while not other.exists():
        time.sleep(0.01)
    return "met"


def hang_deaf(request: Request, folder: Path) -> Answer:
    _ignore_signals()
    return hang(request, folder)


def hang_on_the_gil(request: Request, folder: Path) -> Answer:
    """No Python signal handler ever runs while a C function does not return."""
    _tell(request)
    ctypes.PyDLL(None).pause()
    return {}


def kill_server(request: Request, folder: Path) -> Answer:
    """Kill it as often as the file ``deaths`` says, and note each time in it."""
    deaths = Path(_told(request)["deaths"])
    left = int(deaths.read_text())
    if left:
        deaths.write_text(str(left - 1))
        os.kill(os.getppid(), signal.SIGKILL)
        return hang(request, folder)
    return "survived"


def count_calls(request: Request, folder: Path) -> Answer:
    """Note a call in a file, as whoever describes a program leaves values behind."""
    with Path(_told(request)["calls"]).open("a") as calls:
        calls.write("call\n")
    texts = ("skeleton.json", "", "")
    return Description(*texts, (), (), inputs=1, dynamic_dims=0, keeps_state=False)


def fill_the_disk(request: Request, folder: Path) -> Answer:
    if line := _told(request).get("line"):  # as a compiler or a linker does
        print(line)
        os.abort()
    said = os.strerror(errno.ENOSPC) + _told(request).get("why", "")
    raise OSError(errno.ENOSPC, said, _told(request).get("place", "model.pt2"))


def unpack_and_die(request: Request, folder: Path) -> Answer:
    """Leave what PyTorch 2.11's loader does, as a program that crashes."""
    _unpack(request, folder)
    os.abort()


def unpack_and_hang(request: Request, folder: Path) -> Answer:
    _unpack(request, folder)
    return hang(request, folder)


def _unpack(request: Request, folder: Path) -> None:
    unpacked = Path(tempfile.mkdtemp("", "", "/tmp"))
    unpacked = unpacked.rename(unpacked.with_name(secrets.token_hex(3)))
    model = unpacked / "model" / "data" / "aotinductor" / "model"
    model.mkdir(parents=True)
    text = f"// Compile cmd\n// g++ -c -o {folder}/inductor/cab/cab.o\n"
    (model / "cab.wrapper.cpp").write_text(text)
    Path(_told(request)["note"]).write_text(str(unpacked))


def remove_server_folder(request: Request, folder: Path) -> Answer:
    """What a cleaner of ``$TMPDIR`` does; without a trace in the answer."""
    shutil.rmtree(folder.parent)
    os._exit(0)


def remove_child_folder(request: Request, folder: Path) -> Answer:
    shutil.rmtree(folder)
    os._exit(0)


def allocate(request: Request, folder: Path) -> Answer:
    hoard = []
    while True:
        hoard.append(bytearray(b"x") * (8 << 20))
        time.sleep(0.01)


def allocate_in_children(request: Request, folder: Path) -> Answer:
    """None of them is over the limit, all of them are."""
    for _ in range(8):
        if os.fork() == 0:
            hoard = bytearray(b"x") * (60 << 20)
            time.sleep(1000)
            del hoard
    return hang(request, folder)


def share(request: Request, folder: Path) -> Answer:
    """Together they hold 120 MB; added up, eight times that."""
    hoard = bytearray(b"x") * (120 << 20)
    reader, writer = os.pipe()
    for _ in range(7):
        if os.fork() == 0:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
    time.sleep(0.5)
    os.close(writer)
    for _ in range(7):
        os.wait()
    del hoard
    return {"processes": 8}


def fork(request: Request, folder: Path) -> Answer:
    for _ in range(3):
        if os.fork() == 0:
            os.fork()
            os.fork()
            time.sleep(1000)
    return {"forked": True}


def fork_and_hang(request: Request, folder: Path) -> Answer:
    fork(request, folder)
    return hang(request, folder)


def twin(request: Request, folder: Path) -> Answer:
    """Both come back and want to answer, the copy first."""
    original = os.fork()
    if original:
        os.waitpid(original, 0)
    return {"original": bool(original)}


def failing_twin(request: Request, folder: Path) -> Answer:
    if original := os.fork():
        os.waitpid(original, 0)
        return {"original": True}
    raise ValueError("the copy fails")


def storm(request: Request, folder: Path) -> Answer:
    """Fifty chains of processes: each forks the next and ends."""
    _storm(chains=50, pause_s=0.2)
    return {"storm": True}


def storm_and_hang(request: Request, folder: Path) -> Answer:
    _storm(chains=50, pause_s=0.2)
    return hang(request, folder)


def runaways(request: Request, folder: Path) -> Answer:
    """As ``storm``, and each has a session of its own."""
    _storm(chains=10, pause_s=0.2, own_session=True)
    return {"storm": True}


def daemonise(request: Request, folder: Path) -> Answer:
    _daemonise()
    return {"daemon": True}


def daemonise_and_hang(request: Request, folder: Path) -> Answer:
    _daemonise()
    _ignore_signals()
    return hang(request, folder)


def leave_daemon_without_environment(request: Request, folder: Path) -> Answer:
    """It has another parent, another session, and nothing in its environment."""
    note = _told(request)["note"]
    if os.fork() == 0:
        daemon = f"echo $$ > {note}.new; mv {note}.new {note}; exec sleep 1000"
        subprocess.Popen(["/bin/sh", "-c", daemon], env={}, start_new_session=True)
        os._exit(0)
    while not Path(note).exists():
        time.sleep(0.01)
    return {"daemon": True}


def kill_server_of_daemon(request: Request, folder: Path) -> Answer:
    leave_daemon_without_environment(request, folder)
    os.kill(os.getppid(), signal.SIGKILL)
    return hang(request, folder)


def leave_daemon_and_hang(request: Request, folder: Path) -> Answer:
    leave_daemon_without_environment(request, folder)
    return hang(request, folder)


def leave_compiler(request: Request, folder: Path) -> Answer:
    subprocess.Popen(["sleep", "1000"])
    return {"compiler": True}


def leave_compiler_and_hang(request: Request, folder: Path) -> Answer:
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    return hang(request, folder)


def half_an_answer(request: Request, folder: Path) -> Answer:
    (folder / "answer.json").write_text('{"half": ')
    os._exit(0)


def wrong_answer(request: Request, folder: Path) -> Answer:
    (folder / "answer.json").write_bytes(b'["no", "object"]')
    (folder / "stage").write_bytes(b"\xff\xfe")
    os._exit(0)


def deep_answer(request: Request, folder: Path) -> Answer:
    (folder / "answer.json").write_text("[" * 100_000)
    os._exit(0)


def no_json(request: Request, folder: Path) -> Answer:
    return {"answer": object()}


def big_answer(request: Request, folder: Path) -> Answer:
    return {"big": "x" * (1 << 20)}


def babble(request: Request, folder: Path) -> Answer:
    for _ in range(3):
        os.write(1, b"\xff\x00\xfe{" * (1 << 18))
        os.write(2, b'"cancel"\n' * (1 << 16))
    print("the last words", flush=True)
    return {"babble": True}


def speak_on_every_descriptor(request: Request, folder: Path) -> Answer:
    answer = Unresolved(json.dumps({"forged": True}))
    forged = Ending("exit", answer=answer).to_line().encode() + b"vice\n"
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, forged)
        except OSError:
            continue
    return {"forged": False}


def raise_error(request: Request, folder: Path) -> Answer:
    raise ValueError("no such thing")


def lose_gpu(request: Request, folder: Path) -> Answer:
    raise RuntimeError("CUDA error: no CUDA-capable device is detected")


def raise_at_length(request: Request, folder: Path) -> Answer:
    raise ValueError(f"begin{'x' * (4 << 20)}end")


def raise_badly(request: Request, folder: Path) -> Answer:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    raise Unprintable


def exit_3(request: Request, folder: Path) -> Answer:
    sys.exit(3)


def exit_with_text(request: Request, folder: Path) -> Answer:
    sys.exit("what went wrong")


def exit_with_too_much(request: Request, folder: Path) -> Answer:
    sys.exit(1 << 40 | 7)


def close_all(request: Request, folder: Path) -> Answer:
    os.closerange(0, 256)
    return {"closed": True}


def close_all_and_raise(request: Request, folder: Path) -> Answer:
    os.closerange(0, 256)
    raise ValueError("closed")


def busy(request: Request, folder: Path) -> Answer:
    """Burn 0.2 CPU-seconds here and 0.2 in a child, with 100 MB each."""
    child = os.fork()
    hoard = bytearray(b"x") * (100 << 20)
    while time.process_time() < 0.2:
        pass
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return {"bytes": len(hoard)}


def hold(request: Request, folder: Path) -> Answer:
    """Hold 200 MB for longer than it takes to be seen."""
    hoard = bytearray(b"x") * (200 << 20)
    time.sleep(1)
    return {"bytes": len(hoard)}


def spin(request: Request, folder: Path) -> Answer:
    """Burn CPU-seconds on a core of one's own choice."""
    os.sched_setaffinity(0, {_told(request)["core"]})
    while time.process_time() < _told(request)["cpu_s"]:
        pass
    return {"cpu_s": time.process_time()}


def signals(request: Request, folder: Path) -> Answer:
    names = ("SIGTERM", "SIGCHLD")
    return {name: str(signal.getsignal(getattr(signal, name))) for name in names}


def kill_server_and_hang(request: Request, folder: Path) -> Answer:
    """The compiler and a copy of the child outlive the server, the child does not."""
    server = os.getppid()
    subprocess.Popen(["sleep", "1000"])
    if os.fork() == 0:
        time.sleep(1000)
    os.kill(server, signal.SIGKILL)
    return hang(request, folder)


def kill_server_in_storm(request: Request, folder: Path) -> Answer:
    server = os.getppid()
    _storm(chains=20, pause_s=0.2)
    _daemonise()
    os.kill(server, signal.SIGKILL)
    return hang(request, folder)


def _descriptors() -> list[str]:
    folder = "/proc/self/fd"
    return [
        entry for fd in os.listdir(folder) if os.path.islink(entry := f"{folder}/{fd}")
    ]


def _tell(request: Request) -> None:
    if ready := _told(request).get("ready"):
        Path(ready).touch()


def _ignore_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _storm(chains: int, pause_s: float, *, own_session: bool = False) -> None:
    for _ in range(chains):
        if os.fork() == 0:
            while os.fork() == 0:
                if own_session:
                    os.setsid()
                time.sleep(pause_s)
            os._exit(0)


def _daemonise() -> None:
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        _ignore_signals()
        os.closerange(0, writer)
        os.write(writer, b"!")
        os.closerange(0, 256)
        while True:
            time.sleep(1000)
    os.read(reader, 1)


def work(request: Request) -> Work:
    # No child is born of a fork's request.
    vice: Vice = globals()[_told(request).get("vice", "hang")]

    def do(note: Note, folder: Path) -> Unresolved | Description:
        note("vice")
        said = vice(request, folder)
        if isinstance(said, Description):
            return said
        return Unresolved(said if isinstance(said, str) else json.dumps(said))

    return do


def main() -> None:
    manner = sys.argv[1] if len(sys.argv) > 1 else ""
    if manner == "--once":
        _once(Request.from_line(sys.argv[2]), Path(sys.argv[3]))
        return
    if manner == "--dies":
        sys.exit("no torch here")
    if manner == "--spins":
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        signal.raise_signal(signal.SIGXCPU)
    if manner == "--babbles":
        print("welcome to this machine", flush=True)
    if manner == "--ignores-children":
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with os.fdopen(0, "rb", buffering=0, closefd=False) as stdin:
        setup = Setup.from_line(stdin.readline())
    directory = Path(setup.directory)
    line = open_connection(directory / "server.log")
    print("loading", flush=True)
    if manner == "--ignores-children":  # as a preload may
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if manner == "--waits-for-children":
        signal.signal(signal.SIGCHLD, lambda *_: os.wait())
    if manner == "--loads-for-ever":
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        Path(sys.argv[2]).write_text(setup.directory)
        time.sleep(1000)
    setup, line, stem = fork_zygote(setup, line)
    if manner == "--dies-when-grown" and setup.directory != str(directory):
        sys.exit("no torch here")
    directory = Path(setup.directory)
    _greet(line, manner, stem)
    if manner != "--refuses":
        serve(line, work, directory)


def _greet(line: Line, manner: str, stem: int) -> None:
    if manner == "--refuses":
        line.write(Ready("not a zip", "m.pt2", "save it again"))
    elif manner != "--babbles":
        line.write(Ready(versions={"vices": "1"}, zygote=stem))


def _once(request: Request, folder: Path) -> None:
    become_subreaper()
    told, looked_at = _told(request), set[str]()

    def cancelled() -> bool:
        if told.get("lost"):
            for pid in list_descendants(os.getpid()):
                os.kill(pid, signal.SIGKILL)
            os.wait()  # the child is nobody else's to wait for
        return False

    def notice(event: str, arguments: tuple[object, ...]) -> None:
        match event, arguments:
            case "open" | "os.listdir", [str(path), *_] if path.startswith("/proc/"):
                looked_at.add(path.split("/")[2])

    if told.get("old_kernel"):
        _take_back_a_kernel()
    if "looked_at" in told:
        sys.addaudithook(notice)
    ending = supervise(work(request), request, folder, cancelled)
    if "looked_at" in told:
        Path(told["looked_at"]).write_text(" ".join(sorted(looked_at)))
    print(ending.to_line(), end="", flush=True)


def _take_back_a_kernel() -> None:
    """Have this process's be one without descriptors of processes, or their lists."""

    def refuse(pid: int, flags: int = 0) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    os.pidfd_open = refuse
    processes.kernel_lists_children = functools.cache(lambda: False)


if __name__ == "__main__":
    main()
