"""Numbers that stand near by are plainer, few, and fit where the number did."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shrinkfx.program.listing.tensor_specs import (
    MOST,
    is_power,
    number_complexity,
    simpler_numbers,
)
from shrinkfx.program.record import Number


@pytest.mark.parametrize(
    ("number", "near"),
    [
        (205.05, [100.0, 128.0, 205.0]),
        (-205.05, [-1.0, -100.0, -205.0]),
        (0.00305, [0.001, 0.0, 0.003]),
        (65504.0, [10000.0, 32768.0]),
        (37, [10, 32]),
        (-37, [-1, -10]),
        (3.0, [1.0]),
        (math.nan, []),
        (math.inf, []),
        (True, []),
        (2.5 + 1j, []),
    ],
)
def test_simpler_numbers_are_listed_for_a_number(
    number: Number, near: list[Number]
) -> None:
    found = [*simpler_numbers(number)]
    assert found == near
    assert {type(each) for each in found} <= {type(number)}


@pytest.mark.parametrize(
    "numbers",
    [
        [0, 1.0, False],
        [-1, 2.0, 0.003, 200.0, 1024, 1e-30],
        [37, -205.0],
        [205.05, math.nan, math.inf, 1j],
    ],
)
def test_similar_numbers_have_equal_complexity(numbers: list[Number]) -> None:
    assert len({number_complexity(number) for number in numbers}) == 1


@given(st.floats() | st.integers(-(2**63), 2**63 - 1))
def test_simpler_numbers_are_few_less_complex_and_of_same_sign(number: float) -> None:
    found = [*simpler_numbers(number)]
    assert len(found) <= 3
    for each in found:
        assert not isinstance(each, complex)
        assert number_complexity(each) < number_complexity(number) <= MOST
        assert each * number >= 0
        assert abs(each) <= max(1, round(abs(number)))


@pytest.mark.parametrize("number", [1000.0, -1000.0, 1e-5, 1e30, 1024, -128.0, 1])
def test_powers_of_ten_and_two_are_recognised(number: float) -> None:
    assert is_power(number)


@pytest.mark.parametrize("number", [0, 0.0, 205.0, 0.03, math.inf, math.nan, -3000])
def test_number_with_several_significant_digits_is_no_power(number: float) -> None:
    assert not is_power(number)
