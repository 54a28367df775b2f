"""Eager results, and their comparison with those of the compiled program."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from support.exported import make_candidate
from support.zoo import ZOO, Loaded, export, loaded, run_program, temporary_folder
from torch import Tensor, nn
from torch.export import ExportedProgram

from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.protocol.answers import Checked, Difference
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.worker.checking import reference
from shrinkfx.worker.checking.reference import (
    DEFAULT_TOLERANCES,
    Closeness,
    Reference,
    compare,
    count_unstable_outputs,
    run_in_float64,
)
from shrinkfx.worker.eager.intermediates import SEED, run_eager
from shrinkfx.worker.graph.describe import keeps_state, mutates
from shrinkfx.worker.graph.rebuild import rebuild
from shrinkfx.worker.model import Inputs, Program
from shrinkfx.worker.printing.module import print_program, run_source
from shrinkfx.worker.private_api.graph_api import TorchDispatchMode

# --- comparison


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


@pytest.mark.parametrize(
    ("results", "sought", "what", "besides"),
    [
        ([ONES[:2], NANS], "nan", "nan", "values"),
        ([ONES[:2], NANS], "", "shape", "nan"),
        ([NANS, NANS], "", "nan", ""),
        ([ONES, ONES * 2], "nan", "values", ""),
    ],
)
def test_other_differences_are_named_unless_all_outputs_differ_alike(
    results: list[Tensor], sought: str, what: str, besides: str
) -> None:
    outputs = [ONES, ONES]
    found = compared(results, outputs, outputs, lambda: None, sought)
    assert (found.what, found.besides) == (what, besides)


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


@pytest.mark.parametrize(
    ("result", "first", "second", "expected"),
    [
        (torch.tensor(1), 2, 3, NONE),  # a random number
        (torch.tensor(3.0), 3, 3, Difference("type", "output 0: float, not int")),
    ],
)
def test_random_number_is_ignored_and_another_type_is_a_difference(
    result: Tensor, first: int, second: int, expected: Difference
) -> None:
    assert compared([result], [first], [second], lambda: None) == expected


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


def test_nan_of_eager_alone_is_rounding_if_the_result_is_exact() -> None:
    eager, exact = torch.tensor([torch.nan, 2.0]), torch.tensor([172.0, 2.0]).double()
    assert difference(torch.tensor([172.0, 2.0]), eager, exact=exact) == ""
    assert difference(torch.tensor([180.0, 2.0]), eager, exact=exact) == "values"
    lost = torch.tensor([torch.nan, 2.0]).double()
    assert difference(torch.tensor([172.0, 2.0]), eager, exact=lost) == "values"


def test_nan_is_rounding_if_the_float64_run_is_not_finite_where_eager_is() -> None:
    """A difference of one ulp, times 1e14, decides between exp(0) and exp(inf)."""
    eager, nan = torch.tensor([0.0, 1.0]), torch.full((2,), torch.nan)
    unstable, stable = torch.tensor([0.0, torch.nan]).double(), eager.double()
    assert difference(nan, eager, exact=unstable) == ""
    assert difference(nan, eager, exact=stable) == "nan"
    assert difference(torch.tensor([0.5, 1.0]), eager, exact=unstable) == "values"


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


# --- eager runs


CALLS = 3


def as_module_gives(calls: int) -> torch.Tensor:
    """What the module itself gives at its last call."""
    module, args, kwargs, _ = ZOO["in_place"]()
    for _ in range(calls):
        result = module(*copy.deepcopy(args), **kwargs)
    assert isinstance(result, torch.Tensor)
    return result


@pytest.mark.parametrize("calls", [1, CALLS])
def test_buffers_persist_between_calls_in_every_form(calls: int) -> None:
    program, skeleton, values = loaded("in_place")
    built = rebuild(program, Candidate.from_skeleton(skeleton), values)
    again = run_source(print_program(built), built)
    wanted = as_module_gives(calls)
    for exported in (program.original, built.exported, again):
        (result,) = run_eager(exported, built.failing, seed=SEED, calls=calls)
        torch.testing.assert_close(result, wanted)
        exact = run_in_float64(exported, built.failing, calls=calls)
        assert exact is not None
        torch.testing.assert_close(exact[0], wanted.double())


def test_eager_run_leaves_buffers_unchanged() -> None:
    program, _, _ = loaded("in_place")
    before = {k: v.clone() for k, v in program.original.state_dict.items()}
    run_eager(program.original, program.failing, seed=SEED, calls=CALLS)
    torch.testing.assert_close(dict(program.original.state_dict), before)


def test_last_call_is_compared_with_the_same_eager_call() -> None:
    program, skeleton, values = loaded("in_place")
    built = rebuild(program, Candidate.from_skeleton(skeleton), values)
    reference = Reference(built, CheckOptions(calls=CALLS))
    reference.run_eager()
    assert reference.compare([as_module_gives(1)]).difference
    assert not reference.compare([as_module_gives(CALLS)]).difference


class Stored(torch.nn.Module):
    """Returns what it also writes."""

    held: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("held", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        held = x * 2 + self.held
        self.held.copy_(held)
        return held, held + 1


class Late(torch.nn.Module):
    """Reads a buffer before it writes there what it does not read itself."""

    held: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("held", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> Any:
        y = x + self.held
        self.held.copy_(x * 2)
        return y


class Delayed(Late):
    """Holds an input as it is."""

    def forward(self, x: torch.Tensor) -> Any:
        y = x + self.held
        self.held.copy_(x)
        return y


class Quiet(Late):
    """Returns nothing."""

    def forward(self, x: torch.Tensor) -> Any:
        self.held.copy_(x * 2 + self.held)


def cut_from(module: torch.nn.Module) -> Loaded:
    """Export as a program without in-place operators, and run it in eager."""
    inputs = Inputs((torch.ones(3),), {})
    exported = torch.export.export(module, inputs.args).run_decompositions({})
    return run_program(Program(exported, exported, inputs, inputs), temporary_folder())


def in_calls(exported: ExportedProgram) -> list[list[Any]]:
    """The first number of each result, for each of three calls."""
    inputs = Inputs((torch.ones(3),), {})
    return [
        [float(r[0]) for r in run_eager(exported, inputs, seed=SEED, calls=calls)]
        for calls in range(1, CALLS + 1)
    ]


@pytest.mark.parametrize(
    ("module", "calls"),
    [
        (Late, [[1.0], [3.0], [3.0]]),
        (Delayed, [[1.0], [2.0], [2.0]]),
        (Quiet, [[2.0], [4.0], [6.0]]),
    ],
)
def test_written_buffer_is_read_by_the_next_call(
    module: type[Late], calls: list[list[float]]
) -> None:
    program, skeleton, values = cut_from(module())
    whole = Candidate.from_skeleton(skeleton)
    built = rebuild(program, whole, values)
    assert in_calls(built.exported) == calls
    assert in_calls(run_source(print_program(built), built)) == calls
    alone = rebuild(program, whole.returning(Outputs.SINKS), values)
    first = in_calls(alone.exported)[0]
    assert in_calls(alone.exported) == [first] * CALLS


def test_value_can_be_both_returned_and_written() -> None:
    program, skeleton, values = cut_from(Stored())
    built = rebuild(program, Candidate.from_skeleton(skeleton), values)
    assert in_calls(built.exported) == [[2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]
    again = run_source(print_program(built), built)
    assert in_calls(again) == in_calls(built.exported)


def test_candidate_without_writes_keeps_no_state() -> None:
    program, skeleton, values = loaded("in_place")
    assert keeps_state(program)
    whole = rebuild(program, Candidate.from_skeleton(skeleton), values)
    assert mutates(whole.exported)
    returned = Candidate.from_skeleton(skeleton, Outputs.SINKS)
    assert not mutates(rebuild(program, returned, values).exported)


@pytest.mark.parametrize("name", ["weights", "dynamic", "branches"])
def test_programs_without_mutation_keep_no_state(name: str) -> None:
    program, _, _ = loaded(name)
    assert not keeps_state(program)
    assert not mutates(export(name))


class Uneven(torch.nn.Module):
    """One result that rounding spoils, and two that it does not."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x * 1e8 + 0.3) - x * 1e8, x + 1, x.to(torch.int32)


