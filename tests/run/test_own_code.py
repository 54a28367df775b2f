"""Of code of a user's own in the compiler what a failure needs is told apart."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest
from support.doubles import FakeServer
from test_preloading import RECORD

from shrinkfx.check.oracle import Limits, Meter
from shrinkfx.preloads.bundle_builder import build_bundle
from shrinkfx.preloads.preload_bundle import Preload, PreloadBundle, PreloadCut
from shrinkfx.program.uninstalled_files import UninstalledFiles
from shrinkfx.protocol.answers import Ending, Registered
from shrinkfx.run.preloading import (
    CompilerCodeQueries,
    PreloadOracle,
    add_narrowed_cuts,
    smallest_first,
)
from shrinkfx.search.asker import Budget

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
        self.judge = PreloadOracle(server, limits, Meter(), program, operators, RECORD)
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
