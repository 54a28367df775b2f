"""Programs whose sizes are settled: what is declared, and what it is exported with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from support.exported import Call
from torch import Tensor, nn
from torch.export import Dim, export

from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop, Specialisation, Specialise
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.worker.eager.intermediates import EagerValues, RunRecord
from shrinkfx.worker.graph.describe import describe
from shrinkfx.worker.graph.rebuild import RebuiltCandidate, rebuild
from shrinkfx.worker.model import Inputs, Program
from shrinkfx.worker.printing.module import print_program, run_source


class Batches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x + 1).reshape(x.shape[0] * x.shape[1], 3).relu()


class Derived(nn.Module):
    def forward(self, coarse: Tensor, fine: Tensor) -> Tensor:
        waves = torch.cos(fine)
        return waves[1:] + torch.tanh(coarse).repeat_interleave(3, 0)


@dataclass(frozen=True)
class Case:
    program: Program
    skeleton: Skeleton
    values: EagerValues

    def symbol(self, dim: int) -> str:
        """Name the size of the first input's dim."""
        value = self.skeleton.node(self.skeleton.inputs[0]).value
        assert value is not None
        return value.shape[dim]

    def named(self, target: str) -> str:
        """Name the operator with this target."""
        (name,) = (
            n
            for n in self.skeleton.operators
            if self.skeleton.node(n).target.startswith(f"aten.{target}.")
        )
        return name

    def keeping(self, *targets: str) -> Candidate:
        kept = {self.named(target) for target in targets}
        return apply(
            Candidate.from_skeleton(self.skeleton),
            [Drop(frozenset(self.skeleton.operators) - kept)],
        )

    def again(self, candidate: Candidate) -> RebuiltCandidate:
        """Rebuild a candidate and export it again, as a check does."""
        built = rebuild(self.program, candidate, self.values)
        assert built.stale
        return built.with_new_export(run_source(print_program(built), built))


def case(
    folder: Path,
    module: nn.Module,
    sizes: tuple[Sequence[Any], ...],
    dims: Sequence[Any],
) -> Case:
    """Make a program.

    Args:
        sizes: shapes of the inputs in the example, the run that passes, and the
            one that fails.
    """
    example, passing, failing = (
        Inputs(tuple(torch.randn(*shape) for shape in run), {}) for run in sizes
    )
    exported = export(module, example.args, dynamic_shapes=tuple(dims))
    program = Program(exported, exported, example, failing, passing)
    values = EagerValues(folder, program)
    assert values.record(program) == RunRecord()
    return Case(program, describe(program, ""), values)


@pytest.fixture(name="batches")
def _batches(tmp_path: Path) -> Case:
    runs = ([(5, 7, 3)], [(1, 8, 3)], [(1, 9, 3)])
    dims = [{0: Dim("b", min=1, max=64), 1: Dim("t", min=2, max=512)}]
    return case(tmp_path, Batches(), runs, dims)


def shapes(inputs: Inputs | None) -> list[tuple[int, ...]]:
    assert inputs is not None
    return [tuple(value.shape) for value in inputs.args]


def ranges(built: RebuiltCandidate) -> list[tuple[int, int]]:
    found = built.exported.range_constraints.values()
    return sorted((int(r.lower), int(r.upper)) for r in found)


def dynamic(built: RebuiltCandidate) -> list[list[int]]:
    """List the dynamic dims of each input."""
    names = built.exported.graph_signature.user_inputs
    return [
        [d for d, s in enumerate(n.meta["val"].shape) if isinstance(s, torch.SymInt)]
        for n in built.exported.graph.nodes
        if n.name in names
    ]


def test_skeleton_describes_sizes_of_both_runs(batches: Case) -> None:
    known = batches.skeleton.sizes
    b, t = known[batches.symbol(0)], known[batches.symbol(1)]
    assert (b.passing, b.failing, t.passing, t.failing) == (1, 1, 8, 9)
    (product,) = (n for n in known if n.count("*") == 1)
    assert (known[product].passing, known[product].failing) == (8, 9)
    assert len(known[product].symbols) == 2


def test_static_and_narrow_dims_are_declared_as_such(batches: Case) -> None:
    settled = apply(
        batches.keeping("tanh", "reshape"),
        [
            Specialise(batches.symbol(0), Specialisation.STATIC),
            Specialise(batches.symbol(1), Specialisation.NARROW),
        ],
    )
    built = batches.again(settled)
    assert dynamic(built) == [[1]]
    assert ranges(built) == [(8, 9)]
    # What it passes on is the example as well: a repro needs no third set.
    assert built.passing is not None
    assert built.example.args[0] is built.passing.args[0]
    assert shapes(built.failing) == [(1, 9, 3)]


def test_narrowed_dim_leaves_other_dims_unchanged(batches: Case) -> None:
    settled = apply(
        batches.keeping("tanh"), [Specialise(batches.symbol(1), Specialisation.NARROW)]
    )
    built = batches.again(settled)
    assert dynamic(built) == [[0, 1]]
    assert ranges(built) == [(1, 64), (8, 9)]
    assert shapes(built.example) == [(5, 8, 3)]


def test_static_dim_becomes_a_number_in_the_graph(tmp_path: Path) -> None:
    runs = ([(5, 4)], [(1, 4)], [(1, 4)])
    made = case(
        tmp_path,
        Call(lambda x: torch.ones(x.shape[0] + 1) + x.sum()),
        runs,
        [{0: Dim("n", min=1, max=9)}],
    )
    kept = apply(
        made.keeping("ones", "add"), [Specialise(made.symbol(0), Specialisation.STATIC)]
    )
    built = made.again(kept)
    assert shapes(built.failing) == [()]  # no input only carries the size
    module = built.exported.module(check_guards=False)
    assert module(*built.failing.args)[0].shape == (2,)


