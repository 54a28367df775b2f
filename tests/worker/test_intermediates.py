"""Intermediate values of eager runs, and copies of values."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.exported import Call, make_program
from torch import Tensor
from torch.export import Dim, export

from shrinkfx.worker.eager.fake_mismatch import MismatchRecorder, Watcher
from shrinkfx.worker.eager.intermediates import (
    EagerValues,
    RunRecord,
    copy_value,
    run_eager,
)
from shrinkfx.worker.model import Inputs, Program


class Scale(torch.nn.Module):
    factor: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factor", torch.full((2,), 3.0))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


ROWS = {0: Dim("rows", min=2, max=8)}
PROGRAM = export(Scale(), (torch.ones(4, 2),), dynamic_shapes=(ROWS,))
EXAMPLE = Inputs((torch.ones(4, 2),), {})
TOO_LONG = Inputs((torch.ones(9, 2),), {})


def test_eager_runs_at_sizes_outside_of_the_declared_ranges() -> None:
    (result,) = run_eager(PROGRAM, TOO_LONG, seed=0)

    assert result.tolist() == [[3.0, 3.0]] * 9


class Sum(torch.nn.Module):
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.total.add_(x)
        return self.total, self.total[1:]


def test_returned_buffer_has_the_value_after_the_last_call() -> None:
    exported = export(Sum(), (torch.ones(3),))
    for program in (exported, exported.run_decompositions({})):
        ones = Inputs((torch.ones(3),), {})
        total, view = run_eager(program, ones, seed=0, calls=2)
        assert (total.tolist(), view.tolist()) == ([2.0] * 3, [2.0] * 2)
        assert program.state_dict["total"].tolist() == [0.0] * 3


def test_values_are_kept_for_sizes_outside_of_the_declared_ranges(
    tmp_path: Path,
) -> None:
    program = Program(PROGRAM, PROGRAM, EXAMPLE, TOO_LONG)
    values = EagerValues(tmp_path, program)

    assert values.record(program).error == ""
    (product,) = [n.name for n in PROGRAM.graph.nodes if n.op == "call_function"]
    assert values.example(product).tolist() == [[3.0, 3.0]] * 4
    assert values.failing(product).tolist() == [[3.0, 3.0]] * 9


def test_inputs_of_other_sizes_are_no_fake_kernel_mismatch(
    tmp_path: Path,
) -> None:
    exported = export(Scale(), (torch.ones(4, 2),))
    program = Program(exported, exported, EXAMPLE, TOO_LONG)
    assert EagerValues(tmp_path, program).record(program) == RunRecord()


def test_only_the_failing_inputs_decide_whether_eager_fails(tmp_path: Path) -> None:
    inside, outside = (
        Inputs((torch.ones(4), torch.tensor([place])), {}) for place in (3, 9)
    )
    exported = export(Call(lambda x, at: x.tanh()[at].sin()), inside.args)
    names = {str(n.target): n.name for n in exported.graph.nodes}

    program = Program(exported, exported, outside, inside)
    values = EagerValues(tmp_path / "example", program)
    assert values.record(program).error == ""
    assert values.explain_no_cut(names["aten.tanh.default"]) == ""
    assert "eager did not compute" in values.explain_no_cut(names["aten.sin.default"])

    program = Program(exported, exported, inside, outside)
    assert (
        "IndexError" in EagerValues(tmp_path / "failing", program).record(program).error
    )


@torch.library.custom_op("shrinkfx_test::half", mutates_args=())
def half(x: Tensor) -> Tensor:
    return x[: len(x) // 2].clone()


@half.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class AroundALie(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        halved: Tensor = torch.ops.shrinkfx_test.half(x)
        return halved.tanh() * 2


def test_only_the_operator_with_a_fake_kernel_mismatch_is_named(tmp_path: Path) -> None:
    program = make_program(AroundALie(), torch.ones(4))
    values = EagerValues(tmp_path, program)
    recorded = values.record(program)
    (lie,) = recorded.mismatches
    assert "shrinkfx_test.half" in lie.text
    assert (lie.node, lie.within) == ("half", "half")
    assert lie.is_short
    operators = [n.name for n in program.graph.graph.nodes if n.op == "call_function"]
    assert all(values.explain_no_cut(name) for name in operators)


@torch.library.custom_op("shrinkfx_test::halves", mutates_args=())
def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[:2].clone(), x.t().clone()


@halves.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x)


class AroundTwoLies(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        first, second = torch.ops.shrinkfx_test.halves(x)
        result: Tensor = first.tanh().sum() + second
        return result


class AroundABranch(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        def halved(x: Tensor, scale: Tensor) -> Tensor:
            found: Tensor = torch.ops.shrinkfx_test.half(x) * 2
            return found

        def scaled(x: Tensor, scale: Tensor) -> Tensor:
            return x * scale

        found: Tensor = torch.cond(x.sum() > 0, halved, scaled, (x, self.scale))
        return found.tanh()


def record(module: torch.nn.Module, x: Tensor, folder: Path) -> RunRecord:
    program = make_program(module, x)
    return EagerValues(folder, program).record(program)


def test_fake_kernel_mismatch_of_each_result_is_named(tmp_path: Path) -> None:
    recorded = record(AroundTwoLies(), torch.ones(4, 4), tmp_path)
    shape, strides = recorded.mismatches
    for place, lie in enumerate([shape, strides]):
        assert (lie.node, lie.operator) == ("halves", "shrinkfx_test.halves.default")
        assert lie.place == f"[{place}]"
    assert (shape.made.shape, shape.declared.shape) == ((2, 4), (4, 4))
    assert "has strides [1, 4], but its fake kernel declares [4, 1]" in strides.text


def test_fake_kernel_mismatch_in_the_taken_branch_is_named(tmp_path: Path) -> None:
    recorded = record(AroundABranch(), torch.ones(4), tmp_path / "taken")
    (lie,) = recorded.mismatches
    said = "shrinkfx_test.half.default is torch.float32[2]"
    assert lie.text.startswith(said)
    # In the program, the branch is all of one operator.
    assert lie.within == "cond"
    assert not record(AroundABranch(), -torch.ones(4), tmp_path / "not").mismatches


class TransposedAlone(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        _, second = torch.ops.shrinkfx_test.halves(x)
        result: Tensor = second.tanh()
        return result


def test_result_with_other_strides_of_the_same_size_is_not_short(
    tmp_path: Path,
) -> None:
    exported = export(TransposedAlone(), (torch.ones(4, 4),))
    mismatches = MismatchRecorder()
    Watcher(exported.graph_module, mismatches).run(torch.ones(4, 4))
    (shape, strides) = mismatches.found
    assert "[2, 4]" in shape.text
    assert strides.is_of_strides
    assert (shape.is_short, strides.is_short) == (True, False)


class Turned(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(200, 100))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x @ self.weight.t()[:, 50:])


def test_views_of_weights_are_saved_without_their_elements(tmp_path: Path) -> None:
    example = Inputs((torch.ones(1, 100),), {})
    exported = export(Turned(), example.args).run_decompositions({})
    program = Program(exported, exported, example, example)
    EagerValues(tmp_path, program).record(program)
    views = [n.name for n in exported.graph.nodes if _shape(n) == VIEW]
    assert views
    weight = exported.state_dict["weight"].detach()
    for name in views:
        assert (tmp_path / "example" / f"{name}.pt").stat().st_size < 4096
        value = EagerValues(tmp_path, program).example(name)
        assert torch.equal(value, weight.t()[:, 50:])
        assert value.stride() == (1, 100)


VIEW = (100, 150)


def test_weights_written_by_a_run_are_unchanged_afterwards(tmp_path: Path) -> None:
    example = Inputs((torch.ones(3),), {})
    exported = export(Sum(), example.args)
    for program in (exported, exported.run_decompositions({})):
        made = Program(program, program, example, example)
        EagerValues(tmp_path, made).record(made)
        assert program.state_dict["total"].tolist() == [0.0] * 3


def _shape(node: torch.fx.Node) -> tuple[int, ...]:
    return tuple(getattr(node.meta.get("val"), "shape", ()))


# --- copies


X = torch.arange(24.0)

VIEWS = {
    "contiguous": X.view(4, 6),
    "turned": X.view(4, 6).t(),
    "with gaps": X.view(4, 6)[1:, ::2],
    "expanded": X[2:5].expand(4, 3),
    "windows": X.unfold(0, 3, 1),
    "empty": X.view(4, 6)[:0],
    "of no dims": X[3],
    "conjugate": torch.complex(X, X).view(4, 6)[:, ::2].conj(),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_copy_has_its_own_memory_and_the_same_strides(view: torch.Tensor) -> None:
    made = copy_value(view)
    assert torch.equal(made, view)
    assert made.stride() == view.stride()
    shared = made.untyped_storage().data_ptr() == view.untyped_storage().data_ptr()
    assert not shared or not view.numel()


def test_elements_in_gaps_of_a_strided_tensor_are_copied() -> None:
    """Compiled code that reads there reads what it reads in a script."""
    made = copy_value(torch.ones(3).as_strided((2,), (2,)))
    assert made.as_strided((3,), (1,)).tolist() == [1.0, 1.0, 1.0]
    inner = copy_value(X.view(4, 6)[1:3, 2:4])
    assert inner.as_strided((8,), (1,)).tolist() == X[8:16].tolist()
