"""Objects and libraries that children of a server share."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from torch._inductor.cpp_builder import CppBuilder
from torch.utils import cpp_extension

from shrinkfx.check.client.server import Server
from shrinkfx.check.oracle import Limits, Meter
from shrinkfx.check.script import ScriptRunner
from shrinkfx.failure.signature import Kind
from shrinkfx.failure.verdict import Observation
from shrinkfx.protocol.answers import Built
from shrinkfx.protocol.choices import Build, Step
from shrinkfx.protocol.requests import CheckOptions, Request, RunScript
from shrinkfx.worker.aoti.object_store import MOST, OF_INTERPRETERS, path_with_compiler
from shrinkfx.worker.aoti.shared_libraries import (
    compile_everything,
    shared_extensions,
    shared_objects,
)

TEXT = "int kernel;\n"


class Compiler:
    """A builder in a child's folder, which counts what it compiles."""

    compiled = 0

    def __init__(
        self, child: Path, text: str = TEXT, flags: str = "-O1", kind: str = "kernel"
    ) -> None:
        child.mkdir(exist_ok=True)
        self.source, self.target = child / f"a.{kind}.cpp", child / f"a.{kind}.o"
        self.source.write_text(text)
        self._flags = flags

    def get_target_file_path(self) -> str:
        return str(self.target)

    def get_command_line(self) -> str:
        return f"g++ {self.source} {self._flags} -c -o {self.target}"

    def build(self) -> str:
        """Compile as a child would, and say what the object holds."""
        builder: Any = self
        with shared_objects(self.source.parent):
            CppBuilder.build(builder)
        return self.target.read_text()


@pytest.fixture(name="server")
def _server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a server whose compiler numbers what it makes."""

    def build(compiler: Compiler) -> None:
        if "error" in compiler.source.read_text():
            raise RuntimeError("it does not compile")
        Compiler.compiled += 1
        compiler.target.write_text(f"object {Compiler.compiled}")
        with compiler.source.open("a") as source:
            source.write(f"\n// Compile cmd\n// {compiler.get_command_line()}\n")

    monkeypatch.setattr(CppBuilder, "build", build)
    monkeypatch.setattr(Compiler, "compiled", 0)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "stems"),
    [
        (TEXT, "aa"),
        ('#line 1 "{folder}/a.cpp"\n', "aa"),
        # It is named for its text, and that names a header in the child's folder.
        ('#include "{folder}/prefix.h"\n', ("cabc", "cdef")),
    ],
)
def test_second_child_reuses_the_object_of_the_first(
    server: Path, text: str, stems: Sequence[str]
) -> None:
    made = []
    for number, stem in enumerate(stems):
        folder = server / f"child-{number}"
        compiler = Compiler(folder, text.format(folder=folder))
        compiler.source = compiler.source.rename(folder / f"{stem}.kernel.cpp")
        compiler.target = compiler.target.with_name(f"{stem}.kernel.o")
        made.append(compiler.build())
    assert made == ["object 1"] * 2


def test_child_can_be_made_to_compile_everything(server: Path) -> None:
    """What it leaves for an explanation is to name its own files."""
    Compiler(server / "child-1").build()
    with compile_everything():
        assert Compiler(server / "child-2").build() == "object 2"
    assert Compiler(server / "child-3").build() == "object 2"


def test_compile_command_in_a_source_does_not_prevent_reuse(server: Path) -> None:
    """The texts lie in a cache that they share, too."""
    compiler = Compiler(server / "child-1")
    compiler.build()
    assert "// Compile cmd" in compiler.source.read_text()
    assert compiler.build() == "object 1"


@pytest.mark.parametrize(
    "other",
    [
        {"text": "int kernel = 1;\n"},
        {"text": "// one line below\nint kernel;\n"},
        {"flags": "-O3"},
        {"kind": "wrapper"},
    ],
)
def test_object_of_another_source_or_flags_is_compiled(
    server: Path, other: dict[str, str]
) -> None:
    assert Compiler(server / "child-1").build() == "object 1"
    assert Compiler(server / "child-2", **other).build() == "object 2"


def test_only_the_newest_objects_are_kept(server: Path) -> None:
    """Those of a long search would fill the disk."""
    for number in range(MOST + 3):
        Compiler(server / f"child-{number}", f"int kernel = {number};\n").build()
        for each in server.glob("object-*"):  # a clock that ticks
            os.utime(each, ns=(each.stat().st_mtime_ns - 10**9,) * 2)
    assert len(list(server.glob("object-*"))) == MOST
    last = f"int kernel = {MOST + 2};\n"
    assert Compiler(server / "again", last).build() == f"object {MOST + 3}"
    assert Compiler(server / "first", "int kernel = 0;\n").build() == (
        f"object {MOST + 4}"
    )


def test_weights_object_is_not_shared(server: Path) -> None:
    for n in (1, 2):
        assert Compiler(server / f"child-{n}", kind="weights").build() == f"object {n}"


def test_source_that_does_not_compile_is_retried(server: Path) -> None:
    for n in (1, 2):
        with pytest.raises(RuntimeError, match="does not compile"):
            Compiler(server / f"child-{n}", "error").build()
    assert not list(server.glob("object-*"))


def test_object_is_compiled_if_sharing_fails(server: Path) -> None:
    Compiler(server / "child-1").build()
    (left,) = server.glob("object-*")
    left.unlink()
    left.mkdir()
    for n in (2, 3):
        assert Compiler(server / f"child-{n}").build() == f"object {n}"


SCRIPT = """
import torch

