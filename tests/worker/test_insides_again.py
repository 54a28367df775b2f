"""Listings whose insides are cut are programs to fake tensors and to torch.export."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
import torch
from support.listings import codes, listed
from test_rebuild import loaded
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from versions import hands_on_inputs

from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Change, DropResult, Write, apply_changes
from shrinkfx.program.listing.names import rename_values, short_names, sort_by_use
from shrinkfx.program.listing.printed_program import (
    MAIN,
    ListedType,
    PrintedProgram,
    Types,
)
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose
from shrinkfx.testing import FakeOracle
from shrinkfx.worker.eager.intermediates import SEED, run_eager
from shrinkfx.worker.graph.rebuild import RebuiltCandidate, rebuild
from shrinkfx.worker.listing.build import build
from shrinkfx.worker.listing.describe import DescribedProgram, describe, saved_weights
from shrinkfx.worker.listing.fit import fit_rewrites
from shrinkfx.worker.model import Inputs
from shrinkfx.worker.printing.module import is_identical


class Branched(nn.Module):
    """A ``cond``, a loop that carries one value for nobody, and a scan."""

    def forward(self, taken: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        def one(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
            return a.relu() * 2 + b, a.exp()

        def other(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
            return a.cos() - b, b.sin()

        first, second = torch.cond(taken, one, other, (x, y))

        def goes_on(i: Tensor, a: Tensor, b: Tensor) -> Tensor:
            return i < 5

        def body(i: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return i + 1, a.tanh() * first, b + 1

        begin = torch.zeros((), dtype=torch.int64), second, second
        _, looped, _ = while_loop(goes_on, body, begin)  # type: ignore[no-untyped-call]
        _, rows = scan(lambda c, row: (c + row.relu(), c * row), x[0], y)
        return looped, rows


@cache
def described() -> tuple[RebuiltCandidate, DescribedProgram]:
    square = torch.arange(9.0).reshape(3, 3) / 9
    args = torch.tensor(True), square, square.T.contiguous()
    inputs = Inputs(args, {})
    built = RebuiltCandidate(torch.export.export(Branched(), args), inputs, inputs)
    return built, describe(built)


def call(made: PrintedProgram, callee: str) -> str:
    return next(s.name for s in made.main.statements if callee in s.callee)


def handed_on(made: PrintedProgram) -> list[Change]:
    block = made.block("FalseGraph0")
    return [Write(block.name, "return", n, block.arguments[0]) for n in (1, 2)]


def carried(made: PrintedProgram) -> list[Change]:
    return [DropResult(MAIN, call(made, "while_loop"), 2)]


@pytest.mark.parametrize(
    "changes", [pytest.param(handed_on, marks=hands_on_inputs), carried]
)
def test_cut_printed_program_can_be_exported_again(changes: object) -> None:
    _, found = described()
    assert callable(changes)
    made = apply_changes(found.listing, changes(found.listing))
    again = describe(build(made, found.saved)).listing
    assert [codes(again, b.name) for b in again.blocks] == [
        codes(made, b.name) for b in made.blocks
    ]


def test_cond_with_one_branch_for_both_can_be_exported() -> None:
    """An export has a graph for each all the same."""
    _, found = described()
    name = call(found.listing, "cond")
    writes = [Write(MAIN, name, leaf, "self.true_graph_0") for leaf in (1, 2)]
    made = apply_changes(found.listing, writes)
    again = describe(build(made, found.saved)).listing
    for branch in ("TrueGraph0", "FalseGraph0"):
        assert codes(again, branch) == codes(made, "TrueGraph0")


class RealFitter:
    """Fake tensors, in this process."""

    def types(self, candidate: Candidate) -> Types:
        assert candidate.listing is not None
        values = fit_rewrites(candidate.listing, []).values
        return {
            (v.block, v.name): ListedType(v.dtype, v.shape, v.stride, v.device)
            for v in values
        }

    def fit(
        self, candidate: Candidate, rewrites: Sequence[Rewrite]
    ) -> Sequence[Rewrite | None]:
        assert candidate.listing is not None
        return fit_rewrites(candidate.listing, rewrites).fits

    def ahead(self) -> RealFitter:
        return self


@hands_on_inputs
def test_loop_is_reduced_to_its_failing_operator() -> None:
    _, found = described()

    def fails(candidate: Candidate) -> bool:
        assert candidate.listing is not None
        build(candidate.listing, found.saved)  # what fake tensors take is a program
        inside = candidate.listing.blocks[:-1]
        return any("tanh" in s.callee for block in inside for s in block.statements)

    oracle = FakeOracle(fails)
    ours = choose(["shrink_branches", "redirect_operands", "simplify_arguments"])
    reducer = Reducer(listed(found.listing), Asker(oracle), ours, fitter=RealFitter())
    best = reducer.run().listing
    assert best is not None
    assert [
        [line.partition("  #")[0] for line in codes(best, b.name)] for b in best.blocks
    ] == [
        ["lt = aten.lt.Scalar(arg0_1, 1)", "return lt"],
        [
            "add = aten.add.Tensor(arg0_1, 1)",
            "tanh = aten.tanh.default(arg1_1)",
            "return (add, tanh)",
        ],
        [
            "zeros = aten.zeros.default([])",
            "while_loop = torch.ops.higher_order.while_loop("
            "self.while_loop_cond_graph_0, "
            "self.while_loop_body_graph_0, (zeros, x), ())",
            "getitem_3 = while_loop[1]",
            "return (getitem_3,)",
        ],
    ]
    assert len(oracle.asked) <= 16


@pytest.mark.parametrize(
    "name", ["branches", "weights", "in_place", "dynamic", "wrapped"]
)
def test_sorting_and_short_names_do_not_change_the_program(name: str) -> None:
    program, skeleton, values = loaded(name)
    built = rebuild(
        program, Candidate.from_skeleton(skeleton, Outputs.ORIGINAL), values
    )
    found = describe(built)
    ordered = sort_by_use(found.listing)
    short = rename_values(ordered, short_names(ordered))
    saved = {**saved_weights(built.exported), **found.saved}
    made = build(short, saved)
    results = (
        run_eager(each.exported, each.example, seed=SEED) for each in (made, built)
    )
    assert all(map(is_identical, *results))
