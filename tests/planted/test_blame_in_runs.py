"""Whom planted failures are blamed on, before the search."""

from __future__ import annotations

import pytest
from support.planting import Field, Plant, target

pytestmark = pytest.mark.torch


def test_wrong_result_is_blamed_on_the_operator_that_gives_it(field: Field) -> None:
    subject = field.see(Plant("cosh", "divide by zero"))
    (suspect,) = subject.suspects
    assert (suspect.operator, suspect.weight) == (target("cosh"), 1.0)
    assert suspect.source.startswith("haystack.py:")


def test_wrong_result_of_some_runs_is_blamed_on_the_operator_that_gives_it(
    field: Field,
) -> None:
    subject = field.see(Plant("cosh", "add one", rate=0.3))
    assert [s.operator for s in subject.suspects] == [target("cosh")]


def test_refusal_is_blamed_on_the_operator_that_it_names(field: Field) -> None:
    subject = field.see(Plant("cosh", "refuse", "no such lowering"))
    assert [s.operator for s in subject.suspects] == [target("cosh")]
