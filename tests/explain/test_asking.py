"""What a minimum is asked for its chain, and how often."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from shrinkfx.check.limits import Unlimited
from shrinkfx.check.oracle import MAX_FALLBACKS_IN_A_ROW, Builds, CheckClient, Limits
from shrinkfx.explain.chain import chain
from shrinkfx.explain.reduced_program import ReducedProgram, list_operators
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.answers import Checked, Ending, Raised
from shrinkfx.protocol.choices import Build, CandidateForm
from shrinkfx.protocol.compiled_program_view import REASON_FILE
from shrinkfx.protocol.requests import Request

RECORDED = Path(__file__).parent / "recorded"
BOUNDS = Signature(Kind.ASSERT, Stage.RUN, "index out of bounds")


@dataclass
class Recorded:
    """Leaves and says what a worker once did, where the failure shows in a build."""

    name: str
    fails_in: tuple[Build, ...] = (Build.FAST, Build.STOCK)
    fails_as: tuple[CandidateForm, ...] = tuple(CandidateForm)
    tells: bool = True
    renamed: str = ""
    hangs: bool = False
    asked: list[Request] = field(default_factory=list)

    @property
    def data(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(
            (RECORDED / f"{self.name}.json").read_text()
        )
        return loaded

    def ask(self, request: Request) -> Ending:
        self.asked.append(request)
        assert request.options.compiled_view is not None
        folder = Path(request.options.compiled_view)
        assert not list(folder.iterdir())
        if self.renamed:
            (folder / REASON_FILE).write_text(self.renamed)
        elif self.tells:
            (folder / "anatomy.json").write_text(json.dumps(self.data["anatomy"]))
            (folder / "telling").write_text(self.data["telling"])
        if self.hangs:
            return Ending("timeout", 9, "run")
        options = request.options
        if options.build in self.fails_in and options.form in self.fails_as:
            message = "index out of bounds: 0 <= tmp1 < 12L"
            return Ending("exit", 0, "run", Raised("RuntimeError", message))
        return Ending("exit", 0, "done", Checked())

    def minimum(self, target: Signature = BOUNDS) -> ReducedProgram:
        skeleton = Skeleton.from_json(self.data["skeleton"])
        client = CheckClient(self, Limits(60.0, 1 << 30))
        return ReducedProgram(client, Candidate.from_skeleton(skeleton), target)


def test_chain_is_found_with_one_compilation() -> None:
    server = Recorded("roll")
    found = chain(server.minimum())
    assert found is not None
    assert [o.operator for o in found.culprits] == ["aten.roll.default"]
    (asked,) = server.asked
    assert asked.options.build is Build.FAST


@pytest.mark.parametrize("searched", Build)
def test_stock_build_is_queried_if_fast_build_does_not_fail(searched: Build) -> None:
    server = Recorded("roll", fails_in=(Build.STOCK,))
    minimum = server.minimum()
    found = chain(minimum.with_client(minimum.client.with_options(build=searched)))
    assert found is not None
    assert found.value == 12
    assert [r.options.build for r in server.asked] == [Build.FAST, Build.STOCK]


def test_timed_out_run_is_not_repeated() -> None:
    server = Recorded("roll", hangs=True)
    found = chain(server.minimum())
    assert found is not None
    assert found.unknown == (
        "the structure of the compiled program: the run had no result: timeout in run",
    )
    assert len(server.asked) == 1


def test_stock_build_is_queried_once_after_fast_build_is_abandoned() -> None:
    server = Recorded("roll", fails_in=())
    minimum = server.minimum()
    given_up = Builds(in_a_row=MAX_FALLBACKS_IN_A_ROW)
    chain(minimum.with_client(replace(minimum.client, builds=given_up)))
    assert [r.options.build for r in server.asked] == [Build.STOCK]


PASSES = Ending("exit", 0, "done", Checked())


@pytest.mark.parametrize(
    ("changes", "ending", "why"),
    [
        ({}, None, "no time was left"),
        ({}, PASSES, "the run for this analysis did not fail"),
        (
            {"rate": 0.5},
            PASSES,
            "the run for this analysis did not fail, but not every run does",
        ),
        (
            {},
            Ending("signal", 11, "run"),
            "the run for this analysis failed differently: ",
        ),
        ({}, Ending("memory", 9, "run"), "the run had no result: memory in run"),
    ],
)
def test_inconclusive_answer_has_a_reason(
    changes: dict[str, Any], ending: Ending | None, why: str
) -> None:
    minimum = replace(Recorded("roll").minimum(), **changes)
    assert minimum.why_not(ending).startswith(why)


def as_source(minimum: ReducedProgram) -> ReducedProgram:
    client = minimum.client.with_options(form=CandidateForm.SOURCE)
    return minimum.with_client(client)


def test_source_form_is_queried_if_program_form_does_not_fail() -> None:
    server = Recorded("roll", fails_as=(CandidateForm.SOURCE,))
    found = chain(as_source(server.minimum()))
    assert found is not None
    assert found.value == 12
    assert [r.options.form for r in server.asked] == [*CandidateForm]
    chain(server.minimum())
    assert server.asked[-1].options.form is CandidateForm.PROGRAM


def test_failing_program_form_is_queried_instead_of_source_form() -> None:
    server = Recorded("roll")
    chain(as_source(server.minimum()))
    assert [r.options.form for r in server.asked] == [CandidateForm.PROGRAM]


def test_renamed_program_is_reported_as_unknown() -> None:
    server = Recorded("roll", renamed="it has other names")
    found = chain(server.minimum())
    assert found is not None
    assert found.unknown == (
        "the structure of the compiled program: it has other names",
    )


@pytest.mark.parametrize(("rate", "tries"), [(1.0, 1), (0.5, 5), (0.25, 10)])
def test_flaky_failure_is_queried_until_it_occurs(rate: float, tries: int) -> None:
    asked: list[Request] = []

    class Seldom:
        def ask(self, request: Request) -> Ending:
            asked.append(request)
            seen = len(asked) > 4
            error = Raised("RuntimeError", "index out of bounds: 0 <= tmp1 < 12L")
            return Ending("exit", 0, "run", error if seen else Checked())

    minimum = replace(
        Recorded("roll").minimum(),
        client=CheckClient(Seldom(), Limits(60.0, 1 << 30)),
        rate=rate,
    )
    ending = minimum.run_until_failing(build=Build.FAST)
    assert len(asked) == min(tries, 5)
    assert minimum.fails(ending) is (tries >= 5)
    never = replace(minimum, target=Signature(Kind.CRASH, Stage.RUN))
    asked.clear()
    never.run_until_failing(build=Build.FAST)
    assert len(asked) == tries


def test_chain_is_unknown_if_instrumented_run_passes() -> None:
    found = chain(Recorded("roll", fails_in=()).minimum())
    assert found is not None
    assert not found.cause
    assert found.unknown == (
        "the structure of the compiled program: the run for this analysis did not fail",
    )


def test_run_that_recorded_nothing_is_reported() -> None:
    found = chain(Recorded("roll", tells=False).minimum())
    assert found is not None
    assert "recorded nothing" in found.unknown[0]


def test_no_query_is_made_if_time_is_short() -> None:
    server = Recorded("roll")
    short = replace(server.minimum(), budget=Spent(), seconds=9.0)
    found = chain(short)
    assert found is not None
    assert "no time was left" in found.unknown[0]
    assert not server.asked


class Spent(Unlimited):
    """Has no time left."""

    def share(self) -> float:
        return 1.0


def test_no_query_is_made_for_other_failure_kinds() -> None:
    server = Recorded("roll")
    wrong = Signature(Kind.MISMATCH, Stage.COMPARE)
    build = Signature(Kind.COMPILE_ERROR, Stage.COMPILE, "C++")
    assert chain(server.minimum(wrong)) is None
    assert chain(server.minimum(build)) is None
    assert not server.asked


def test_remaining_operators_have_their_own_source_lines() -> None:
    left = list_operators(Recorded("roll").minimum().candidate)
    assert [str(operator) for operator in left] == [
        "aten.flip.default (own2.py:6)",
        "aten.roll.default (own2.py:6)",
    ]
