"""Which of CUDA's allocators shows a failure; what a run does is made up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from support.doubles import FakeServer

from shrinkfx.check.baseline.stock import Baseline
from shrinkfx.check.baseline.with_caching import (
    NO_CACHING,
    baseline_with_either,
    is_allocator_chosen,
)
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.errors import NotReproducible
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.protocol.answers import Checked, Ending, Raised

ILLEGAL = Signature(Kind.IMA, Stage.RUN, MEMORY_FAULT, "CUDA error: illegal")
REFUSED = Signature(Kind.COMPILE_ERROR, Stage.COMPILE, "no", "no such thing")
DIES = Ending("exit", stage="run", answer=Raised("RuntimeError", "CUDA error: oh no"))
PASSES = Ending("exit", stage="done", answer=Checked())


@dataclass
class Program:
    """Fails with one allocator, with both or with none."""

    without: Signature | None
    with_it: Signature | None
    seen: list[Mapping[str, str]] = field(default_factory=list)

    def see(self, client: CheckClient) -> Baseline:
        environment = client.options.environment
        self.seen.append(environment)
        found = self.with_it if environment.get(NO_CACHING) == "" else self.without
        if found is None:
            raise NotReproducible("any", 3, ["passes"], "see above", 1.5)
        return Baseline(found, 1.0, False, 2.0)


def run_baseline(program: Program, then: Ending = PASSES) -> tuple[Baseline, list[str]]:
    said: list[str] = []
    client = CheckClient(FakeServer(then), Limits(10.0, 1 << 30))
    return baseline_with_either(program.see, client, said.append), said


def test_failure_without_the_caching_allocator_sets_no_variable() -> None:
    program = Program(without=ILLEGAL, with_it=None)
    found, said = run_baseline(program)
    assert (found.target, found.environment) == (ILLEGAL, {})
    assert program.seen == [{}]
    assert said[-1].endswith(
        "without it; with the allocator: passes: the same result as eager"
    )


def test_outcome_with_the_caching_allocator_is_reported() -> None:
    _, said = run_baseline(Program(ILLEGAL, ILLEGAL), DIES)
    assert (
        "with the allocator: exception in run: RuntimeError: CUDA error: oh no"
        in said[-1]
    )


def test_failure_only_with_the_caching_allocator_sets_the_variable() -> None:
    program = Program(without=None, with_it=ILLEGAL)
    found, said = run_baseline(program)
    assert found.environment == {NO_CACHING: ""}
    assert program.seen == [{}, {NO_CACHING: ""}]
    assert (
        "the program fails only with the caching allocator: the search and "
        "the repro use the allocator ("
    ) in said[-1]


def test_compile_error_is_not_tried_with_the_caching_allocator() -> None:
    _, said = run_baseline(Program(REFUSED, REFUSED))
    assert len(said) == 1


def test_error_lists_the_outcomes_with_and_without_the_caching_allocator() -> None:
    with pytest.raises(NotReproducible) as caught:
        run_baseline(Program(None, None))
    error = caught.value
    assert error.runs == 6
    assert error.seconds == 3.0
    assert error.seen == [
        "passes (without the caching allocator)",
        "passes (with the caching allocator)",
    ]
    assert "--backend interpreter" in str(error.advice)


@pytest.mark.parametrize("value", ["1", "0", ""])
def test_allocator_variable_counts_with_any_value(value: str) -> None:
    assert is_allocator_chosen({}, {NO_CACHING: value})
    assert not is_allocator_chosen({}, {"CUDA_LAUNCH_BLOCKING": value})
