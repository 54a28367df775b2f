"""A fork takes the library that a new interpreter has compiled of the same script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch._inductor.cpp_builder import CppBuilder

from shrinkfx.check.client.server import Server
from shrinkfx.check.oracle import Limits, Meter
from shrinkfx.check.script import ScriptRunner
from shrinkfx.protocol.answers import Built
from shrinkfx.protocol.choices import Build
from shrinkfx.protocol.choices import Step as OfBuild
from shrinkfx.protocol.requests import CheckOptions, Request, RunScript
from shrinkfx.worker.aoti.shared_libraries import kept_cache_folder, shared_libraries

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


@pytest.fixture(name="bare")
def _bare() -> Iterator[Server]:
    with Server(environment=None) as bare:
        yield bare


def run(bare: Server, folder: Path, weight: str, *, fresh: bool) -> str:
    """Run a script that adds a weight; say what it has printed."""
    script = folder / "repro.py"
    script.write_text(SCRIPT.replace("WEIGHT", weight))
    runner = ScriptRunner(bare, Limits(300.0, 8 << 30), Meter())
    return runner.run([script], fresh=fresh).log


@pytest.mark.aoti
def test_script_in_a_fork_is_built_like_a_candidate(
    bare: Server, tmp_path: Path
) -> None:
    """With what was compiled for all programs, though its home is another one."""
    script = tmp_path / "repro.py"
    script.write_text(SCRIPT.replace("WEIGHT", "2.0"))
    options = CheckOptions(build=Build.FAST)
    request = Request(RunScript(str(script), str(tmp_path)), options, timeout_s=300.0)
    ending = bare.ask(request)
    assert RIGHT in ending.log
    assert ending.built == Built(Build.FAST, OfBuild.LINK)


def objects(bare: Server) -> int:
    """Count what forks have compiled."""
    return len(list(bare.directory.glob("object-*")))


NONE = "s_start:\n\t.space 1\n.globl s_end\ns_end:\n"
SOME = "s_start:\n.byte 1\n.globl s_end\ns_end:\n"


class Step:
    """A builder of one file; what it really makes says so."""

    def __init__(self, target: Path, *sources: Path, flags: str = "-c") -> None:
        self._target, self.sources, self._flags = target, sources, flags

    def get_target_file_path(self) -> str:
        return str(self._target)

    def get_command_line(self) -> str:
        sources = " ".join(map(str, self.sources))
        return f"g++ {sources} {self._flags} -o {self._target}"


def steps(home: Path, kernel: str, weights: str, level: str = "-O3") -> list[Step]:
    """Write the texts of a program; list how its library is made, in turn."""
    home.mkdir(parents=True)
    names = ("w.wrapper.cpp", "k.kernel.cpp", "d.weights.S")
    sources = [home / name for name in names]
    for source, text in zip(sources, ("wrapper\n", kernel, weights), strict=True):
        source.write_text(text)
    made = [Step(each.with_suffix(".o"), each) for each in sources]
    objects = [Path(each.get_target_file_path()) for each in made]
    return [*made, Step(home / "w.wrapper.so", *objects, flags=level)]


def built(child: Path, steps: list[Step]) -> str:
    """Build as a child does; return the library."""
    builders: list[Any] = [*steps]
    with shared_libraries(child):
        for each in builders:
            CppBuilder.build(each)
    return Path(builders[-1].get_target_file_path()).read_text()


@pytest.mark.parametrize(
    ("kernel", "weights", "level", "taken"),
    [
        ("kernel\n", NONE, "-O3", True),
        ("another\n", NONE, "-O3", False),
        ("kernel\n", SOME, "-O3", False),
        ("kernel\n", NONE, "-O2", False),
    ],
)
def test_library_is_reused_only_if_sources_and_flags_match(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kernel: str,
    weights: str,
    level: str,
    taken: bool,
) -> None:
    compiled: list[str] = []

    def build(step: Step) -> None:
        compiled.append(Path(step.get_target_file_path()).name)
        Path(step.get_target_file_path()).write_text("own")

    monkeypatch.setattr(CppBuilder, "build", build)
    first, second = tmp_path / "child-1", tmp_path / "child-2"
    theirs = steps(kept_cache_folder(first) / "cache" / "ab", "kernel\n", NONE)
    gone = str(kept_cache_folder(first)), str(first)  # by which the child has called it
    link = theirs[-1].get_command_line().replace(*gone)
    for step in theirs[:2]:
        said = step.get_command_line().replace(*gone)
        with step.sources[0].open("a") as text:
            text.write(f"\n// Compile cmd\n// {said}\n// Link cmd\n// {link}\n")
    Path(theirs[-1].get_target_file_path()).write_text("theirs")
    mine = steps(second / "cache" / "ab", kernel, weights, level)
    assert built(second, mine) == ("theirs" if taken else "own")
    every = ["d.weights.o", "k.kernel.o", "w.wrapper.o", "w.wrapper.so"]
    assert sorted(compiled) == (every[:1] if taken else every)


@pytest.mark.aoti
def test_fork_reuses_only_a_library_of_the_same_sources(
    bare: Server, tmp_path: Path
) -> None:
    assert RIGHT in run(bare, tmp_path, "1", fresh=True)
    (library,) = bare.directory.glob("*-afresh/*/*/*.wrapper.so")
    assert RIGHT in run(bare, tmp_path, "1", fresh=False)
    assert objects(bare) == 0
    assert RIGHT in run(bare, tmp_path, "2", fresh=False)
    assert objects(bare) == 2
    library.write_text("no library")
    assert RIGHT not in run(bare, tmp_path, "1", fresh=False)
    assert RIGHT in run(bare, tmp_path, "1", fresh=True)


@pytest.mark.aoti
@pytest.mark.parametrize("rows", ["1", "512"])
def test_library_with_weights_is_not_shared(
    bare: Server, tmp_path: Path, rows: str
) -> None:
    """What many of them hold is in no text."""
    weight = f"torch.nn.Parameter(torch.rand({rows}, 8))"
    assert RIGHT in run(bare, tmp_path, weight, fresh=True)
    assert RIGHT in run(bare, tmp_path, weight, fresh=False)
    assert objects(bare) == 2