def needed_tolerances(
    module: nn.Module, options: CheckOptions
) -> list[tuple[float, float]]:
    built = make_candidate(module, torch.ones(4))
    return Reference(built, options).needed_tolerances()


def test_only_results_that_eager_rounds_get_wider_tolerances() -> None:
    spoilt, sound, whole = needed_tolerances(Uneven(), CheckOptions())
    assert spoilt[0] == 1.3e-6
    assert spoilt[1] == pytest.approx(3.0)
    assert sound == (1.3e-6, 1e-5)
    assert whole == (0.0, 0.0)


def test_requested_tolerances_apply_to_each_result() -> None:
    asked = CheckOptions(rtol=0.5, atol=0.25)
    spoilt, sound, whole = needed_tolerances(Uneven(), asked)
    assert spoilt[0] == 0.5
    assert spoilt[1] == pytest.approx(3.0)
    assert sound == whole == (0.5, 0.25)


def test_exact_eager_result_needs_no_wider_tolerances() -> None:
    assert needed_tolerances(nn.ReLU(), CheckOptions()) == []


class Permuted(torch.nn.Module):
    """Inverts a permutation into memory that nobody has written, as Mixtral does."""

    def forward(self, order: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(order.shape[0])
        return inverse, x.new_empty(2, 3), x.new_empty(4, dtype=x.dtype).bool(), x + 1


def test_uninitialized_memory_is_not_compared() -> None:
    order, x = torch.tensor([2, 0, 1]), torch.ones(2)
    built = make_candidate(Permuted(), order, x)
    reference = Reference(built, CheckOptions())
    reference.run_eager()
    inverse = torch.tensor([1, 2, 0])
    nothing = torch.full((2, 3), 7.0), torch.tensor([True, False, True, False])
    assert reference.compare([inverse, *nothing, x + 1]) == Checked(values_skipped=2)
    assert reference.compare([inverse, *nothing, x]).difference
    assert reference.compare([order, *nothing, x + 1]).difference
    assert "filled" not in built.exported.graph_module.code


@pytest.mark.parametrize(
    "dtype", [torch.float8_e4m3fn, torch.bfloat16, torch.complex64, torch.int8]
)
def test_uninitialized_memory_of_every_dtype_is_filled(dtype: torch.dtype) -> None:
    class Empty(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.empty_like(x)

    x = torch.ones(3).to(dtype)
    exported = torch.export.export(Empty(), (x,))
    for number in (0, 1):
        (result,) = run_eager(exported, Inputs((x,), {}), seed=SEED, memory=number)
        assert result.dtype is dtype
        assert (result.to(torch.complex64) == 0).tolist() == [not number] * 3


def test_uninitialized_memory_as_an_index_raises() -> None:
    """Compiled, it is whatever lies there, and that dies of what the original may."""

    class Taken(torch.nn.Module):
        def forward(self, order: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return x[torch.empty_like(order)]

    built = make_candidate(Taken(), torch.tensor([1, 0]), torch.ones(2))
    with pytest.raises(IndexError):
        Reference(built, CheckOptions()).run_eager()


# --- slow runs


class Cosh(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.cosh()


class CoshCalls(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.dtypes: list[torch.dtype] = []

    def __torch_dispatch__(
        self, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten.cosh.default:
            self.dtypes.append(args[0].dtype)
        return func(*args, **(kwargs or {}))


def differing(package: Path, inputs: Tensor) -> tuple[Checked, list[torch.dtype]]:
    """Compare a wrong result with eager; return the dtypes of the runs in eager."""
    run = make_candidate(Cosh(), inputs)
    with CoshCalls() as called:
        compared = Reference(run, CheckOptions(package=str(package)))
        compared.run_eager()
        answer = compared.compare([inputs + 5])
    return answer, called.dtypes


EAGER = [torch.float32, torch.float32, torch.float64]


def test_slow_runs_in_eager_are_kept_next_to_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "_SLOW_S", 0.0)
    package, ones = tmp_path / "model.pt2", torch.ones(3)
    first, runs = differing(package, ones)
    assert runs == EAGER
    assert differing(package, ones) == (first, [])
    assert first.difference
    assert differing(package, 2 * ones)[1] == EAGER
    assert differing(tmp_path / "other.pt2", ones)[1] == EAGER


def test_quick_runs_in_eager_are_repeated(tmp_path: Path) -> None:
    package = tmp_path / "model.pt2"
    assert differing(package, torch.ones(3)) == differing(package, torch.ones(3))
    assert not list(tmp_path.iterdir())


@torch.library.custom_op("reference::scribble", mutates_args=())
def scribble(x: Tensor) -> Tensor:
    """Write into an argument without declaring it."""
    result = x.clone()
    x.zero_()
    return result


scribble.register_fake(torch.empty_like)


class Scribbles(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = torch.ops.reference.scribble(x)
        return result


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_run_in_float64_copies_inputs_that_an_operator_overwrites(
    dtype: torch.dtype,
) -> None:
    ones = torch.ones(3, dtype=dtype)
    run = make_candidate(Scribbles(), ones)
    run_in_float64(run.exported, run.failing)
    assert all(value.count_nonzero() == 3 for value in run.failing.flat())