class Sum(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = WEIGHT

    def forward(self, x):
        return (x + self.weight,)

args = (torch.rand(8),)
model = Sum()
with torch.no_grad():
    program = torch.export.export(model, args)
    package = torch._inductor.aoti_compile_and_package(program)
    actual = torch._inductor.aoti_load_package(package)(*args)
assert False, f"the sum is right: {torch.equal(actual[0], args[0] + model.weight)}"
"""
RIGHT = "the sum is right: True"


class Script:
    """A script and a server without a program, which runs it."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.path = server, folder / "repro.py"
        self._runner = ScriptRunner(server, Limits(300.0, 8 << 30), Meter())

    def write(self, weight: str) -> None:
        self.path.write_text(SCRIPT.replace("WEIGHT", weight))

    def run(self, *, fresh: bool) -> Observation:
        return self._runner.run([self.path], fresh=fresh)

    def objects(self, store: str = "object") -> list[Path]:
        return sorted(self.server.directory.glob(f"{store}-*"))


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    with Server(environment=None) as bare:
        yield Script(bare, tmp_path)


@pytest.mark.aoti
def test_script_in_a_fork_is_built_like_a_candidate(script: Script) -> None:
    script.write("2.0")
    options = CheckOptions(build=Build.FAST)
    task = RunScript(str(script.path), str(script.path.parent))
    ending = script.server.ask(Request(task, options, timeout_s=300.0))
    assert RIGHT in ending.log
    assert ending.built == Built(Build.FAST, Step.LINK)


@pytest.mark.aoti
def test_forks_share_objects_but_a_new_interpreter_does_not(script: Script) -> None:
    script.write("1")
    assert all(RIGHT in script.run(fresh=False).log for _ in range(2))
    objects = script.objects()
    assert len(objects) == 2
    for each in objects:
        each.write_text("no object")
    fork, fresh = (script.run(fresh=fresh) for fresh in (False, True))
    assert fork.signature is not None
    assert fork.signature.kind is Kind.COMPILE_ERROR  # what it links is none
    assert RIGHT in fresh.log
    assert script.objects() == objects


@pytest.mark.aoti
@pytest.mark.parametrize("weight", ["1", "torch.nn.Parameter(torch.rand(512, 8))"])
def test_fork_takes_the_objects_of_a_new_interpreter(
    script: Script, weight: str
) -> None:
    script.write(weight)
    assert RIGHT in script.run(fresh=True).log
    assert script.objects(OF_INTERPRETERS)
    assert RIGHT in script.run(fresh=False).log
    assert script.objects() == []
    script.write("2")
    assert RIGHT in script.run(fresh=False).log
    assert len(script.objects()) == 2


# --- extensions of the user


NINJA = """\
cflags = -isystem /opt/torch/include {flags}

build main.o: compile {source}

build ops.so: link main.o
"""


@pytest.fixture(name="compiled")
def _compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """List the texts that were compiled, in the place of what runs ninja."""
    texts: list[str] = []

    def ninja(build_directory: str, verbose: bool, error_prefix: str) -> None:
        texts.append((Path(build_directory) / "main.cpp").read_text())
        assert texts[-1], error_prefix
        (Path(build_directory) / "ops.so").write_text(f"library of {texts[-1]}")

    monkeypatch.setattr(cpp_extension, "_run_ninja_build", ninja)
    return texts


@pytest.fixture(name="build")
def _build(tmp_path: Path) -> Callable[..., str]:
    """Give what compiles a text in a child of its own, and tells what it loads."""

    def build(child: str, text: str, flags: str = "", source: str = "") -> str:
        folder = tmp_path / child
        made = folder / "home" / "ops"
        made.mkdir(parents=True)
        (made / "main.cpp").write_text(text)
        told = NINJA.format(flags=flags, source=source or made / "main.cpp")
        (made / "build.ninja").write_text(told)
        script = folder / "repro.py"
        script.write_text("from torch.utils.cpp_extension import load_inline")
        with shared_extensions(folder, script):
            cpp_extension._run_ninja_build(str(made), False, "no such text")
        return (made / "ops.so").read_text()

    return build


def test_same_extension_source_is_compiled_once(
    build: Callable[..., str], compiled: list[str]
) -> None:
    assert [build("a", "x"), build("b", "x"), build("c", "y")] == [
        "library of x",
        "library of x",
        "library of y",
    ]
    assert compiled == ["x", "y"]


@pytest.mark.parametrize(
    "different",
    [
        [{"flags": "-O1"}, {"flags": "-O2"}],
        [{"flags": "-I/home/user/headers"}] * 2,  # whose content is not known
        [{"source": "/home/user/ops.cpp"}] * 2,
    ],
)
def test_extension_is_compiled_again_if_something_may_differ(
    build: Callable[..., str], compiled: list[str], different: list[dict[str, str]]
) -> None:
    for child, arguments in zip("ab", different, strict=True):
        build(child, "x", **arguments)
    assert compiled == ["x", "x"]


def test_extension_that_does_not_compile_is_retried(
    build: Callable[..., str], compiled: list[str], tmp_path: Path
) -> None:
    for child in ("a", "b"):
        with pytest.raises(AssertionError, match="no such text"):
            build(child, "")
    assert compiled == ["", ""]
    assert not list(tmp_path.glob("extension-*"))


def test_script_without_extensions_keeps_the_usual_build(tmp_path: Path) -> None:
    usual = cpp_extension._run_ninja_build
    script = tmp_path / "repro.py"
    script.write_text("import torch")
    with shared_extensions(tmp_path, script):
        assert cpp_extension._run_ninja_build is usual


# --- objects of new interpreters


COMPILER = """#!/bin/sh
echo "$*" >> {log}
case "$*" in *wrong*) exit 3 ;; esac
for last; do :; done
echo object > "$last"
"""


class StubServer:
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


@pytest.fixture(name="stub")
def _stub(tmp_path: Path) -> StubServer:
    return StubServer(tmp_path)


def test_second_interpreter_reuses_the_object_of_the_first(
    stub: StubServer,
) -> None:
    stub.compile("child-1", "int one;\n")
    stub.compile("child-2", "int one;\n")
    assert len(stub.calls) == 1
    stub.compile("child-3", "int two;\n")
    assert len(stub.calls) == 2


def test_source_that_fails_to_compile_is_compiled_each_time(
    stub: StubServer,
) -> None:
    assert stub.compile("child-1", "", "wrong.cpp") == 3
    assert stub.compile("child-2", "", "wrong.cpp") == 3
    assert len(stub.calls) == 2


def test_other_commands_reach_the_compiler_unchanged(
    stub: StubServer, tmp_path: Path
) -> None:
    (tmp_path / "child").mkdir()
    found = path_with_compiler(tmp_path / "child", stub.environment)
    environment = stub.environment | found
    link = ["a.wrapper.o", "a b.o", "-o", str(tmp_path / "a.so")]
    for arguments in (["--version"], link):
        command = ["g++", *arguments]
        subprocess.run(command, env=environment, check=True, cwd=tmp_path)
    assert stub.calls == ["--version", " ".join(link)]


def test_compiler_chosen_with_cxx_is_not_replaced(
    stub: StubServer, tmp_path: Path
) -> None:
    assert path_with_compiler(tmp_path, {**stub.environment, "CXX": "clang++"}) == {}


def test_path_is_unchanged_without_a_compiler(tmp_path: Path) -> None:
    assert path_with_compiler(tmp_path, {"PATH": str(tmp_path)}) == {}


# --- unpacked packages


SCRIPT_CRASHES = """
import os
import torch

class Doubles(torch.nn.Module):
    def forward(self, x):
        return x * 2

args = (torch.rand(8),)
with torch.no_grad():
    program = torch.export.export(Doubles(), args)
    package = torch._inductor.aoti_compile_and_package(program)
    loaded = torch._inductor.aoti_load_package(package)
loaded(*args)
mapped = [line.split()[-1] for line in open("/proc/self/maps") if ".wrapper.so" in line]
with open(NOTE, "w") as note:
    note.write(mapped[0])
os.abort()
"""


@pytest.mark.aoti
@pytest.mark.every_run
def test_script_that_aborts_leaves_no_package_unpacked(tmp_path: Path) -> None:
    script, note = tmp_path / "repro.py", tmp_path / "note"
    script.write_text(SCRIPT_CRASHES.replace("NOTE", repr(str(note))))
    with Server(environment=None) as bare:
        runner = ScriptRunner(bare, Limits(300.0, 8 << 30), Meter())
        unpacked = []
        for fresh in (True, False):
            seen = runner.run([script], fresh=fresh)
            assert "SIGABRT" in str(seen)
            library = Path(note.read_text())
            # Below FOLDER/NAME/data/aotinductor/model.
            unpacked.append(library.parents[4])
            note.unlink()
        assert not unpacked[0].exists()  # the second may be on its way
    assert not unpacked[1].exists()
