"""Values of a program that was exported anew have the names back that they had."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram

from shrinkfx.worker.graph.rebuild import (
    RebuiltCandidate,
    RecoveredNames,
    recover_names,
    rename_values,
)
from shrinkfx.worker.loading.load import functionalise
from shrinkfx.worker.model import Inputs, flat_inputs
from shrinkfx.worker.printing.module import export_source


class Blocks(nn.Module):
    """Weights, a constant, several results of one operator, sizes that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(6), nn.Linear(6, 12)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = self.linear(self.norm(x)).chunk(2, -1)
        mixed = torch.cat([second.relu(), first.relu()]) + torch.tensor([0.5])
        high = mixed.topk(2, -1)
        return high.values.reshape(2 * x.shape[0], 2), high.indices + x.shape[0]


class Counts(nn.Module):
    """A buffer that is written, and an input."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(x.relu().sum())
        x.mul_(2.0)
        return self.calls.neg() + x


class Branches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
        return found


class Values(fx.Interpreter):
    """Keeps what each node of a graph computes."""

    def __init__(self, exported: ExportedProgram) -> None:
        super().__init__(exported.graph_module)
        self.named: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        kept = value.clone() if isinstance(value, Tensor) else value
        self.named[n.name] = kept  # it may be written into later
        return value


def values(exported: ExportedProgram, inputs: Inputs) -> dict[str, Any]:
    ran = Values(exported)
    given = flat_inputs(exported, inputs)
    ran.run(*(g.clone() if isinstance(g, Tensor) else g for g in given))
    return ran.named


def rebuilt(model: nn.Module, x: Tensor, dynamic: Any = None) -> RebuiltCandidate:
    """Export a program, with names that a second export would not give."""
    exported = torch.export.export(model.eval(), (x,), dynamic_shapes=dynamic)
    functional = functionalise(exported)
    assert functional is not None
    calls = [n for n in functional.graph.nodes if n.op == "call_function"]
    named = {n.name: f"of_model_{i}" for i, n in enumerate(calls)}
    inputs = Inputs((x,), {})
    return RebuiltCandidate(rename_values(functional, named), inputs, inputs)


def again(built: RebuiltCandidate) -> RebuiltCandidate:
    return built.with_new_export(export_source(built)[0])


CASES = [
    pytest.param(Blocks(), {"x": {0: Dim("n", min=2, max=9)}}, id="dynamic"),
    pytest.param(Blocks(), None, id="static"),
    pytest.param(Counts(), None, id="writes"),
]


@pytest.mark.parametrize(("model", "dynamic"), CASES)
@pytest.mark.parametrize("times", [1, 2])
def test_reexported_values_get_their_original_names(
    model: nn.Module, dynamic: Any, times: int
) -> None:
    built = rebuilt(
        model, torch.randn(3, 6 if isinstance(model, Blocks) else 3), dynamic
    )
    anew = again(built) if times == 1 else again(again(built))
    named = anew.with_original_names()
    assert named.names is None
    named.exported.validate()  # type: ignore[no-untyped-call]
    before = values(built.exported, built.failing)
    after = values(named.exported, built.failing)
    lost = set(before) - set(after)
    assert not [name for name in lost if isinstance(before[name], Tensor)]
    for name, value in after.items():
        if name in before and isinstance(value, Tensor):
            torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    assert not {name for name in after if name.startswith("of_model")} - set(before)


def test_restoring_names_changes_nothing_else() -> None:
    dynamic = {"x": {0: Dim("n", min=2, max=9)}}
    anew = again(rebuilt(Blocks(), torch.randn(3, 6), dynamic))
    named = anew.with_original_names().exported
    assert named.range_constraints == anew.exported.range_constraints
    assert str(named.call_spec) == str(anew.exported.call_spec)
    x = torch.randn(5, 6)
    for mine, wanted in zip(named.module()(x), anew.exported.module()(x), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=0, atol=0)


def test_names_are_unknown_for_branches_and_changed_operators() -> None:
    branches = again(rebuilt(Branches(), torch.randn(3)))
    assert branches.names is not None
    assert "branches" in branches.names.why_not
    some = rebuilt(nn.ReLU(), torch.randn(3)).exported
    other = rebuilt(nn.Tanh(), torch.randn(3)).exported
    assert recover_names(some, other).why_not == "it then calls other operators"


class Twice(nn.Module):
    def __init__(self, *, of_its_own: bool) -> None:
        super().__init__()
        self.of_its_own = of_its_own

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first = x.relu()
        return first, (first if self.of_its_own else x).relu()


def test_names_are_unknown_if_operators_read_other_values() -> None:
    x = torch.randn(3)
    programs = [rebuilt(Twice(of_its_own=own), x).exported for own in (True, False)]
    assert "other values" in recover_names(*programs).why_not


def test_composed_names_are_unknown_if_one_export_lost_them() -> None:
    known, lost = (
        RecoveredNames({"b": "a"}),
        RecoveredNames(why_not="it then calls other operators"),
    )
    assert known.compose(RecoveredNames({"c": "b", "e": "d"})) == RecoveredNames(
        {"c": "a"}
    )
    assert known.compose(lost) == lost.compose(known) == lost
