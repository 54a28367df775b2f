"""The order of versions, the bisection, and the sentence that summarizes verdicts."""

from __future__ import annotations

import doctest
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shrinkfx.check import torch_versions
from shrinkfx.check.torch_versions import bisect, most_runs, order, summarize

RELEASED = [f"2.{minor}.0" for minor in range(6, 16)]


def test_examples_in_docstrings_are_right() -> None:
    assert doctest.testmod(torch_versions).failed == 0
    assert doctest.testmod(torch_versions).attempted > 3


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("2.9.1", "2.10.0"),
        ("2.10.0rc1", "2.10.0"),
        ("2.10.0", "2.10.1.dev20261101+cpu"),
        ("2.10.0rc2", "2.10.0rc10"),
        ("2.10.0", "2.10.0.post1"),
        ("unknown", "2.6.0"),
    ],
)
def test_versions_are_ordered_as_they_were_released(older: str, newer: str) -> None:
    assert order(older) < order(newer)


class Repro:
    """Fails on some versions, and has no verdict on others."""

    def __init__(self, failing: Sequence[str], unknown: Sequence[str] = ()) -> None:
        self.failing, self.unknown = failing, unknown
        self.verdicts: dict[str, bool | None] = {}
        self.runs = 0

    def __call__(self, version: str) -> bool | None:
        if version not in self.verdicts:
            self.runs += 1
            known = version not in self.unknown
            self.verdicts[version] = version in self.failing if known else None
        return self.verdicts[version]


def test_bisection_finds_the_first_version_that_fails() -> None:
    repro = Repro(RELEASED[6:])
    bisect(RELEASED, repro, "2.15.0")
    assert summarize(repro.verdicts, RELEASED) == "fails since 2.12.0; passes on 2.11.0"
    assert repro.runs == 5  # this interpreter's, and four of nine


def test_bisection_reports_that_the_oldest_version_fails() -> None:
    repro = Repro(RELEASED)
    bisect(RELEASED, repro, "2.15.0")
    assert repro.verdicts["2.6.0"] is True
    said = summarize(repro.verdicts, RELEASED)
    assert said == "fails on all tested versions: 2.6.0, 2.7.0, 2.8.0, 2.10.0, 2.15.0"


def test_bisection_starts_at_the_failing_version_if_the_newest_passes() -> None:
    repro = Repro(RELEASED[3:8])
    bisect(RELEASED, repro, "2.15.0", "2.10.0")
    failing = {version for version, fails in repro.verdicts.items() if fails}
    assert {"2.9.0", "2.13.0"} <= failing <= {*RELEASED[3:8]}
    assert (repro.verdicts["2.8.0"], repro.verdicts["2.14.0"]) == (False, False)


def test_bisection_without_a_failing_version_runs_no_further_version() -> None:
    repro = Repro([])
    bisect(RELEASED, repro, "2.15.0", "2.10.0")
    assert [*repro.verdicts] == ["2.15.0", "2.10.0"]
    said = summarize(repro.verdicts, RELEASED)
    assert said == "passes on all tested versions: 2.10.0, 2.15.0"


def test_bisection_tests_newer_versions_if_the_failure_was_seen_there() -> None:
    repro = Repro(RELEASED[6:])
    bisect(RELEASED, repro, "2.8.0", "2.15.0")
    assert summarize(repro.verdicts, RELEASED) == "fails since 2.12.0; passes on 2.11.0"
    assert "2.7.0" not in repro.verdicts


@given(
    first=st.integers(0, len(RELEASED) - 1),
    unknown=st.sets(st.sampled_from(RELEASED[:-1])),
)
def test_bisection_encloses_the_boundary_with_any_skips(
    first: int, unknown: set[str]
) -> None:
    repro = Repro(RELEASED[first:], sorted(unknown))
    bisect(RELEASED, repro, "2.15.0")
    known = [version for version in RELEASED if version not in unknown]
    failing = [version for version in known if repro.failing and repro(version)]
    tested = {v for v, fails in repro.verdicts.items() if fails is not None}
    assert failing[0] in tested
    if known[0] != failing[0]:
        assert known[known.index(failing[0]) - 1] in tested


@given(data=st.data())
def test_bisection_without_skips_halves_the_remaining_versions(
    data: st.DataObject,
) -> None:
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, 10)] * 2)))
    here = data.draw(st.sampled_from(RELEASED))
    seen_on = data.draw(st.sampled_from(["", "2.0.0", *RELEASED]))
    repro = Repro(RELEASED[first:last])
    bisect(RELEASED, repro, here, seen_on)
    assert repro.runs <= 1 + most_runs(RELEASED, here, seen_on)
    assert most_runs(RELEASED, "2.15.0") == 4


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (
            {"2.12.0": False, "2.14.0": True, "2.15.0": True},
            "first tested version that fails: 2.14.0; last that passes: 2.12.0; not "
            "tested between them: 2.13.0",
        ),
        (
            {"2.12.0": False, "2.13.0": None, "2.14.0": True},
            "first tested version that fails: 2.14.0; last that passes: 2.12.0; cannot "
            "tell on 2.13.0",
        ),
        ({"2.14.0": True, "2.15.0": False}, "fails up to 2.14.0; passes since 2.15.0"),
        (
            {"2.6.0": True, "2.7.0": False, "2.8.0": True},
            "fails on 2.6.0, 2.8.0; passes on 2.7.0",
        ),
        ({"2.6.0": None, "2.7.0": True}, "fails on 2.7.0; cannot tell on 2.6.0"),
        ({"2.6.0": None, "2.7.0": None}, "cannot tell on 2.6.0, 2.7.0"),
        (
            {"2.15.0": False, "2.16.0.dev20261101": True},
            "first tested version that fails: 2.16.0.dev20261101; last that passes: "
            "2.15.0",
        ),
        (
            {"2.15.0+cpu": False, "2.15.0+cu132": True},
            "fails on 2.15.0+cu132; passes on 2.15.0+cpu",
        ),
    ],
)
def test_sentence_claims_only_tested_versions(
    verdicts: dict[str, bool | None], said: str
) -> None:
    assert summarize(verdicts, RELEASED) == said


def test_sentence_claims_no_boundary_if_releases_are_unknown() -> None:
    said = summarize({"2.13.0": False, "2.14.0": True})
    assert said == "first tested version that fails: 2.14.0; last that passes: 2.13.0"
