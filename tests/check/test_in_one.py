"""A functional program is compiled once: as baseline, and for evidence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.doubles import DESCRIPTION, Arguments, FakeServer, context_with
from test_baseline import CRASH, CRASHES, DIFFERS, MISMATCH, PASSES, RAISES, compiler

from shrinkfx.check.baseline.attempt import BaselineRequest
from shrinkfx.check.baseline.stock import (
    Baseline,
    WholeCandidate,
    find_whole_candidate_baseline,
)
from shrinkfx.check.oracle import ENOUGH
from shrinkfx.failure.signature import Kind
from shrinkfx.options.options import Options
from shrinkfx.protocol.answers import Ending, Ready
from shrinkfx.protocol.choices import Backend, Build
from shrinkfx.protocol.files import Traces
from shrinkfx.protocol.requests import CheckCandidate, CheckOptions
from shrinkfx.run.observe import reproduce_failure
from shrinkfx.testing import chain, whole

WHOLE = whole(chain("x", "relu", "tanh"))
TRACES = Traces(message="no", raised_at=(("tanh",),))


def seen_in_one(
    *told: Ending, until: str | None = None
) -> tuple[Baseline | None, WholeCandidate, FakeServer]:
    server, in_one = FakeServer(*told), WholeCandidate(WHOLE, Build.FAST)
    request = BaselineRequest(until, max_runs=100)
    found = find_whole_candidate_baseline(in_one, compiler(server), request)
    return found, in_one, server


def test_mismatch_is_compiled_once_and_rerun() -> None:
    base, in_one, server = seen_in_one(DIFFERS)
    assert base is not None
    assert (base.target.kind, base.rate) == (Kind.MISMATCH, 1.0)
    first, *others = (request.options for request in server.asked)
    assert len(others) == ENOUGH  # runs, and one with its inputs checked
    assert first.evidence
    assert {(o.package, o.evidence) for o in others} == {(first.package, None)}
    assert {o.build for o in (first, *others)} == {Build.FAST}
    tasks = [request.task for request in server.asked]
    assert tasks == [CheckCandidate(WHOLE.to_json())] * len(tasks)
    verdict = in_one.verdict(base.target, CheckOptions())
    assert verdict is not None
    assert verdict.reproduced


def test_compile_error_is_confirmed_in_two_processes() -> None:
    base, _, server = seen_in_one(RAISES)
    assert base is not None
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("told", "until"),
    [
        ([PASSES], None),
        ([DIFFERS], "nan"),
        ([CRASHES], None),
        ([DIFFERS, PASSES, DIFFERS], None),
    ],
)
def test_unconfirmed_failure_is_left_to_the_stock_build(
    told: list[Ending], until: str | None
) -> None:
    base, _, server = seen_in_one(*told, until=until)
    assert base is None
    assert not any(request.fresh for request in server.asked)


def test_first_run_gives_a_verdict_only_for_the_same_query() -> None:
    _, in_one, _ = seen_in_one(CRASHES)
    assert in_one.verdict(CRASH, CheckOptions()) is not None
    assert in_one.verdict(MISMATCH, CheckOptions()) is None
    assert in_one.verdict(CRASH, CheckOptions(calls=2)) is None
    assert in_one.verdict(CRASH, CheckOptions(fallback_random=True)) is None
    assert WholeCandidate(WHOLE, Build.FAST).verdict(CRASH, CheckOptions()) is None


class Worker(FakeServer):
    """Describes a program that fails, and leaves evidence where that is asked for."""

    ready = Ready(backend=Backend.AOTI)

    def __init__(self, folder: Path, ending: Ending, *, functional: bool) -> None:
        skeleton = folder / "skeleton.json"
        skeleton.write_text(json.dumps(WHOLE.skeleton.to_json()))
        said = replace(DESCRIPTION, skeleton=str(skeleton), functional=functional)

        def answer(asked: Arguments) -> Ending:
            if len(self.asked) == 1:
                return Ending("exit", stage="done", answer=said)
            if left := self.asked[-1].options.evidence:
                Path(left).write_text(TRACES.to_line())
            return ending

        super().__init__(answer)

    def suspects(self, folder: Path, **options: Any) -> list[str]:
        """See it fail; name the operators that may be why."""
        context = context_with(self, Options(Path("m.pt2"), **options), folder)
        subject = reproduce_failure(context)
        return [suspect.node for suspect in subject.suspects]

    @property
    def compiled(self) -> list[str]:
        """Say what was compiled, in turn: tasks, with evidence or not."""
        made: set[str] = set()
        found = []
        for request in self.asked[1:]:
            package = request.options.package
            if package is None or package not in made:
                left = " with evidence" if request.options.evidence else ""
                found.append(type(request.task).__name__ + left)
            made.add(package or "")
        return found


def test_functional_program_is_compiled_once_before_the_search(tmp_path: Path) -> None:
    worker = Worker(tmp_path, RAISES, functional=True)
    assert worker.suspects(tmp_path) == ["tanh"]
    assert worker.compiled == ["CheckCandidate with evidence", "CheckCandidate"]


def test_program_is_compiled_once_with_torch_compile(tmp_path: Path) -> None:
    worker = Worker(tmp_path, DIFFERS, functional=True)
    worker.ready = Ready(backend=Backend.INDUCTOR)
    worker.suspects(tmp_path)
    evidence, *values = worker.compiled
    assert evidence == "CheckCandidate with evidence"
    assert set(values) == {"CheckCandidate"}  # each returns intermediate values
    tapped = [request for request in worker.asked if request.options.taps]
    assert len(tapped) == len(values)


def test_evidence_is_kept_if_the_stock_build_follows(tmp_path: Path) -> None:
    worker = Worker(tmp_path, CRASHES, functional=True)
    worker.suspects(tmp_path)
    assert worker.compiled[:2] == ["CheckCandidate with evidence", "CheckOriginal"]
    assert worker.compiled.count("CheckCandidate with evidence") == 1


@pytest.mark.parametrize(
    ("functional", "options"),
    [
        (False, {}),
        (True, {"build": "stock"}),
        (True, {"baseline_runs": 1}),
    ],
)
def test_input_program_is_compiled_first_in_other_cases(
    tmp_path: Path, functional: bool, options: dict[str, Any]
) -> None:
    worker = Worker(tmp_path, RAISES, functional=functional)
    assert worker.suspects(tmp_path, **options) == ["tanh"]
    assert worker.compiled[0] == "CheckOriginal"
    assert worker.compiled[-1] == "CheckCandidate with evidence"
