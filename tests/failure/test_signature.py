"""Which failure is which."""

from __future__ import annotations

import dataclasses

import pytest

from shrinkfx.failure.signature import (
    ANY,
    MEMORY_FAULT,
    Kind,
    Signature,
    Stage,
    explain_other_kind,
    is_until_target,
)
from shrinkfx.failure.verdict import Observation, Outcome, Verdict, judge

SEGFAULT = Signature(Kind.CRASH, Stage.RUN, MEMORY_FAULT, "SIGSEGV")
BOUNDS = Signature(Kind.ASSERT, Stage.RUN, "index out of bounds")
MISMATCH = Signature(Kind.MISMATCH, Stage.COMPARE)
NAN = Signature(Kind.NAN, Stage.COMPARE)
HANG = Signature(Kind.HANG, Stage.RUN)


@pytest.mark.parametrize(
    ("until", "seen", "taken"),
    [
        ("any", BOUNDS, True),
        ("assert", BOUNDS, True),
        ("ima", SEGFAULT, True),
        ("crash", SEGFAULT, True),
        ("assert", SEGFAULT, False),
        ("crash", Signature(Kind.CRASH, Stage.RUN, "SIGFPE"), True),
        ("ima", Signature(Kind.CRASH, Stage.RUN, "SIGFPE"), False),
        ("mismatch", NAN, True),
        ("nan", MISMATCH, False),
        ("any", dataclasses.replace(MISMATCH, stage=Stage.PASSING), False),
        ("mismatch", dataclasses.replace(NAN, stage=Stage.PASSING), False),
    ],
)
def test_until_accepts_its_kind(until: str, seen: Signature, taken: bool) -> None:
    assert is_until_target(until, seen) is taken


@pytest.mark.parametrize("seen", [MISMATCH, NAN, SEGFAULT, BOUNDS])
def test_passing_run_failure_equals_the_failure_without_that_run(
    seen: Signature,
) -> None:
    passing = dataclasses.replace(seen, stage=Stage.PASSING)
    assert not seen.admits(passing)
    assert passing.without_passing_run == seen
    assert seen.without_passing_run is seen
    assert f"{seen.kind} at the sizes that must pass: " in str(passing)


def test_until_explains_an_accepted_failure_of_another_kind() -> None:
    """Whatever ``--until`` takes, it takes with a reason."""
    seen = [SEGFAULT, NAN, Signature(Kind.IMA, Stage.RUN, MEMORY_FAULT)]
    for until in (*Kind, ANY):
        for failure in seen:
            another = until not in (failure.kind, ANY)
            taken = is_until_target(until, failure)
            why = explain_other_kind(until, failure.kind)
            assert bool(why) is (another and taken), (until, failure)
    said = explain_other_kind(Kind.IMA, Kind.CRASH)
    assert "segmentation fault" in said
    assert "the kind of the failure is crash" in said


def test_mismatch_admits_nan_unless_other_outputs_had_nan() -> None:
    assert MISMATCH.admits(NAN)
    assert not NAN.admits(MISMATCH)
    beside = dataclasses.replace(MISMATCH, beside_nan=True)
    assert beside.admits(MISMATCH)
    assert not beside.admits(NAN)
    assert not Signature.from_json(dataclasses.asdict(beside)).admits(NAN)


def test_mismatch_with_required_difference_rejects_other_differences() -> None:
    values, shape = (
        dataclasses.replace(MISMATCH, differs=each) for each in ("values", "shape")
    )
    assert values.admits(shape)  # while operators go
    narrow = MISMATCH.require_same_difference(values)
    assert narrow.admits(values)
    assert not narrow.admits(shape)
    assert not Signature.from_json(dataclasses.asdict(narrow)).admits(shape)
    assert MISMATCH.require_same_difference(None).admits(shape)
    assert BOUNDS.require_same_difference(BOUNDS).admits(BOUNDS)


def test_verdict_requires_the_same_difference_if_known() -> None:
    values, shape = (
        dataclasses.replace(MISMATCH, differs=each) for each in ("values", "shape")
    )
    fails = Verdict(Outcome.REPRODUCED, Observation(shape))
    assert fails.require_difference_of(shape) == fails
    assert fails.require_difference_of(values) == Verdict(
        Outcome.DIFFERENT, Observation(shape)
    )
    assert (
        fails.require_difference_of(None)
        == fails.require_difference_of(MISMATCH)
        == fails
    )
    refused = Verdict(Outcome.INVALID, Observation(invalid="eager raises"))
    assert refused.require_difference_of(values) == refused


def test_target_admits_itself_with_any_text() -> None:
    said_otherwise = Signature(
        Kind.ASSERT, Stage.RUN, "index out of bounds", "0 <= tmp9"
    )
    assert BOUNDS.admits(said_otherwise)


def test_target_does_not_admit_another_cause() -> None:
    assert not BOUNDS.admits(Signature(Kind.ASSERT, Stage.RUN, "size check"))
    assert not BOUNDS.admits(None)


def test_match_pattern_narrows_admitted_failures() -> None:
    narrow = dataclasses.replace(BOUNDS, match="tmp[89]")
    assert narrow.admits(dataclasses.replace(BOUNDS, text="0 <= tmp9 < 4L"))
    assert not narrow.admits(dataclasses.replace(BOUNDS, text="0 <= tmp1 < 4L"))


def test_mismatch_admits_nan_but_not_the_reverse() -> None:
    assert MISMATCH.admits(NAN)
    assert not NAN.admits(MISMATCH)


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        (Observation(BOUNDS), Outcome.REPRODUCED),
        (Observation(SEGFAULT), Outcome.DIFFERENT),
        (Observation(), Outcome.PASSED),
        (Observation(invalid="eager raises"), Outcome.INVALID),
        (Observation(HANG, unresolved="timeout in run"), Outcome.UNRESOLVED),
    ],
)
def test_judge_returns_the_outcome_of_an_observation(
    seen: Observation, outcome: Outcome
) -> None:
    assert judge(seen, BOUNDS) is outcome


def test_judge_accepts_a_hang_if_the_target_is_a_hang() -> None:
    seen = Observation(HANG, unresolved="timeout in run")
    assert judge(seen, HANG) is Outcome.REPRODUCED


def test_target_occurrence_ignores_passing_stage_but_not_difference() -> None:
    target = Signature(Kind.MISMATCH, Stage.COMPARE, differs="values")
    assert target.occurs_in(target)
    assert target.occurs_in(dataclasses.replace(target, stage=Stage.PASSING))
    assert not target.occurs_in(dataclasses.replace(target, differs="shape"))
    assert not target.occurs_in(Signature(Kind.CRASH, Stage.PASSING))
    assert not target.occurs_in(None)
