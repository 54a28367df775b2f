"""Inputs of other sizes, and what a program leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

from shrinkfx.errors import LoadError
from shrinkfx.program.sizes import Place, Space, Symbol
from shrinkfx.worker.eager.inputs_at import make_inputs_at
from shrinkfx.worker.model import Inputs, Program
from shrinkfx.worker.sizes.read_space import find_space


class Call(nn.Module):
    """Return what a function of the inputs gives."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, *args: Any) -> Any:
        return self.function(*args) * self.scale


def exported(function: Any, args: Sequence[Any], *dims: Any) -> ExportedProgram:
    return export(Call(function), tuple(args), dynamic_shapes=(dims,))


def program(function: Any, args: Sequence[Any], *dims: Any) -> Program:
    made, example = exported(function, args, *dims), Inputs(tuple(args), {})
    return Program(made, made, example, example)


def space(of: Program) -> Space:
    return find_space(of.original, of.failing)


def only(where: Program, size: int, seed: int = 0) -> Tensor:
    """Make the one input of a program of one symbol."""
    (symbol,) = space(where).symbols
    (made,) = make_inputs_at(where, {symbol.name: size}, seed, None).args
    assert isinstance(made, Tensor)
    return made


N = Dim("n", min=2, max=64)


def rows(example: Tensor) -> Program:
    return program(lambda x: x + x[:1], [example], {0: N})


def test_space_has_ranges_derived_dims_and_shared_dims() -> None:
    args = [torch.ones(5), torch.ones(11, 3), torch.ones(5)]
    found = space(
        program(
            lambda a, b, c: (a + c).sum() + b[1:].sum(),
            args,
            *({0: N}, {0: 2 * N + 1}, {0: N}),
        )
    )
    (symbol,) = found.symbols
    assert symbol == Symbol(symbol.name, 2, 64, 5)
    shown = [(p.input, p.dim, p.size == symbol.name) for p in found.places]
    assert [dim for _, dim, _ in shown] == [0, 0, 0]
    assert [plain for *_, plain in shown] == [True, False, True]
    assert found.admits((64,))
    assert not found.admits((65,))
    assert found.elements((10,)) == 63


def test_space_infers_a_symbol_from_its_derived_dim() -> None:
    where = program(lambda a: a.view(-1, 4) + 1, [torch.ones(20)], {0: 4 * N})
    (symbol,) = space(where).symbols
    assert (symbol.low, symbol.high, symbol.exported) == (2, 64, 5)
    assert only(where, 9).shape == (36,)


def test_space_has_conditions_found_only_in_guards() -> None:
    found = space(
        program(lambda a: a.view(-1, 4) + 1, [torch.ones(20)], {0: Dim.DYNAMIC})
    )
    (sizes,) = found.allowed
    assert list(sizes)[:3] == [8, 12, 16]
    assert found.symbols[0].high is None


def test_space_includes_dynamic_number_inputs() -> None:
    where = program(
        lambda a, n: a[:, :1] * n, [torch.ones(5, 2), 3], {0: N}, Dim.DYNAMIC
    )
    first, second = space(where).symbols
    assert second.exported == 3
    assert Place("args_1", None, second.name) in space(where).places
    made = make_inputs_at(where, {first.name: 7, second.name: 11}, 0, None)
    assert made.args[0].shape == (7, 2)
    assert made.args[1] == 11


def test_program_without_dynamic_dims_has_no_free_sizes() -> None:
    assert space(program(lambda a: a + 1, [torch.ones(5)], None)).symbols == ()


def test_generated_inputs_are_determined_by_sizes_and_seed() -> None:
    where = rows(torch.randn(5, 3))
    one, again = only(where, 9), only(where, 9)
    assert one.shape == (9, 3)
    assert torch.equal(one, again)
    assert not torch.equal(one, only(where, 9, seed=1))
    assert not torch.equal(one[:8], only(where, 8))


def test_example_input_is_used_at_its_own_sizes() -> None:
    example = torch.randn(5, 3)
    assert torch.equal(only(rows(example), 5), example)


