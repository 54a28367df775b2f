"""Whom planted failures are blamed on, before the search."""

from __future__ import annotations

import pytest
from support.planting import Field, Plant, target

pytestmark = pytest.mark.torch


def test_mismatch_is_blamed_on_its_culprit(field: Field) -> None:
    subject = field.see(Plant("cosh", "divide by zero"))
    (suspect,) = subject.suspects
    assert (suspect.operator, suspect.weight) == (target("cosh"), 1.0)
    assert suspect.source.startswith("haystack.py:")


def test_flaky_mismatch_is_blamed_on_its_culprit(
    field: Field,
) -> None:
    subject = field.see(Plant("cosh", "add one", rate=0.3))
    assert [s.operator for s in subject.suspects] == [target("cosh")]


def test_compile_error_is_blamed_on_the_operator_in_its_message(field: Field) -> None:
    subject = field.see(Plant("cosh", "refuse", "no such lowering"))
    assert [s.operator for s in subject.suspects] == [target("cosh")]
