"""Branches that are taken in the place of ``cond``: the same program without it."""

from __future__ import annotations

from pathlib import Path

import torch
from support.exported import ask, describe_candidate, export, save_setup
from torch import Tensor, nn
from torch.export import Dim

from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop
from shrinkfx.protocol.answers import Done
from shrinkfx.protocol.choices import GraphForm
from shrinkfx.protocol.requests import (
    CheckOptions,
    SaveCandidate,
    Setup,
)
from shrinkfx.worker.eager.intermediates import SEED, EagerValues, RunRecord, run_eager
from shrinkfx.worker.graph.describe import describe
from shrinkfx.worker.graph.inline_cond import find_taken_branches, inline_conds
from shrinkfx.worker.graph.rebuild import rebuild
from shrinkfx.worker.loading.load import load
from shrinkfx.worker.model import Inputs, Program
from shrinkfx.worker.tasks import Worker


class Nested(nn.Module):
    """A branch in a branch, both with a parameter; the outer result is an output."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 2.0, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        side = x.sigmoid()

        def inner(v: Tensor) -> Tensor:
            found: Tensor = torch.cond(
                v.max() > 0, lambda w: w * side, lambda w: w - 1, (v,)
            )
            return found

        def outer(v: Tensor) -> Tensor:
            return inner(v.exp()) * self.scale

        y = torch.cond(x.sum() > -100, outer, lambda v: v.tanh(), (x,))
        return y, y.mul(2) + side


def program_of(
    folder: Path, module: nn.Module, x: Tensor, other: Tensor | None = None
) -> Program:
    exported = export(module, x, dynamic_shapes=({0: Dim("rows", min=2, max=9)},))
    return load(save_setup(folder, exported, None if other is None else (other,)))


def targets(program: Program) -> list[str]:
    skeleton = describe(program, "")
    return [skeleton.node(name).target for name in skeleton.operators]


def test_taken_branches_are_inlined_at_any_depth(tmp_path: Path) -> None:
    program = program_of(tmp_path, Nested(), torch.randn(3, 4))
    opened = inline_conds(program, tmp_path / "opened")
    wanted = ["sigmoid", "exp", "mul", "mul", "mul", "add"]
    assert [t.split(".")[1] for t in targets(opened)] == wanted
    for inputs in (program.example, Inputs((torch.randn(7, 4),), {})):
        expected = run_eager(program.graph, inputs, seed=SEED)
        found = run_eager(opened.graph, inputs, seed=SEED)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_operators_of_an_inlined_branch_can_be_cut(tmp_path: Path) -> None:
    program = program_of(tmp_path, Nested(), torch.randn(3, 4))
    opened = inline_conds(program, tmp_path / "opened")
    values = EagerValues(tmp_path / "opened", opened)
    assert values.record(opened) == RunRecord()
    skeleton = describe(opened, "")
    inner = skeleton.operators[2]
    others = frozenset(skeleton.operators) - {inner}
    built = rebuild(
        opened, apply(Candidate.from_skeleton(skeleton), [Drop(others)]), values
    )
    (found,) = run_eager(built.exported, built.failing, seed=SEED)
    x = program.example.args[0]
    torch.testing.assert_close(found, x.exp() * x.sigmoid())
    assert built.failing.args[0].shape == (3, 4)


def test_cond_is_kept_if_runs_take_different_branches(tmp_path: Path) -> None:
    other = torch.full((3, 4), -100.0)
    program = program_of(tmp_path, Nested(), torch.randn(3, 4), other)
    assert find_taken_branches(program) == {}
    opened = inline_conds(program, tmp_path / "opened")
    assert "cond" in targets(opened)


class FailsAtLast(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, (x,))
        return y.abs().index_select(0, x[:, 0].abs().long() + 100)


def test_taken_branch_is_known_if_eager_fails_later(tmp_path: Path) -> None:
    program = program_of(tmp_path, FailsAtLast(), torch.ones(3, 4))
    assert find_taken_branches(program) == {"cond": True}


def test_taken_branches_are_cached_in_a_file(tmp_path: Path) -> None:
    program = program_of(tmp_path, Nested(), torch.randn(3, 4))
    inline_conds(program, tmp_path)
    (tmp_path / "taken.json").write_text('{"cond": false}')
    assert "aten.tanh.default" in targets(inline_conds(program, tmp_path))


def test_worker_cuts_from_the_described_graph_form(tmp_path: Path) -> None:
    program = program_of(tmp_path, Nested(), torch.randn(3, 4))
    setup = Setup(str(tmp_path), model=str(tmp_path / "model.pt2"))
    worker = Worker(setup, 1, program)
    inlined = CheckOptions(graph=GraphForm.INLINED_COND)
    whole = describe_candidate(worker, tmp_path, inlined)
    names = whole.operators
    assert "cond" not in [whole.skeleton.node(name).target for name in names]
    (inner,) = (n for n in names if n.startswith("exp"))
    one = apply(whole, [Drop(frozenset(names) - {inner})])
    path = str(tmp_path / "one.pt2")
    task = SaveCandidate(one.to_json(), path, str(tmp_path / "one.pt"))
    assert ask(worker, tmp_path, task, inlined) == Done()
    saved = torch.export.load(path).graph
    (only,) = saved.find_nodes(op="call_function", target=torch.ops.aten.exp.default)
    assert len(saved.nodes) == 3
    assert only.args[0].op == "placeholder"
