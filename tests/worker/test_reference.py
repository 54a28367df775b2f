"""What eager gives, call after call."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from test_rebuild import loaded
from torch.export import ExportedProgram
from zoo import ZOO, export

from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.answers import Checked
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.worker.checking.reference import Reference, run_in_float64
from shrinkfx.worker.eager.intermediates import SEED, EagerValues, RunRecord, run_eager
from shrinkfx.worker.graph.describe import describe, keeps_state, mutates
from shrinkfx.worker.graph.rebuild import RebuiltCandidate, rebuild
from shrinkfx.worker.model import Inputs, Program
from shrinkfx.worker.printing.module import print_program, run_source

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


def cut_from(module: torch.nn.Module) -> tuple[Program, Skeleton, EagerValues]:
    """Export as a program without in-place operators, and run it in eager."""
    inputs = Inputs((torch.ones(3),), {})
    exported = torch.export.export(module, inputs.args).run_decompositions({})
    program = Program(exported, exported, inputs, inputs)
    values = EagerValues(Path(tempfile.mkdtemp(prefix="shrinkfx-test-")), program)
    assert values.record(program) == RunRecord()
    return program, describe(program, ""), values


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


def test_only_results_that_eager_rounds_get_wider_tolerances() -> None:
    inputs = Inputs((torch.ones(4),), {})
    exported = torch.export.export(Uneven(), inputs.args)
    spoilt, sound, whole = Reference(
        RebuiltCandidate(exported, inputs, inputs), CheckOptions()
    ).needed_tolerances()
    assert spoilt[0] == 1.3e-6
    assert spoilt[1] == pytest.approx(3.0)
    assert sound == (1.3e-6, 1e-5)
    assert whole == (0.0, 0.0)


def test_requested_tolerances_apply_to_each_result() -> None:
    inputs = Inputs((torch.ones(4),), {})
    exported = torch.export.export(Uneven(), inputs.args)
    run = RebuiltCandidate(exported, inputs, inputs)
    spoilt, sound, whole = Reference(
        run, CheckOptions(rtol=0.5, atol=0.25)
    ).needed_tolerances()
    assert spoilt[0] == 0.5
    assert spoilt[1] == pytest.approx(3.0)
    assert sound == whole == (0.5, 0.25)


def test_exact_eager_result_needs_no_wider_tolerances() -> None:
    inputs = Inputs((torch.ones(4),), {})
    exported = torch.export.export(torch.nn.ReLU(), inputs.args)
    assert (
        Reference(
            RebuiltCandidate(exported, inputs, inputs), CheckOptions()
        ).needed_tolerances()
        == []
    )


class Permuted(torch.nn.Module):
    """Inverts a permutation into memory that nobody has written, as Mixtral does."""

    def forward(self, order: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(order.shape[0])
        return inverse, x.new_empty(2, 3), x.new_empty(4, dtype=x.dtype).bool(), x + 1


def test_uninitialized_memory_is_not_compared() -> None:
    order, x = torch.tensor([2, 0, 1]), torch.ones(2)
    exported = torch.export.export(Permuted(), (order, x))
    inputs = Inputs((order, x), {})
    reference = Reference(RebuiltCandidate(exported, inputs, inputs), CheckOptions())
    reference.run_eager()
    inverse = torch.tensor([1, 2, 0])
    nothing = torch.full((2, 3), 7.0), torch.tensor([True, False, True, False])
    assert reference.compare([inverse, *nothing, x + 1]) == Checked(values_skipped=2)
    assert reference.compare([inverse, *nothing, x]).difference
    assert reference.compare([order, *nothing, x + 1]).difference
    assert "filled" not in exported.graph_module.code


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

    inputs = Inputs((torch.tensor([1, 0]), torch.ones(2)), {})
    exported = torch.export.export(Taken(), inputs.args)
    with pytest.raises(IndexError):
        Reference(
            RebuiltCandidate(exported, inputs, inputs), CheckOptions()
        ).run_eager()
