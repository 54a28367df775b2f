"""Which parts of the preloads a repro carries."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.compiling import PLAIN, beside
from support.doubles import PRINTED, FakeServer

from shrinkfx.check.client.server import Server
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.errors import BudgetExhausted
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.options.options import Options
from shrinkfx.preloads.bundle_builder import build_bundle
from shrinkfx.preloads.preload_bundle import Preload, PreloadBundle, PreloadCut, Unit
from shrinkfx.program.uninstalled_files import UninstalledFiles
from shrinkfx.protocol.answers import Ending, Registered
from shrinkfx.report.record import Failure, Programs, ProgramSize, RunRecord
from shrinkfx.run.context import RunContext
from shrinkfx.run.preloading import (
    CompilerCodeQueries,
    PreloadOracle,
    add_narrowed_cuts,
    distinct,
    find_droppable_units,
    has_same_effect,
    smallest_first,
    ways_to_carry,
)
from shrinkfx.search.asker import Budget

# Preloads are cut as far as eager allows, which sees no lowering.


WRONG = Signature(Kind.MISMATCH, Stage.COMPARE)
RECORD = RunRecord(
    Failure(WRONG, WRONG), Programs(ProgramSize(1), ProgramSize(1), cut=1)
)
EFFECT = Registered(
    outcome="a",
    exported="b",
    changes={"torch.library _defs: mylib::mix": "True", "lowerings: mylib.gone": "f"},
    registered=("mylib::mix", "mylib::gone"),
    modules=(),
    files=(),
    elsewhere=(),
)


def judge(
    answer: Callable[[str], Ending] = lambda _: Ending("exit"),
) -> PreloadOracle:
    """Make a judge whose worker answers of a script's text."""
    server = FakeServer(lambda asked: answer(Path(asked["path"]).read_text()))
    limits = Limits(60.0, 1 << 30)
    return PreloadOracle(
        CheckClient(server, limits), Path("m.pt2"), ["mylib::mix"], RECORD
    )


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"outcome": "other"}, False),
        ({"exported": "other"}, False),
        ({"changes": {"torch.library _defs: mylib::mix": "True"}}, True),
        ({"changes": {"lowerings: mylib.gone": "f"}}, False),
        ({"changes": {**EFFECT.changes, "config: x": "1"}}, False),
        ({"changes": {**EFFECT.changes, "lowerings: mylib.gone": "g"}}, True),
        ({"changes": {**EFFECT.changes, "lowerings: mylib.gone_too": "g"}}, False),
    ],
)
def test_preload_effect_is_kept_if_only_removed_names_differ(
    change: dict[str, Any], same: bool
) -> None:
    now = replace(EFFECT, **change)
    assert has_same_effect(EFFECT, now, ["mylib::mix"]) == same


@pytest.mark.parametrize("needed", [[], [3], [0, 7], [2, 3, 4], list(range(8))])
def test_droppable_units_exclude_needed_units(needed: Sequence[int]) -> None:
    units = [("ops.py", line + 1, 0) for line in range(8)]
    kept = {("ops.py", line + 1, 0) for line in needed}
    tried: list[frozenset[Unit]] = []

    def fine(some: Sequence[Unit]) -> bool:
        tried.append(frozenset(some))
        return not kept & set(some)

    found = find_droppable_units(units, fine, judge())
    assert set(units) - set(found) == kept
    assert tried.count(frozenset(units)) == 1


def says(text: str, *needed: str) -> Ending:
    """Answer as a worker does where operators need some lines, and others act."""
    if not all(line in text for line in needed):
        return Ending("exit", code=1)
    changes = {"lowerings: aten.relu": "f"} if "lowerings" in text else {}
    answer = Registered(
        changes=changes,
        registered=("mylib::mix",),
        exported="same",
        outcome="same",
        modules=("helper",) if "helper" in text else (),
        files=(),
        elsewhere=(),
    )
    return Ending("exit", answer=answer)


OPS = """\
import torch
import helper
import logs
logs.begin()
lowerings[torch.ops.aten.relu] = helper.f
@torch.library.custom_op("mylib::mix", mutates_args=())
def mix(x): return x
class Net: pass
"""


def ways(folder: Path, text: str, asked: PreloadOracle) -> list[PreloadBundle]:
    for name in ("helper", "logs"):
        lines = "def f(): pass\ndef begin(): pass\nodd = 1\n"
        (folder / f"{name}.py").write_text(lines)
    file = folder / "ops.py"
    file.write_text(text)
    preloads = [Preload(str(file), file)]
    modules = {name: str(folder / f"{name}.py") for name in ("helper", "logs")}

    def made(cut: PreloadCut) -> PreloadBundle:
        return build_bundle(preloads, UninstalledFiles(modules), cut)

    cuts = smallest_first(made, asked)
    return distinct([made(cut) for cut in cuts])


