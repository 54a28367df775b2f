"""Several interpreters that run one script compile each text once."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from shrinkfx.worker.aoti.object_store import path_with_compiler

COMPILER = """#!/bin/sh
echo "$*" >> {log}
case "$*" in *wrong*) exit 3 ;; esac
for last; do :; done
echo object > "$last"
"""


class Server:
    """The folder of a server, and a compiler that logs its calls."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._log = folder, folder / "calls.log"
        compiler = folder / "usual" / "g++"
        compiler.parent.mkdir()
        compiler.write_text(COMPILER.format(log=self._log))
        compiler.chmod(0o755)
        self.environment = {
            "PATH": f"{compiler.parent}{os.pathsep}{os.environ['PATH']}"
        }

    def compile(self, child: str, text: str, name: str = "a.cpp") -> int:
        """Compile a text in the folder of a child; return the exit code."""
        folder = self._folder / child
        folder.mkdir()
        source, target = folder / name, folder / "a.wrapper.o"
        source.write_text(text)
        environment = self.environment | path_with_compiler(folder, self.environment)
        # As Inductor calls it: through PATH, with the paths of this child.
        command = ["g++", str(source), "-O1", "-c", "-o", str(target)]
        code = subprocess.run(command, env=environment).returncode
        assert target.exists() == (code == 0)
        return code

    @property
    def calls(self) -> list[str]:
        return self._log.read_text().splitlines()


@pytest.fixture(name="server")
def _server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def test_second_interpreter_reuses_the_object_of_the_first(server: Server) -> None:
    server.compile("child-1", "int one;\n")
    server.compile("child-2", "int one;\n")
    assert len(server.calls) == 1
    server.compile("child-3", "int two;\n")
    assert len(server.calls) == 2


def test_source_that_fails_to_compile_is_compiled_each_time(server: Server) -> None:
    assert server.compile("child-1", "", "wrong.cpp") == 3
    assert server.compile("child-2", "", "wrong.cpp") == 3
    assert len(server.calls) == 2


def test_other_commands_reach_the_compiler_unchanged(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "child").mkdir()
    found = path_with_compiler(tmp_path / "child", server.environment)
    environment = server.environment | found
    link = ["a.wrapper.o", "a b.o", "-o", str(tmp_path / "a.so")]
    for arguments in (["--version"], link):
        command = ["g++", *arguments]
        subprocess.run(command, env=environment, check=True, cwd=tmp_path)
    assert server.calls == ["--version", " ".join(link)]


def test_compiler_chosen_with_cxx_is_not_replaced(
    server: Server, tmp_path: Path
) -> None:
    assert path_with_compiler(tmp_path, {**server.environment, "CXX": "clang++"}) == {}


def test_path_is_unchanged_without_a_compiler(tmp_path: Path) -> None:
    assert path_with_compiler(tmp_path, {"PATH": str(tmp_path)}) == {}