@pytest.mark.parametrize(
    ("passing", "failing", "declared", "exported_at"),
    [
        (2, 0, (0, 2), 2),
        (1, 2, (1, 2), 2),
        (1, 0, (0, 2), 2),
        (1, 7, (1, 7), 7),
        (6, 5, (5, 6), 6),
    ],
)
def test_example_avoids_sizes_that_export_treats_as_fixed(
    tmp_path: Path, passing: int, failing: int, declared: Any, exported_at: int
) -> None:
    runs = ([(5, 4, 3)], [(passing, 4, 3)], [(failing, 4, 3)])
    made = case(tmp_path, Batches(), runs, [{0: Dim("b", min=0, max=64)}])
    settled = apply(
        made.keeping("tanh"), [Specialise(made.symbol(0), Specialisation.NARROW)]
    )
    built = made.again(settled)
    assert ranges(built) == [declared]
    assert shapes(built.example) == [(exported_at, 4, 3)]


T = Dim("t", min=3, max=100)


@pytest.fixture(name="derived")
def _derived(tmp_path: Path) -> Case:
    """A program whose second input has ``3*t + 1`` rows, if the first has ``t``."""
    runs = ([(5, 2), (16, 2)], [(3, 2), (10, 2)], [(4, 2), (13, 2)])
    return case(tmp_path, Derived(), runs, [{0: T}, {0: 3 * T + 1}])


def plain_rows(derived: Case) -> Specialise:
    """Make the derived dim a plain one."""
    sizes = derived.skeleton.sizes.items()
    (rows,) = (size for size, known in sizes if known.failing == 13)
    return Specialise(rows, Specialisation.PLAIN)


def test_plain_derived_dim_needs_no_other_input(derived: Case) -> None:
    cos = derived.keeping("cos")
    before = rebuild(derived.program, cos, derived.values)
    assert dynamic(before) == [[0], [0]]
    built = derived.again(apply(cos, [plain_rows(derived)]))
    assert dynamic(built) == [[0]]
    assert ranges(built) == [(10, 13)]
    assert shapes(built.passing) == [(10, 2)]
    assert shapes(built.failing) == [(13, 2)]


def test_related_dims_cannot_become_plain(derived: Case) -> None:
    whole = Candidate.from_skeleton(derived.skeleton)
    with pytest.raises(Exception, match="must match the size"):
        derived.again(apply(whole, [plain_rows(derived)]))


def check_declared_spans(made: Case, symbol: str, inputs: int) -> None:
    """Export a program as it is, and with narrow sizes."""
    narrow = Specialise(symbol, Specialisation.NARROW)
    for edits, span in (([], (3, 100)), ([narrow], (3, 4))):
        whole = apply(Candidate.from_skeleton(made.skeleton), edits)
        built = rebuild(made.program, whole, made.values)
        again = built.with_new_export(run_source(print_program(built), built))
        assert dynamic(again) == [[0]] * inputs
        assert span in ranges(again)


def test_derived_dim_is_declared_as_computed_from_another(derived: Case) -> None:
    check_declared_spans(derived, derived.symbol(0), inputs=2)


def test_derived_dim_is_declared_if_no_other_input_has_the_symbol(
    tmp_path: Path,
) -> None:
    runs = ([(16, 2)], [(10, 2)], [(13, 2)])
    made = case(tmp_path, Call(lambda fine: torch.cos(fine)), runs, [{0: 3 * T + 1}])
    (symbol,) = (size for size in made.skeleton.sizes if size.isidentifier())
    check_declared_spans(made, symbol, inputs=1)


def settled_in_all(candidate: Candidate) -> Candidate:
    """Settle whatever can be."""
    while open_sizes := candidate.dynamic_sizes.specialisations():
        size, (how, *_) = next(iter(open_sizes.items()))
        candidate = apply(candidate, [Specialise(size, how)])
    return candidate


def test_specialised_programs_compute_the_same_results(batches: Case) -> None:
    whole = Candidate.from_skeleton(batches.skeleton)
    tried = 0
    for name in ("", *batches.skeleton.operators):
        candidate = apply(whole, [Drop(frozenset({name}))]) if name else whole
        before = rebuild(batches.program, candidate, batches.values)
        built = batches.again(settled_in_all(candidate))
        module = built.exported.module(check_guards=False)
        other = before.exported.module(check_guards=False)
        for run, same in (
            (built.passing, before.passing),
            (built.failing, before.failing),
        ):
            assert run is not None
            assert same is not None
            for value, wanted in zip(module(*run.args), other(*same.args), strict=True):
                torch.testing.assert_close(value, wanted)
            tried += 1
        assert {d for dims in dynamic(built) for d in dims} <= {0, 1}
        assert all(high - low == 1 for low, high in ranges(built))
    assert tried >= 8


def test_input_that_carries_a_size_keeps_its_position(derived: Case) -> None:
    # Compiled code works s0 out of 3*s0 + 1 where that comes first, and gets it wrong:
    # repros/sweep_size_from_derived_dim.
    for target in ("cos", "slice"):
        built = rebuild(derived.program, derived.keeping(target), derived.values)
        assert [tuple(a.shape) for a in built.failing.args] == [(4, 2), (13, 2)]