def test_lines_without_effect_are_dropped_and_compiler_code_is_kept(
    tmp_path: Path,
) -> None:
    asked = judge(lambda text: says(text, "def mix"))
    smallest, *surer = ways(tmp_path, OPS, asked)
    text = smallest.definitions[0].text
    assert "lowerings" in text
    assert "logs" not in text
    assert smallest.modules == ("helper",)
    assert ["logs" in each.definitions[0].text for each in surer] == [True, True]
    assert [each.kept[str(tmp_path / "ops.py")] for each in surer] == ["cut", "whole"]


def test_modules_are_cut_only_if_the_effect_is_the_same(tmp_path: Path) -> None:
    """Their texts do not tell all: here an unread name of one is of use."""
    text = OPS.replace("def mix(x): return x", "def mix(x): return helper.f(x)")

    def answer(text: str) -> Ending:
        said = says(text, "def mix")
        assert isinstance(said.answer, Registered)
        unread = {"lowerings: aten.sinh": "f"} if "odd = 1" in text else {}
        return replace(said, answer=replace(said.answer, changes=unread))

    asked = judge(answer)
    first, *_ = ways(tmp_path, text, asked)
    assert asked.questions == 2
    assert "logs" in first.definitions[0].text


REAL = """\
import torch
from torch._inductor.lowering import lowerings

@torch.library.custom_op("planted::first", mutates_args=())
def first(x: torch.Tensor) -> torch.Tensor:
    return x.relu()

first.register_fake(torch.empty_like)

def plant(lower):
    return lambda *args: lower(*args)

print("loaded")
torch.library.define("planted::gone", "(Tensor x) -> Tensor")
lowerings[torch.ops.planted.gone.default] = plant(None)
lowerings[torch.ops.aten.cosh.default] = plant(lowerings[torch.ops.aten.cosh.default])
"""


@pytest.mark.torch
def test_real_worker_distinguishes_needed_from_unneeded_preload_lines(
    tmp_path: Path,
) -> None:
    file, program = tmp_path / "ops.py", tmp_path / "minimal.pt2"
    file.write_text(REAL)
    save(file, program)
    operators = ["planted::first", "aten::cosh"]

    def made(cut: PreloadCut) -> PreloadBundle:
        return build_bundle([Preload(str(file), file)], UninstalledFiles(), cut)

    with Server(environment=None) as bare:
        limits = Limits(120.0, 8 << 30)
        asked = PreloadOracle(CheckClient(bare, limits), program, operators, RECORD)
        ways = [*map(made, smallest_first(made, asked))]
    assert [way.bare for way in ways] == [True, False, False, False]
    without_own, kept, all_that_acts, _ = (each.definitions[0].text for each in ways)
    assert all(word in all_that_acts for word in ("print", "gone", "aten.cosh"))
    assert not any(word in kept for word in ("print", "gone"))
    assert all(word in kept for word in ("register_fake", "aten.cosh", "def plant"))
    assert "register_fake" in without_own
    assert "lowerings" not in without_own
    for way in ways[1:]:
        assert way.in_compiler.sources == ("ops.py",)
        (place,) = way.in_compiler.places
        assert place.endswith("lowerings: aten.cosh.default")
    assert not ways[0].in_compiler.places


def save(file: Path, program: Path) -> None:
    """Export a program of one of the operators, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SAVE, str(file), str(program)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


_SAVE = """
import runpy, sys, torch
runpy.run_path(sys.argv[1])
class Net(torch.nn.Module):
    def forward(self, x):
        return torch.ops.planted.first(x).cosh()
program = torch.export.export(Net(), (torch.ones(3),))
torch.export.save(program, sys.argv[2])
"""


OPERATOR = """\
import torch
from .common import {name}_of, unused


@torch.library.custom_op("planted::{name}", mutates_args=())
def {name}(x: torch.Tensor) -> torch.Tensor:
    return {name}_of(x)


@{name}.register_fake
def _(x):
    return torch.empty_like(x)