def test_generated_values_stay_in_the_range_of_the_example() -> None:
    example = torch.rand(5, 3, dtype=torch.bfloat16) + 2
    made = only(rows(example), 60)
    assert made.dtype is torch.bfloat16
    assert example.min() <= made.min() <= made.max() <= example.max()
    assert len(set(made.flatten().tolist())) > 15


@pytest.mark.parametrize(
    "example",
    [
        torch.tensor([0.0, -torch.inf, 0.0, 0.0, 0.0]),
        torch.tensor([0.0, 1.0, 0.0, 0.0, 1.0]),
        torch.tensor([True, False, True, True, False]),
        torch.tensor([7, -1, 3, 900, 3]),
        torch.tensor([1 + 2j, 3j, 1j, 0j, 2 + 0j]),
    ],
    ids=["mask", "flags", "bools", "ids", "complex"],
)
def test_generated_codes_are_values_of_the_example(example: Tensor) -> None:
    where = program(lambda x: torch.cat([x, x]), [example], {0: N})
    made = only(where, 60)
    assert made.dtype is example.dtype
    assert set(made.tolist()) == set(example.tolist())


def test_generated_index_stays_in_bounds_of_a_resized_dim() -> None:
    index = torch.tensor([[4, 0, 2], [1, 3, -1]])
    where = program(lambda x, i: x[i], [torch.randn(5), index], {0: N}, None)
    (symbol,) = space(where).symbols
    for size in (2, 3, 9):
        x, i = make_inputs_at(where, {symbol.name: size}, 0, None).args
        assert x.shape == (size,)
        assert torch.equal(i, index)  # its own shape is fixed: the user's own
    both = program(
        lambda x, i: x[i], [torch.randn(5), index.flatten()[:5]], {0: N}, {0: N}
    )
    (symbol,) = space(both).symbols
    for size in (2, 3, 40):
        x, i = make_inputs_at(both, {symbol.name: size}, 0, None).args
        assert int(i.max()) < size
        assert len(x[i]) == size


def test_generated_positions_continue_counting() -> None:
    example = torch.arange(5).expand(3, 5)
    where = program(lambda x: x + 1, [example], {1: N})
    assert torch.equal(only(where, 8), torch.arange(8).expand(3, 8))


def test_generated_offsets_are_sorted_with_the_same_start() -> None:
    made = only(program(lambda x: x + 1, [torch.tensor([0, 3, 3, 9, 20])], {0: N}), 12)
    assert made[0] == 0
    assert bool((made.diff() >= 0).all())
    assert int(made.max()) <= 20


@pytest.mark.parametrize(
    ("example", "stride"),
    [
        (torch.randn(3, 5).t(), (1, 9)),
        (torch.randn(5, 1).expand(5, 3), (1, 0)),
        (torch.randn(5, 8)[:, :3], (8, 1)),
    ],
    ids=["transposed", "expanded", "with gaps"],
)
def test_generated_input_has_the_stride_pattern_of_the_example(
    example: Tensor, stride: tuple[int, ...]
) -> None:
    made = only(rows(example), 9)
    assert made.shape == (9, 3)
    assert made.stride() == stride


def test_empty_example_gives_an_empty_input() -> None:
    where = program(lambda x: x + 1, [torch.ones(5, 0)], {0: N})
    assert only(where, 9).shape == (9, 0)


def test_inputs_are_made_by_a_user_file(tmp_path: Path) -> None:
    where, file = rows(torch.randn(5, 3)), tmp_path / "own_inputs.py"
    (symbol,) = space(where).symbols
    text = (
        "import torch\ndef inputs(**dims):\n    (n,) = dims.values()\n    return {}\n"
    )
    file.write_text(text.format("(torch.full((n, 3), float(n)),)"))
    made = make_inputs_at(where, {symbol.name: 9}, 0, str(file))
    assert torch.equal(made.args[0], torch.full((9, 3), 9.0))

    file.write_text(text.format("(torch.ones(n + 1, 3),)"))
    with pytest.raises(LoadError, match=r"the shape \(10, 3\)"):
        make_inputs_at(where, {symbol.name: 9}, 0, str(file))
    file.write_text("made = None\n")
    with pytest.raises(LoadError, match="no function inputs"):
        make_inputs_at(where, {symbol.name: 9}, 0, str(file))
