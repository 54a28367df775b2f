"""A server that is another one's stem: as good as new, and never left behind."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.doubles import request_of, told

from shrinkfx.check.client.server import Server
from shrinkfx.check.client.zygote import ADOPTION, Zygote
from shrinkfx.errors import WorkerError
from shrinkfx.protocol.requests import MARK

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def as_in_a_plain_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("PYTHON", "TORCH", "PYTORCH", "OMP_", "MKL_")):
            monkeypatch.delenv(name)


@pytest.fixture
def start(vices: Path) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*manner: str, **settings: Any) -> Server:
        command = [sys.executable, str(vices), *manner]
        servers.append(Server(command=command, **settings))
        return servers[-1]

    yield start
    for server in reversed(servers):
        server.close()


def seen_by(server: Server) -> dict[str, Any]:
    """Tell what a child of the server finds around it, whatever server it is."""
    found = dict(told(server.ask(request_of("surroundings"))))
    del found["environment"][MARK]
    assert found.pop("folder") == f"{server.directory}/empty"
    held = [name.rpartition("/")[2] for name in found["held"]]
    # What a script starts with is its folder; a worker starts in this one.
    return found | {"path": found["path"][1:], "held": held}


def test_server_from_a_zygote_equals_a_new_server(
    start: Callable[..., Server], survivors: Callable[[], list[str]]
) -> None:
    main = start(leaves_zygote=True, environment={})
    new, grown = start(environment=None), start(environment=None, zygote_of=main)
    assert main.ready.zygote == grown.pid != new.pid
    assert seen_by(grown) == seen_by(new)
    assert grown.ask(request_of("segfault")).how == "signal"
    assert told(grown.ask(request_of("daemonise"))) == {"daemon": True}
    assert told(main.ask(request_of("daemonise"))) == {"daemon": True}
    assert seen_by(grown) == seen_by(new)
    for server in (new, grown, main):
        server.close()
    assert survivors() == []
    assert not grown.directory.exists()


def test_server_works_after_starting_a_zygote(
    start: Callable[..., Server],
) -> None:
    main, other = start(leaves_zygote=True), start()
    pipes = [told(s.ask(request_of("list_pipes"))) for s in (main, other)]
    assert pipes[0] == pipes[1]
    assert main.ask(request_of("runaways")).how == "exit"
    grown = start(environment=None, zygote_of=main)
    assert isinstance(grown._process, Zygote)


@pytest.mark.parametrize("name", ["TORCH_LOGS", "OMP_NUM_THREADS", "PYTHONHASHSEED"])
def test_zygote_with_other_variables_is_not_used(
    start: Callable[..., Server], name: str
) -> None:
    main = start(leaves_zygote=True, environment={name: "1"})
    bare = start(environment=None, zygote_of=main)
    assert bare.pid != main.ready.zygote != 0
    assert name not in seen_by(bare)["environment"]


def test_script_server_has_the_requested_hash_seed(
    start: Callable[..., Server],
) -> None:
    main = start(leaves_zygote=True, environment={"PYTHONHASHSEED": "3"})
    other = start(environment=None, zygote_of=main, hash_seed="4")
    assert seen_by(other)["environment"]["PYTHONHASHSEED"] == "4"
    assert other.pid != main.ready.zygote
    same = start(environment=None, zygote_of=main, hash_seed="3")
    assert same.pid == main.ready.zygote
    assert seen_by(same)["environment"]["PYTHONHASHSEED"] == "3"


def test_variables_of_a_python_image_do_not_prevent_use_of_a_zygote(
    start: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON_VERSION", "3.11.7")
    main = start(leaves_zygote=True)
    bare = start(environment=None, zygote_of=main)
    assert bare.pid == main.ready.zygote
    assert "PYTHON_VERSION" not in seen_by(bare)["environment"]


def test_zygote_of_another_command_is_not_used(
    start: Callable[..., Server],
) -> None:
    main = start("--waits-for-children", leaves_zygote=True)
    assert start(environment=None, zygote_of=main).pid != main.ready.zygote


def test_zygote_is_used_once(start: Callable[..., Server]) -> None:
    main = start(leaves_zygote=True)
    first, second = (start(environment=None, zygote_of=main) for _ in range(2))
    assert first.pid == main.ready.zygote != second.pid


def test_killed_zygote_is_replaced_by_a_new_server(
    start: Callable[..., Server], wait_for: Callable[[Callable[[], object]], None]
) -> None:
    main = start(leaves_zygote=True)
    os.kill(main.ready.zygote, signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{main.ready.zygote}/exe").exists())
    assert start(environment=None, zygote_of=main).pid != main.ready.zygote


def test_zygote_that_dies_on_use_is_replaced_by_a_new_server(
    start: Callable[..., Server],
) -> None:
    main = start("--dies-when-grown", leaves_zygote=True)
    bare = start("--dies-when-grown", environment=None, zygote_of=main)
    assert bare.pid != main.ready.zygote != 0
    seen_by(bare)


def test_death_of_a_server_from_a_zygote_is_reported(
    start: Callable[..., Server],
) -> None:
    main = start(leaves_zygote=True)
    bare = start(environment=None, zygote_of=main)
    with pytest.raises(WorkerError, match="SIGKILL while compiling"):
        bare.ask(request_of("kill_server_and_hang"))
    bare.close()
    bare.start()
    seen_by(bare)


def test_cpu_time_of_a_server_from_a_zygote_is_counted(
    start: Callable[..., Server],
) -> None:
    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    main = start(leaves_zygote=True)
    bare, before = start(environment=None, zygote_of=main), used()
    ending = bare.ask(request_of("busy"))
    bare.close()
    assert used() - before > 0.35
    assert ending.cpu_seconds > 0.35


def test_zygote_that_cannot_be_adopted_is_not_used(
    start: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing:
        def prctl(self, *_: object) -> int:
            return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Refusing())
    main = start(leaves_zygote=True)
    monkeypatch.undo()
    bare = start(environment=None, zygote_of=main)
    assert bare.pid != main.ready.zygote
    seen_by(bare)


def test_adoption_of_orphans_lasts_only_during_server_starts() -> None:
    def adopts() -> bool:
        found = ctypes.c_int()
        ctypes.CDLL(None).prctl(37, ctypes.byref(found), 0, 0, 0)
        return bool(found)

    assert not adopts()
    with ADOPTION:
        with ADOPTION:
            assert adopts()
        assert adopts()
    assert not adopts()


def test_zygote_ends_with_its_server(
    start: Callable[..., Server], survivors: Callable[[], list[str]]
) -> None:
    main = start(leaves_zygote=True)
    stem = main.ready.zygote
    main.close()
    assert survivors() == []
    main.start()
    assert main.ready.zygote not in (0, stem)
    main.close()
    assert survivors() == []


PARENT = """
import sys, time
from shrinkfx.check.client.server import Server

with Server(command=[sys.executable, sys.argv[1]], leaves_zygote=True) as server:
    print(server.ready.zygote, flush=True)
    time.sleep(1000)
"""


def test_zygote_ends_with_a_killed_parent(
    vices: Path, survivors: Callable[[], list[str]], marked: Callable[[], list[int]]
) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(vices)], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    assert int(parent.stdout.readline()) in marked()
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert survivors() == []


ASK = """
import sys
{imports}
from shrinkfx.worker.forkserver.zygote import has_no_local_modules
print(has_no_local_modules())
"""


@pytest.mark.parametrize("kind", ["none", "module", "package", "unused"])
def test_server_that_imported_user_modules_starts_no_zygote(
    tmp_path: Path, kind: str
) -> None:
    imports = "import sympy_of_mine" if kind in ("module", "package") else ""
    (tmp_path / "ask.py").write_text(ASK.format(imports=imports))
    package = tmp_path / "sympy_of_mine"
    if kind == "package":
        package.mkdir()
        (package / "__init__.py").touch()
    elif kind != "none":
        package.with_suffix(".py").touch()
    done = subprocess.run(
        [sys.executable, "-m", "ask"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONNOUSERSITE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(not imports)