"""
PACKAGE = {
    "__init__.py": "from . import first, gone\n",
    "first.py": OPERATOR.format(name="first"),
    "gone.py": OPERATOR.format(name="gone"),
    "common.py": "import torch\nTWO = 2\ndef first_of(x): return x * TWO\n"
    "def gone_of(x): return x + 1\nunused = torch.ones(3)\n",
}


@pytest.mark.torch
def test_package_of_two_operators_is_reduced_to_one_text_with_one_operator(
    tmp_path: Path,
) -> None:
    package, program = tmp_path / "code" / "two_ops", tmp_path / "minimal.pt2"
    package.mkdir(parents=True)
    for name, text in PACKAGE.items():
        (package / name).write_text(text)
    script = package.parent / "import_them.py"
    script.write_text(
        f"import sys\nsys.path[:0] = [{str(package.parent)!r}]\nimport two_ops"
    )
    save(script, program)
    file, operators = package / "__init__.py", ["planted::first", "aten::cosh"]
    names = {"two_ops": "__init__", **{f"two_ops.{m}": m for m in MEMBERS}}
    beside = UninstalledFiles(
        {name: str(package / f"{at}.py") for name, at in names.items()}
    )

    def made(cut: PreloadCut) -> PreloadBundle:
        return build_bundle([Preload("two_ops", file)], beside, cut)

    with Server(environment=None) as bare:
        limits = Limits(120.0, 8 << 30)
        asked = PreloadOracle(CheckClient(bare, limits), program, operators, RECORD)
        as_one, as_modules, *_ = map(made, smallest_first(made, asked))
    assert (as_one.modules, as_one.unpacking) == ((), "")
    (part,) = as_one.definitions
    assert part.text.split() == LEFT.split()
    assert as_modules.modules == ("two_ops", "two_ops.common", "two_ops.first")
    assert "gone" not in as_modules.unpacking


MEMBERS = ("first", "gone", "common")
LEFT = """
import torch
TWO = 2
def first_of(x): return x * TWO
@torch.library.custom_op("planted::first", mutates_args=())
def first(x: torch.Tensor) -> torch.Tensor:
    return first_of(x)
@first.register_fake
def _(x):
    return torch.empty_like(x)
