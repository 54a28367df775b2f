"""Origins and names of operators in programs that were exported again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.exported import Call, export, make_candidate
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram

from shrinkfx.protocol.choices import CandidateForm
from shrinkfx.protocol.compiled_program_view import REASON_FILE
from shrinkfx.protocol.kernel_values import KernelValues
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.worker.explaining.origins import restore_known_names
from shrinkfx.worker.graph.rebuild import (
    RebuiltCandidate,
    RecoveredNames,
    recover_names,
    rename_values,
)
from shrinkfx.worker.loading.load import functionalise
from shrinkfx.worker.model import Inputs, flat_inputs
from shrinkfx.worker.origin import copy_origins, origin_of
from shrinkfx.worker.printing.graph import GraphPrinter
from shrinkfx.worker.printing.module import export_source

# --- source lines


HERE = Path(__file__).name


class Block(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x).chunk(2)[0]


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block()])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Bare(torch.nn.Module):
    """The same operators, from nowhere that anybody knows."""

    def __init__(self, twice: bool) -> None:
        super().__init__()
        self.twice = twice
        scope: dict[str, Any] = {}
        exec("def step(x):\n    return x.relu().chunk(2)[0]", scope)
        self.step = scope["step"]

    def forward(self, x: Tensor) -> Tensor:
        x = self.step(x)
        return self.step(x) if self.twice else x


def origins(program: torch.export.ExportedProgram) -> list[str]:
    return [origin for n in program.graph.nodes if (origin := origin_of(n))]


def test_printed_lines_show_the_source_line_and_module() -> None:
    program = export(Model(), torch.randn(8))
    printed = GraphPrinter(program.graph_module, {}).body()
    relu, chunk, getitem, *_ = printed
    assert f"  # {HERE}:" in relu
    assert relu.endswith(", blocks.0")
    assert "#" in chunk
    assert "#" not in getitem
    assert any(line.endswith(", blocks.1") for line in printed)


def test_origins_are_copied_only_to_the_same_operators() -> None:
    before = export(Model(), torch.randn(8))
    same, shorter = (export(Bare(twice=t), torch.randn(8)) for t in (True, False))
    copy_origins(before.graph_module, same.graph_module)
    assert origins(same) == origins(before)
    known = origins(shorter)
    copy_origins(before.graph_module, shorter.graph_module)
    assert origins(shorter) == known


# --- restored names


WHY = "it then calls other operators"


def run(names: RecoveredNames | None) -> RebuiltCandidate:
    return replace(make_candidate(nn.ReLU(), torch.ones(3)), names=names)


@pytest.mark.parametrize(
    ("form", "how"),
    [
        (CandidateForm.PROGRAM, "the program must be exported again"),
        (CandidateForm.SOURCE, "its printed source was run"),
    ],
)
def test_reason_for_unknown_names_is_written_to_the_results(
    tmp_path: Path, form: CandidateForm, how: str
) -> None:
    values, evidence = tmp_path / "values.json", str(tmp_path / "evidence.json")
    asked = CheckOptions(
        form=form, compiled_view=str(tmp_path), values=str(values), evidence=evidence
    )
    lost = run(RecoveredNames(why_not=WHY))
    assert restore_known_names(lost, asked) == (lost, CheckOptions(form=form))
    for why in (
        (tmp_path / REASON_FILE).read_text(),
        KernelValues.from_line(values.read_text()).unknown,
    ):
        assert why.startswith(how)
        assert why.endswith(WHY)
    assert not Path(evidence).exists()


def test_known_names_are_restored(tmp_path: Path) -> None:
    asked = CheckOptions(compiled_view=str(tmp_path))
    named, options = restore_known_names(run(RecoveredNames({"relu": "relu_7"})), asked)
    assert options == asked
    assert "relu_7" in {node.name for node in named.exported.graph.nodes}
    assert named.names is None


@pytest.mark.parametrize(
    "names", [None, RecoveredNames({"relu": "relu_7"}), RecoveredNames(why_not=WHY)]
)
def test_names_are_not_restored_if_no_result_needs_them(
    tmp_path: Path, names: RecoveredNames | None
) -> None:
    made = run(names)
    assert restore_known_names(made, CheckOptions()) == (made, CheckOptions())
    assert not list(tmp_path.iterdir())


# --- recovered names


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
    branches = again(
        rebuilt(
            Call(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))),
            torch.randn(3),
        )
    )
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
