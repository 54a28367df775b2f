"""Sentences about a wrong value."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shrinkfx.findings.operators import Operator
from shrinkfx.findings.values import WrongValue
from shrinkfx.protocol.kernel_values import Wrong

NAMES = ("sin", "sub", "mul", "exp", "div")
VALUE = WrongValue(
    culprits=tuple(Operator(name, f"aten.{name}.default") for name in NAMES),
    wrong=Wrong(wrong=1, of=22, first=(21,), got="nan", expected="inf"),
    kernel="cpp_0",
    agrees=False,
    launch=1,
    launches=1,
)


def test_cause_does_not_list_many_operators_without_evidence() -> None:
    assert VALUE.cause == (
        "The first value that differs from eager's on the same inputs is computed in "
        "kernel cpp_0. Which of its 5 operators is wrong is not determined.",
    )


def test_cause_of_few_operators_has_the_first_wrong_value() -> None:
    first, value = replace(VALUE, culprits=VALUE.culprits[:2]).cause
    both = "aten.sin.default or aten.sub.default"
    assert first.startswith(f"Kernel cpp_0 computes a wrong result of {both}: ")
    assert value == "The first wrong value is nan at [21], where eager gives inf."


@pytest.mark.parametrize(("ulps", "is_repeated"), [(None, False), (3.0, True)])
def test_values_in_the_message_are_not_repeated(
    ulps: float | None, *, is_repeated: bool
) -> None:
    wrong = Wrong(wrong=1, of=1, got="2.0", expected="1.0", largest=1.0, ulps=ulps)
    (cause,) = replace(VALUE, wrong=wrong, is_named=True, agrees=True).cause
    assert ("2.0 instead of 1.0" in cause) is is_repeated
    (cause,) = replace(VALUE, wrong=wrong, agrees=True).cause
    assert "2.0 instead of 1.0" in cause
