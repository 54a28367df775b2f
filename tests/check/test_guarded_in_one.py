"""A memory error of a functional program is compiled once before the search."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.doubles import Arguments, FakeServer
from test_baseline import CRASHES, PASSES, compiler
from test_guarding import EAGER_FAULTS, FAULT, WRONG
from test_in_one import TRACES, WHOLE, Worker

from shrinkfx.check.baseline.attempt import BaselineRequest
from shrinkfx.check.baseline.stock import Baseline, WholeCandidate
from shrinkfx.check.baseline.with_guard_pages import Guarding, find_guarded_baseline
from shrinkfx.check.oracle import ENOUGH
from shrinkfx.failure.signature import MEMORY_FAULT, Kind
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.choices import Build, Guard
from shrinkfx.protocol.requests import CheckCandidate, CheckOptions


class Program(FakeServer):
    """Fails as told with guard pages and without, and leaves evidence."""

    def __init__(self, guarded: Ending, plain: Ending, apart: Ending = WRONG) -> None:
        super().__init__(self._ran)
        self._guarded, self._plain, self._apart = guarded, plain, apart

    def _ran(self, asked: Arguments) -> Ending:
        if left := self.asked[-1].options.evidence:
            Path(left).write_text(TRACES.to_line())
        if "inductor" in asked:
            return self._apart
        return self._guarded if "guard_pages" in asked else self._plain

    @property
    def packages(self) -> list[str]:
        """List what was compiled."""
        return [*dict.fromkeys(str(r.options.package) for r in self.asked)]


def seen(
    program: Program, until: str = "ima"
) -> tuple[tuple[Baseline, Guarding] | None, WholeCandidate]:
    in_one = WholeCandidate(WHOLE, Build.FAST)
    request = BaselineRequest(until, max_runs=100)
    return find_guarded_baseline(in_one, compiler(program), request), in_one


def test_out_of_bounds_access_is_found_with_one_package() -> None:
    program = Program(FAULT, WRONG)
    found, in_one = seen(program)
    assert found is not None
    base, guarding = found
    assert (base.target.kind, base.target.detail, base.rate) == (
        Kind.IMA,
        MEMORY_FAULT,
        1.0,
    )
    assert (guarding.pages, guarding.steady) == (Guard.AFTER, False)
    assert len(program.packages) == 1
    assert all(r.task == CheckCandidate(WHOLE.to_json()) for r in program.asked)
    assert {r.options.build for r in program.asked} == {Build.FAST}
    assert in_one.traces == TRACES
    checks = CheckOptions(guard_pages=Guard.AFTER)
    assert in_one.verdict(base.target, checks) is not None


def test_guard_page_finding_needs_no_fresh_interpreter() -> None:
    """A signal by itself does: a fork may be why."""
    for ending, until, fresh in ((FAULT, "ima", 0), (CRASHES, "crash", 1)):
        program = Program(ending, ending)
        found, _ = seen(program, until)
        assert found is not None
        assert found[1].steady
        assert sum(request.fresh for request in program.asked) == fresh
        alike = [r for r in program.asked if r.options.guard_pages is Guard.AFTER]
        with_inputs_checked, looked = 1, 1
        assert len(alike) == looked + ENOUGH + with_inputs_checked


def test_build_without_buffer_reuse_has_a_separate_package() -> None:
    program = Program(WRONG, WRONG, FAULT)
    found, _ = seen(program)
    assert found is not None
    assert found[1].inductor
    assert len(program.packages) == 2
    last = program.asked[-1].options
    assert (last.package, bool(last.inductor)) == (program.packages[1], True)


@pytest.mark.parametrize(
    "program",
    [Program(PASSES, PASSES, PASSES), Program(EAGER_FAULTS, FAULT, EAGER_FAULTS)],
)
def test_failure_unseen_with_guard_pages_is_left_to_the_stock_build(
    program: Program,
) -> None:
    found, in_one = seen(program)
    assert found is None
    assert in_one.seen is None


def test_baseline_seconds_are_those_of_the_compilation() -> None:
    """Runs of what is compiled are shorter by far."""
    compiled = Ending("signal", FAULT.code, "run", seconds=40.0, log=FAULT.log)
    program = Program(FAULT, compiled)
    found, _ = seen(program)
    assert found is not None
    assert found[0].seconds == 40.0


@pytest.mark.parametrize("functional", [True, False])
def test_package_tried_with_guard_pages_is_reused(
    tmp_path: Path, functional: bool
) -> None:
    worker = Worker(tmp_path, CRASHES, functional=functional)
    assert worker.suspects(tmp_path, until="crash") == ["tanh"]
    packages = [r.options.package for r in worker.asked if r.options.package]
    assert len(set(packages)) == 1
    compiled = worker.compiled
    if functional:
        assert compiled == ["CheckCandidate with evidence"]
    else:
        assert compiled[:2] == ["CheckOriginal", "CheckCandidate with evidence"]
