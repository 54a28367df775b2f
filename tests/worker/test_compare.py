"""When a result is wrong, and when it is only rounded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shrinkfx.protocol.answers import Difference
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.worker.checking.reference import (
    DEFAULT_TOLERANCES,
    Closeness,
    compare,
    count_unstable_outputs,
    run_in_float64,
)
from shrinkfx.worker.model import Inputs

NONE = Difference("", "")


def compared(*results: Any, **more: Any) -> Difference:
    """What compare says; ``NONE`` if nothing differs."""
    return compare(*results, **more) or NONE


def difference(
    actual: Tensor,
    expected: Tensor,
    again: Tensor | None = None,
    exact: Tensor | None = None,
    close: Closeness = DEFAULT_TOLERANCES,
) -> str:
    """What compare says of one output."""
    second = expected if again is None else again
    outputs = [actual], [expected], [second]
    truth = None if exact is None else [exact]
    found = compared(*outputs, lambda: truth, close=close)
    return found.what


ONES = torch.ones(3)
NANS = torch.full((3,), torch.nan)


@pytest.mark.parametrize(
    ("sought", "position", "besides"),
    [("", 1, "nan"), ("mismatch", 1, "nan"), ("nan", 2, "values"), ("hang", 1, "nan")],
)
def test_output_with_the_sought_difference_comes_first(
    sought: str, position: int, besides: str
) -> None:
    outputs, results = [ONES] * 4, [ONES, ONES * 2, NANS, NANS * 2]
    found = compared(results, outputs, outputs, lambda: None, sought)
    assert found.text.startswith(f"output {position}:")
    assert found.besides == besides


def test_nan_is_found_next_to_an_output_of_another_shape() -> None:
    outputs, results = [ONES, ONES], [ONES[:2], NANS]
    found = compared(results, outputs, outputs, lambda: None, "nan")
    assert (found.what, found.besides) == ("nan", "values")
    found = compared(results, outputs, outputs, lambda: None)
    assert (found.what, found.besides) == ("shape", "nan")


def test_no_other_differences_where_all_outputs_differ_alike() -> None:
    outputs = [ONES, ONES]
    found = compared([NANS, NANS], outputs, outputs, lambda: None)
    assert (found.what, found.besides) == ("nan", "")
    found = compared([ONES, ONES * 2], outputs, outputs, lambda: None, "nan")
    assert (found.what, found.besides) == ("values", "")


LARGE, OVERFLOW = torch.tensor([2**60]), torch.tensor([7e4, 1.0]).double()
MATRIX, TURNED = torch.ones(3, 4), torch.ones(4, 3).t()


@pytest.mark.parametrize(
    ("actual", "expected", "what"),
    [
        (ONES * 2, ONES, "values"),
        (LARGE + 1, LARGE, "values"),
        (torch.tensor([True]), torch.tensor([False]), "values"),
        (torch.tensor(2.0), torch.tensor(1.0), "values"),
        (torch.ones(2), ONES, "shape"),
        (NANS, ONES, "nan"),
        (ONES / 0, ONES, "nan"),
        (NANS, NANS, ""),
        (torch.empty(0, 3), torch.empty(0, 3), ""),
        (TURNED, MATRIX, ""),  # strides count only with --strict
    ],
)
def test_output_is_compared_with_that_of_eager(
    actual: Tensor, expected: Tensor, what: str
) -> None:
    assert difference(actual, expected) == what


@pytest.mark.parametrize(
    ("actual", "expected", "exact", "what"),
    [
        (torch.tensor([65000.0, 1.0]).half(), OVERFLOW.half(), OVERFLOW, ""),
        (torch.tensor([65000.0, 1.5]).half(), OVERFLOW.half(), OVERFLOW, "values"),
        # An integer has only its own error.
        (torch.tensor([5, 1]), torch.tensor([9, 1]), torch.tensor([5, 1]), ""),
        (torch.tensor([5, 2]), torch.tensor([9, 1]), torch.tensor([5, 1]), "values"),
    ],
)
def test_errors_of_eager_itself_are_no_difference(
    actual: Tensor, expected: Tensor, exact: Tensor, what: str
) -> None:
    assert difference(actual, expected, exact=exact) == what


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rounding_is_no_difference(dtype: torch.dtype) -> None:
    expected = torch.linspace(1, 2, 5).to(dtype)
    eps = torch.finfo(dtype).eps / 2
    assert difference((expected * (1 + eps)).to(dtype), expected) == ""


@pytest.mark.parametrize("actual", [1.0, -torch.inf])
def test_infinite_value_of_eager_is_compared(actual: float) -> None:
    infinite = torch.full((3,), torch.inf)
    assert difference(torch.full((3,), actual), infinite) == "values"
    assert count_unstable_outputs([infinite], [torch.full((3,), actual)]) == 1
    assert not difference(infinite.clone(), infinite)


def test_empty_output_of_eager_is_stable() -> None:
    assert not count_unstable_outputs([torch.ones(0, 3)], [torch.ones(0, 3)])


@pytest.mark.parametrize("wrong", [2.0, torch.nan])
def test_last_element_of_a_large_output_is_compared(wrong: float) -> None:
    expected = torch.ones((1 << 18) + 5)
    actual = expected.clone()
    actual[-1] = wrong
    assert difference(actual, expected) == ("values" if wrong == 2.0 else "nan")


@pytest.mark.parametrize("number", [3, True, 0.5, float("nan")])
def test_number_output_may_be_a_zero_dimensional_tensor(number: float) -> None:
    assert compared([torch.tensor(number)], [number], [number], lambda: None) == NONE
    found = compared([torch.tensor([number])], [number], [number], lambda: None)
    assert found != NONE


@pytest.mark.parametrize(("actual", "expected"), [(2**60 + 1, 2**60), (0.25, 0.5)])
def test_wrong_number_is_a_difference(actual: float, expected: float) -> None:
    found = compared([torch.tensor(actual)], [expected], [expected], lambda: None)
    assert found.what == "values"
    assert found.text == f"output 0: {actual}, eager gives {expected}"


def test_random_number_is_no_difference() -> None:
    assert compared([torch.tensor(1)], [2], [3], lambda: None) == NONE


def test_number_of_another_type_is_a_difference() -> None:
    found = compared([torch.tensor(3.0)], [3], [3], lambda: None)
    assert found == Difference("type", "output 0: float, not int")


def test_dtype_difference_comes_before_value_differences() -> None:
    found = compared(
        [ONES * 2, ONES.int()], [ONES, ONES], [ONES, ONES], exact=lambda: None
    )
    assert found.what == "dtype"
    assert "output 1: dtype" in found.text


def test_strides_are_compared_with_strict() -> None:
    strict, matrix = Closeness(strict=True), torch.rand(3, 4)
    assert difference(matrix.t().contiguous().t(), matrix, close=strict) == "strides"
    assert difference(matrix.clone(), matrix, close=strict) == ""
    row, other = torch.rand(1, 4), torch.rand(1, 4).as_strided((1, 4), (9, 1))
    assert difference(row, other.copy_(row), close=strict) == ""
    other = matrix.t().contiguous().t()
    found = compared([other], [matrix], [matrix], no_float64_run, close=strict)
    assert found.text == "output 0: strides (1, 3), eager gives (4, 1)"


def no_float64_run() -> None:
    """Give no float64 run."""


@pytest.mark.parametrize(
    ("close", "expected"),
    [
        (Closeness(), "values"),
        (Closeness(rtol=0.2), ""),
        (Closeness(atol=0.2), ""),
        (Closeness(rtol=0.05, atol=0.01), "values"),
    ],
)
@pytest.mark.parametrize("kind", ["tensor", "number"])
def test_requested_tolerances_are_applied(
    close: Closeness, expected: str, kind: str
) -> None:
    if kind == "tensor":
        assert difference(ONES * 1.1, ONES, close=close) == expected
        return
    found = compared([torch.tensor(1.1)], [1.0], [1.0], no_float64_run, close=close)
    assert found.what == expected


def test_closeness_is_read_from_check_options() -> None:
    assert Closeness.of(CheckOptions(calls=3)) == DEFAULT_TOLERANCES
    assert Closeness.of(CheckOptions(rtol=0.1, strict=True)) == Closeness(
        rtol=0.1, strict=True
    )
    assert Closeness(rtol=0.5).tolerance(torch.float32) == (0.5, 1e-5)


def test_missing_output_is_a_difference() -> None:
    assert compared([], [ONES], [ONES], lambda: None).what == "number"


def test_output_unstable_in_eager_is_ignored() -> None:
    again = torch.tensor([5.0, 1, 1])
    assert difference(torch.tensor([9.0, 1, 1]), ONES, again) == ""
    # Another draw may equal eager's by chance in some elements and not in others.
    assert difference(torch.tensor([9.0, 7, 7]), ONES, again) == ""
    assert count_unstable_outputs([ONES], [again]) == 1


def test_healthy_dropout_is_no_difference() -> None:
    draws = []
    for seed in range(3):
        torch.manual_seed(seed)
        draws.append(torch.nn.functional.dropout(torch.ones(64), 0.5))
    first, second, third = draws
    assert difference(first, second, third) == ""


def test_difference_within_ten_times_eagers_own_error_is_rounding() -> None:
    expected, exact = torch.tensor([1.001]), torch.tensor([1.0]).double()
    actual = torch.tensor([0.995])
    found = compared([actual], [expected], [expected], lambda: [exact])
    assert found == NONE
    assert difference(actual, expected) == "values"


def test_tolerance_of_an_element_includes_typical_error_of_eager() -> None:
    draw = torch.Generator().manual_seed(0)
    exact, *errors = torch.randn(3, 4096, generator=draw, dtype=torch.float64)
    eager, compiled = ((exact + 3e-3 * error).bfloat16() for error in errors)
    own = (eager.double() - exact).abs()
    far = (compiled.double() - eager.double()).abs() > 10 * own
    assert (far & ~torch.isclose(compiled, eager)).sum() > 100  # by chance
    assert difference(compiled, eager, exact=exact) == ""
    compiled[7] = exact[7] + 0.2
    found = compared([compiled], [eager], [eager], lambda: [exact])
    assert found.text.startswith(
        "output 0: 1 of 4096 elements differ, the first at [7]"
    )


def test_operator_that_refuses_float64_is_run_in_float32() -> None:
    @torch.library.custom_op("compared::narrow", mutates_args=())
    def narrow(x: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            raise RuntimeError("expected float32 or bfloat16")
        return x * x

    narrow.register_fake(torch.empty_like)

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return narrow(x * 3)

    inputs = (torch.randn(64).bfloat16(),)
    program = torch.export.export(Model(), inputs)
    (found,) = run_in_float64(program, Inputs(inputs, {})) or []
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, (inputs[0].double() * 3) ** 2, rtol=1e-6, atol=0)


def test_float64_run_returns_float64_results() -> None:
    module = nn.Sequential(nn.Linear(64, 64), nn.Tanh())
    inputs = (torch.randn(4, 64),)
    with torch.no_grad():
        program = torch.export.export(module.eval(), inputs)
    (wide,) = run_in_float64(program, Inputs(inputs, {})) or []
    assert wide.dtype == torch.float64
    torch.testing.assert_close(wide.float(), module(*inputs).detach())