"""


def test_deadline_ends_the_queries_but_not_the_run(tmp_path: Path) -> None:
    asked = judge()

    def answer(text: str) -> Ending:
        if asked.questions > 1:
            raise BudgetExhausted("time limit reached")
        return says(text)

    asked.client = judge(answer).client
    texts = [way.definitions[0].text for way in ways(tmp_path, OPS, asked)]
    assert asked.questions == 2
    assert ["class Net" in text for text in texts] == [False, True]
    late = judge(says)
    late.deadline = 0.0
    assert len(ways(tmp_path, OPS, late)) == 2
    assert late.questions == 0


def test_backtracking_with_the_same_custom_operators_repeats_no_query(
    tmp_path: Path,
) -> None:
    file = tmp_path / "ops.py"
    file.write_text(OPS.replace("import helper", "").replace("helper.f", "print"))
    (tmp_path / "logs.py").write_text("def begin(): pass\n")
    options = Options(tmp_path / "m.pt2", preload=(str(file),))
    context = RunContext(options, tmp_path, lambda _: None)
    ready = SimpleNamespace(
        preload_files={str(file): str(file)}, uninstalled_files=UninstalledFiles()
    )
    server: Any = type("Holder", (), {"ready": ready})()
    bare = FakeServer(lambda asked: says(Path(asked["path"]).read_text()))

    def ask(*targets: str) -> int:
        before = len(bare.asked)
        printed = replace(PRINTED, targets=targets)
        client = CheckClient(bare, Limits(60.0, 1 << 30))
        assert ways_to_carry(context, server, client, printed, RECORD)
        return len(bare.asked) - before

    assert ask("mylib.mix.default", "aten.cosh.default")
    assert not ask("mylib.mix.default", "aten.cosh.default", "aten.sinh.default")
    assert ask("mylib.mix.default", "mylib.other.default")


# C++ of preloads: carried as source first, if that does as the library does.


IMPORTED = {"torch.utils cpp_extension": "builtins.module"}
"""What is other in PyTorch where something was compiled, and no program sees."""


def ways_compiled(
    folder: Path, compiled: dict[str, str]
) -> tuple[list[PreloadBundle], list[str]]:
    """List the ways to carry a preload that compiles, and the texts that were run.

    Args:
        compiled: what is other in PyTorch after its source was compiled.
    """
    file, used = beside(folder, PLAIN)
    run: list[str] = []

    def answer(text: str) -> Ending:
        run.append(text)
        said = says(text, "register_fake")
        if "load_library" not in text and "load_inline(" not in text:
            return Ending("exit", code=1)
        if not isinstance(said.answer, Registered):
            return said
        if "load_inline(" in text:
            return replace(said, answer=replace(said.answer, changes=compiled))
        used = replace(said.answer, files=("my_ops.so",), modules=("ops",))
        return replace(said, answer=used)

    def made(cut: PreloadCut) -> PreloadBundle:
        return build_bundle([Preload(str(file), file)], used, cut)

    asked = judge(answer)
    cuts = smallest_first(made, asked)
    return [made(cut) for cut in cuts], run


@pytest.mark.parametrize("compiled", [{}, IMPORTED])
def test_cpp_source_is_preferred_to_the_compiled_library(
    tmp_path: Path, compiled: dict[str, str]
) -> None:
    first, *others = ways_compiled(tmp_path, compiled)[0]
    assert first.compiles
    assert "load_inline(" in first.definitions[0].text
    assert "my_ops.so" not in first.files
    assert [each.compiles for each in others] == [False] * len(others)
    assert all("my_ops.so" in each.files for each in others)


def test_cpp_source_with_another_effect_is_not_carried(tmp_path: Path) -> None:
    found, _ = ways_compiled(
        tmp_path, {"torch._inductor.lowering lowerings: aten.relu": "f"}
    )
    assert not any(each.compiles for each in found)
    assert "my_ops.so" in found[0].files


def test_cpp_source_is_compiled_once(tmp_path: Path) -> None:
    """It takes longer to compile than all other questions together."""
    _, run = ways_compiled(tmp_path, IMPORTED)
    assert sum("load_inline(" in text for text in run) == 1


# Of code of a user's own in the compiler what a failure needs is told apart.


LINES = [f'lowerings["{name}"] = print' for name in "abcdefghijklmnop"]
PLACE = "torch._inductor.lowering lowerings: {}"


def answer(text: str) -> Ending:
    """Say what a script puts into Inductor, as a worker does that has run it."""
    own = tuple(PLACE.format(line[11]) for line in LINES if line in text)
    done = Registered(
        changes=dict.fromkeys(own, "f"),
        own=own,
        registered=(),
        exported="same",
        outcome="same",
        modules=(),
        files=(),
        elsewhere=(),
    )
    return Ending("exit", answer=done)


class Case:
    """A file with some of these lines, and a failure that needs some of them."""

    def __init__(self, folder: Path, has: int, needs: Collection[int]) -> None:
        self.file = folder / "tuning.py"
        text = "\n".join(
            ["from torch._inductor.lowering import lowerings", *LINES[:has]]
        )
        self.file.write_text(f"{text}\nprint('loaded')\n")
        self.needed = [LINES[each] for each in needs]
        server = FakeServer(lambda asked: answer(Path(asked["path"]).read_text()))
        limits = Limits(60.0, 1 << 30)
        program, operators = Path("m.pt2"), ["aten::relu"]
        self.judge = PreloadOracle(
            CheckClient(server, limits), program, operators, RECORD
        )
        self.cuts = smallest_first(self.made, self.judge)
        self.questions = CompilerCodeQueries(self.fails, Budget())

    def made(self, cut: PreloadCut) -> PreloadBundle:
        return build_bundle(
            [Preload(str(self.file), self.file)],
            UninstalledFiles(),
            cut,
        )

    def text(self, cut: PreloadCut) -> str:
        return "".join(each.text for each in self.made(cut).definitions)

    def fails(self, carried: PreloadBundle) -> bool:
        text = "".join(each.text for each in carried.definitions)
        return all(line in text for line in self.needed)

    def narrowed(self) -> list[PreloadCut]:
        return add_narrowed_cuts(self.cuts, self.made, self.questions, self.judge)


def test_compiler_code_that_names_an_operator_is_recognized(tmp_path: Path) -> None:
    """Such a statement is not tested for whether the program needs it."""
    case = Case(tmp_path, 1, [0])
    case.judge = replace(case.judge, operators=["lowerings::a"], questions=0)
    case.file.write_text(case.file.read_text().partition("print('loaded')")[0])
    bare, first, *_ = smallest_first(case.made, case.judge)
    assert bare.bare
    assert LINES[0] not in case.text(bare)
    assert first.in_compiler.sources == ("tuning.py",)


@pytest.mark.parametrize(
    ("has", "needs"),
    [(2, [0]), (2, [1]), (3, [1]), (4, [0, 3]), (8, [5]), (5, [1, 2, 4])],
)
def test_only_needed_compiler_code_is_kept_and_named(
    tmp_path: Path, has: int, needs: list[int]
) -> None:
    case = Case(tmp_path, has, needs)
    assert len(case.cuts[1].in_compiler.places) == has
    bare, narrowed, *rest = case.narrowed()
    assert [bare, *rest] == case.cuts
    assert [line in case.text(narrowed) for line in LINES] == [
        line in case.needed for line in LINES
    ]
    expected = tuple(PLACE.format(line[11]) for line in case.needed)
    assert narrowed.in_compiler.places == expected
    assert narrowed.in_compiler.sources == ("tuning.py",)
    assert not narrowed.bare


@pytest.mark.parametrize(
    ("has", "needs", "asked"),
    [(1, [0], 0), (2, [0, 1], 3), (3, [], 1), (3, [0, 1, 2], 4)],
)
def test_preload_bundles_are_kept_if_one_all_or_no_part_is_needed(
    tmp_path: Path, has: int, needs: list[int], asked: int
) -> None:
    case = Case(tmp_path, has, needs)
    assert case.narrowed() == case.cuts
    assert case.questions.queries == asked
