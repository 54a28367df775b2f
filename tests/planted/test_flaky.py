"""Really random failures are reduced to what is planted.

No seed: a test here may fail without a fault, once in some hundred times.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.haystack import save_haystack
from support.planting import PRELOAD, Field, Plant, Reduced, write_plants

from shrinkfx import minify
from shrinkfx.failure.signature import Kind

NEEDS = [(), ("erf",), ("erf", "atan")]
HOW = ["raise", "die", "abort", "add one"]


def planted(number: int, rate: float) -> Plant:
    """Vary how it fails, and how many operators it needs."""
    how, needs = HOW[number % len(HOW)], NEEDS[number % len(NEEDS)]
    return Plant("cosh", how, "planted", needs=needs, rate=rate)


def is_right(reduced: Reduced, plant: Plant) -> bool:
    return reduced.operators == {plant.at, *plant.needs} and reduced.minimal


def test_failure_in_three_runs_of_ten_is_reduced_to_its_minimum(field: Field) -> None:
    plant = Plant("cosh", "die", rate=0.3)
    reduced = field.reduce(plant)
    assert is_right(reduced, plant)
    assert 0.1 < reduced.subject.rate < 0.7


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.3, 0.05])
def test_nine_of_ten_flaky_failures_are_reduced_to_their_minimum(
    field: Field, rate: float
) -> None:
    plants = [planted(number, rate) for number in range(10)]
    reduced = [field.reduce(plant) for plant in plants]
    right = [is_right(r, plant) for r, plant in zip(reduced, plants, strict=True)]
    assert sum(right) >= 9
    for r, plant in zip(reduced, plants, strict=True):
        assert all(step >= {plant.at, *plant.needs} for step in r.accepted)
        assert rate / 3 < r.subject.rate < rate * 3


@pytest.mark.slow
def test_failure_with_a_falling_rate_is_reduced_and_measured(field: Field) -> None:
    often = Plant("cosh", "raise", "planted", needs=("sin",), rate=0.3)
    seldom = Plant("cosh", "raise", "planted", unless=("sin",), rate=0.1)
    reduced = field.reduce(often, seldom)
    assert is_right(reduced, seldom)
    assert 0.04 < reduced.found.rate < 0.25


@pytest.mark.slow
def test_requested_flaky_failure_is_found_behind_another_failure(field: Field) -> None:
    plant = Plant("cosh", "raise", "stride of 3 expected", rate=0.3)
    other = Plant("atan", "die", rate=0.5)
    reduced = field.reduce(plant, other, until="exception")
    assert is_right(reduced, plant)
    assert "SIGSEGV" in reduced.by_catch


@pytest.mark.slow
def test_more_frequent_of_two_flaky_failures_is_reduced(field: Field) -> None:
    often = Plant("cosh", "raise", "stride of 3 expected", rate=0.5)
    seldom = Plant("erf", "die", rate=0.1)
    reduced = field.reduce(seldom, often, until="any")
    assert is_right(reduced, often)
    assert reduced.subject.target.kind is Kind.EXCEPTION


@pytest.mark.slow
def test_requested_kind_of_two_flaky_failures_is_reduced(field: Field) -> None:
    often = Plant("cosh", "raise", "stride of 3 expected", rate=0.5)
    seldom = Plant("erf", "die", rate=0.1)
    reduced = field.reduce(seldom, often, until="crash")
    assert is_right(reduced, seldom)
    assert any("stride of 3 expected" in text for text in reduced.by_catch)


@pytest.mark.slow
def test_report_states_the_rate_and_the_repro_repeats_runs(tmp_path: Path) -> None:
    model = save_haystack(tmp_path / "model.pt2")
    plants = write_plants(tmp_path / "plants.json", [planted(0, rate=0.3)])
    environment = {"SHRINKFX_PLANTS": str(plants), "OMP_NUM_THREADS": "1"}
    reduction = minify(
        model, preload=[PRELOAD], environment=environment, out=tmp_path / "out"
    )
    assert reduction.status == "reduced"
    assert reduction.verified == (3, 3)
    assert reduction.operators[1] == 1
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert all(0.1 < summary["rate"][when] < 0.7 for when in ("before", "after"))
    assert summary["suspects"][0]["operator"] == "aten.cosh.default"
    command = [sys.executable, "-W", "ignore", str(reduction.repro)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert "runs failed" in done.stdout
