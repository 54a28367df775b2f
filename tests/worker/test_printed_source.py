"""Programs as printed source."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.exported import make_candidate, make_program
from support.zoo import run_program
from torch import Tensor
from torch._dynamo.exc import UserError, UserErrorType

from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop
from shrinkfx.protocol.source import Expression, Input, Source, Weight
from shrinkfx.worker.eager.intermediates import SEED, run_eager
from shrinkfx.worker.graph.rebuild import RebuiltCandidate, rebuild
from shrinkfx.worker.model import Inputs, Program
from shrinkfx.worker.printing.anonymize import anonymize
from shrinkfx.worker.printing.graph import write_tensor
from shrinkfx.worker.printing.module import (
    choose_names_to_drop,
    export_source,
    print_program,
    run_source,
)


class Widen(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to(torch.float64) * 2


QUARTERS = [
    *(torch.float8_e4m3fn, torch.float8_e4m3fnuz),
    *(torch.float8_e5m2, torch.float8_e5m2fnuz),
]


def called_with(example: Tensor, failing: Tensor) -> RebuiltCandidate:
    made = make_candidate(Widen(), example)
    return replace(made, failing=Inputs((failing,), {}))


@pytest.mark.parametrize("dtype", [*QUARTERS, torch.bfloat16, torch.bool])
def test_two_sets_of_inputs_are_distinguished_by_their_bytes(
    dtype: torch.dtype,
) -> None:
    example, failing = (torch.tensor([[v, 0.5]] * 2).to(dtype).t() for v in (0.0, 2.0))
    built = called_with(example, failing)
    (two,) = print_program(built).inputs
    (one,) = print_program(called_with(example, example.clone())).inputs
    assert one.failing is None
    assert two.failing is not None
    assert two.failing.exact != two.example.exact
    scope = {"torch": torch}
    read = eval(two.failing.exact, scope)
    assert (read.dtype, read.stride()) == (dtype, failing.stride())
    assert read.to(torch.float64).tolist() == failing.to(torch.float64).tolist()
    again = run_source(print_program(built), built)
    (result,) = run_eager(again, built.failing, seed=SEED)
    assert result.tolist() == (failing.to(torch.float64) * 2).tolist()


def test_stride_of_a_single_element_is_ignored() -> None:
    example, failing = (torch.full((2,), v)[::2] for v in (1.0, 2.0))
    assert example.stride() == (2,)
    (one,) = print_program(called_with(example, example)).inputs
    (two,) = print_program(called_with(example, failing)).inputs
    assert (one.failing is None, two.failing is None) == (True, False)


def test_equal_inputs_with_nan_are_one_set() -> None:
    values = torch.tensor([float("nan"), 1.0])
    (one,) = print_program(called_with(values, values.clone())).inputs
    assert one.failing is None


class CondInCond(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        def inner(v: Tensor) -> Tensor:
            w: Tensor = torch.cond(v.max() > 0, lambda w: w * 2, torch.neg, (v,))
            return w + 1

        found: Tensor = torch.cond(x.sum() > 0, inner, lambda v: v.sin(), (x,))
        return found


class CondInLoop(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        def body(i: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            more = torch.cond(v.max() > 1, lambda w: w * 2, lambda w: w - 1, (v,))
            return i + 1, more + 0.5

        start = torch.tensor(0), x.relu()
        loop: Any = torch._higher_order_ops.while_loop
        found: Tensor = loop(lambda i, v: i < 3, body, start)[1].cos()
        return found


@pytest.mark.parametrize("model", [CondInCond, CondInLoop])
def test_nested_subgraphs_can_be_reexported(
    model: type[torch.nn.Module],
) -> None:
    built = make_candidate(model(), torch.tensor([[0.5, 2.0], [1.0, -3.0]]))
    again = run_source(print_program(built), built)
    expected = run_eager(built.exported, built.failing, seed=SEED)
    assert torch.equal(run_eager(again, built.failing, seed=SEED)[0], expected[0])


class ChangesItsParameter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self) -> Tensor:
        with torch.no_grad():
            return self.weight.div_(2)


def test_change_of_a_trainable_parameter_can_be_reexported() -> None:
    """The branch for ``no_grad`` is gone if a reduction has inlined it."""
    with torch.no_grad():
        built = make_candidate(ChangesItsParameter())
    again = run_source(print_program(built), built)
    assert [node.name for node in again.graph.nodes if "div" in node.name] == ["div_"]


class Middle(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        _, middle, _ = torch.split(x, 1)
        return middle.relu()


def test_unused_tuple_elements_are_not_printed() -> None:
    x = torch.randn(3, 2)
    built = make_candidate(Middle(), x)
    printed = print_program(built)
    assert [line for line in printed.body if line.endswith("]")] == [
        "getitem_1 = split[1]"
    ]
    (found,) = run_eager(run_source(printed, built), built.failing, seed=SEED)
    assert torch.equal(found, x[1:2].relu())


def test_weights_of_a_sequential_get_python_identifiers() -> None:
    x = torch.randn(2, 3)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4)).eval()
    built = make_candidate(module, x)
    printed = print_program(built)
    assert {weight.attribute for weight in printed.weights} == {"_0_weight", "_0_bias"}
    (found,) = run_eager(run_source(printed, built), built.failing, seed=SEED)
    assert torch.equal(found, module(x))


class Patches(torch.nn.Module):
    """Has ``((H - 1)//4 + 1)*((W - 1)//4 + 1)`` tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(2, 4, 1, stride=2)
        self.patch = torch.nn.Conv2d(4, 4, 1, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        grid = self.patch(self.stem(x).relu())
        tokens: Tensor = grid.flatten(2).tanh()
        found: Tensor = tokens.reshape(grid.shape).sin()
        return found


class Padded(torch.nn.Module):
    """Has frames of ``2 + (H - 1)//2``."""

    def __init__(self) -> None:
        super().__init__()
        self.down = torch.nn.Conv1d(2, 4, 1, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        frames = torch.nn.functional.pad(self.down(x), (1, 0)).tanh()
        found: Tensor = frames.mT.contiguous().cumsum(1) + x.sum()
        return found


def sizes(exported: torch.export.ExportedProgram) -> list[str]:
    """List the sizes of a program's inputs that are not fixed."""
    names = exported.graph_signature.user_inputs
    nodes = [n for n in exported.graph.nodes if n.name in names]
    shapes: list[Any] = [s for n in nodes for s in n.meta["val"].shape]
    return [str(s.node.expr) for s in shapes if isinstance(s, torch.SymInt)]


AUTO = torch.export.Dim.AUTO


@pytest.mark.parametrize(
    ("model", "shape", "others", "formula"),
    [
        (
            Patches(),
            (2, 2, 17, 13),
            (2, 2, 10, 30),
            r"\(+s\d+ - 1\)//4\)+ \+ 1\)\*\(+s\d+ - 1\)//4\)+ \+ 1\)",
        ),
        (Padded(), (2, 2, 15), (2, 2, 26), r"\(+s\d+ - 1\)//2\)+ \+ 2"),
    ],
    ids=["product", "sum"],
)
def test_values_of_computed_sizes_can_be_cut_and_reexported(
    model: torch.nn.Module,
    shape: tuple[int, ...],
    others: tuple[int, ...],
    formula: str,
    tmp_path: Path,
) -> None:
    # Without bounds: an export refuses to take such a dim by name, since a guard
    # says that what is computed from it is not 1.
    dims = dict.fromkeys(range(2, len(shape)), AUTO)
    exported = torch.export.export(
        model.eval(), (torch.randn(shape),), dynamic_shapes=(dims,)
    )
    runs = [Inputs((torch.randn(each),), {}) for each in (shape, others)]
    program = Program(exported, exported, *runs)
    _, skeleton, values = run_program(program, tmp_path)
    whole = Candidate.from_skeleton(skeleton)
    names = skeleton.operators
    prefixes = [frozenset(names[:n]) for n in range(1, len(names))]
    cut = [apply(whole, [Drop(dropped)]) for dropped in prefixes]
    seen: list[str] = []
    refused = 0
    for candidate in (whole, *cut):
        built = rebuild(program, candidate, values)
        again, loose = export_source(built)
        refused += bool(loose)
        seen += sizes(built.exported)
        assert len(sizes(again)) == len(sizes(built.exported))
        for wanted, actual in zip(
            run_eager(built.exported, built.failing, seed=SEED),
            run_eager(again, built.failing, seed=SEED),
            strict=True,
        ):
            torch.testing.assert_close(actual, wanted)
    assert refused
    assert any(re.fullmatch(rf"\(?{formula}\)?", size) for size in seen), set(seen)


class BothWays(torch.nn.Module):
    """Compute with what is ``1 + (H + 1)//2`` long, twice."""

    def forward(self, x: Tensor) -> Tensor:
        frames = torch.nn.functional.pad(x[:, ::2], (0, 0, 1, 0))
        return frames.tanh() * (frames + frames.sin())


def test_computed_size_gets_a_named_dim_if_export_accepts_one(
    tmp_path: Path,
) -> None:
    dim = torch.export.Dim("H", min=8, max=64)
    x = torch.randn(2, 15, 3)
    program = make_program(BothWays(), x, dynamic_shapes=({1: dim},))
    _, skeleton, values = run_program(program, tmp_path)
    whole = Candidate.from_skeleton(skeleton)

    def printed(*left: str) -> tuple[str, str]:
        dropped = frozenset(whole.operators).difference(left)
        built = rebuild(program, apply(whole, [Drop(dropped)]), values)
        again, loose = export_source(built)
        source = print_program(built, loose=loose)
        assert run_eager(again, built.failing, seed=SEED)
        return " ".join(source.dims), source.dynamic_shapes

    dims, shapes = printed("mul")
    assert 'size0 = torch.export.Dim("size0", min=5, max=33)' in dims
    assert shapes.endswith("{1: size0}, {1: size0})")
    # Also where what it has to be follows from another.
    _, shapes = printed("slice_1", "pad", "add")
    assert re.fullmatch(r"\(\{1: s\d+\}, \{1: size0\}\)", shapes)


def test_refused_names_of_computed_sizes_are_dropped_first() -> None:
    assert choose_names_to_drop({"s27", "size0", "size_t"}) == {"size0"}
    assert choose_names_to_drop({"s27", "sizes"}) == {"s27", "sizes"}


class PaddedBeside(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.padded = Padded()

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = self.padded(x).sum() + y
        return found


def test_accepted_dims_keep_names_and_refused_dims_keep_bounds() -> None:
    named = torch.export.Dim("n", min=3, max=9)
    shapes, x = ({2: AUTO(max=99)}, {0: named}), torch.randn(2, 2, 15)
    module = PaddedBeside()
    built = make_candidate(module, x, torch.randn(5), dynamic_shapes=shapes)
    _, loose = export_source(built)
    printed = print_program(built, loose=loose)
    (declared,) = printed.dims
    name = declared.partition(" ")[0]
    assert declared == f'{name} = torch.export.Dim("{name}", min=3, max=9)'
    unnamed = "torch.export.Dim.AUTO(min=2, max=99)"
    assert printed.dynamic_shapes == f"({{2: {unnamed}}}, {{0: {name}}})"


def test_export_is_retried_only_once_if_unnamed_dims_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def refuses(printed: Source, built: RebuiltCandidate) -> None:
        asked.append(printed.dynamic_shapes)
        raise UserError(
            UserErrorType.CONSTRAINT_VIOLATION,
            "Constraints violated (L['x'].size()[0])! For more information",
        )

    monkeypatch.setattr("shrinkfx.worker.printing.module.run_source", refuses)
    dim = torch.export.Dim("n", min=3, max=9)
    built = make_candidate(Widen(), torch.randn(5, 2), dynamic_shapes=({0: dim},))
    with pytest.raises(UserError, match="Constraints violated"):
        export_source(built)
    first, last = asked
    assert re.fullmatch(r"\(\{0: \w+\},\)", first)
    assert last == "({0: torch.export.Dim.AUTO(min=3, max=9)},)"


# --- tensor literals


TENSORS = {
    "one element, odd stride": torch.arange(4.0).as_strided((1, 1), (2, 2)),
    "a column of few": torch.arange(6.0).as_strided((3, 1), (1, 2)),
    "gaps": torch.arange(12.0).reshape(3, 4)[:, ::2],
    "expanded": torch.arange(3.0)[:, None].expand(3, 2),
    "turned": torch.arange(6).reshape(2, 3).t(),
    "no dims": torch.tensor(1 + 2j),
    "empty": torch.empty(0, 3, dtype=torch.bfloat16),
    "quarter": torch.linspace(-1, 1, 5).to(torch.float8_e4m3fn),
}


@pytest.mark.parametrize("name", TENSORS)
def test_exact_expression_evaluates_to_the_tensor(name: str) -> None:
    tensor = TENSORS[name]
    again = eval(write_tensor(tensor).exact, {"torch": torch})
    assert again.dtype == tensor.dtype
    layout = zip(tensor.shape, tensor.stride(), again.stride(), strict=True)
    assert all(a == b for size, a, b in layout if size > 1)
    assert torch.equal(again.to(torch.complex64), tensor.to(torch.complex64))


# --- anonymized programs


ONES = Expression("torch.ones((2,))", "")
BRANCH = """\
class TrueGraph0(torch.nn.Module):
    def forward(self, token_ids, a):
        add = torch.ops.aten.add.Tensor(token_ids, a)  # model.py:3, encoder
        return (add,)"""
SOURCE = Source(
    weights=(
        Weight("encoder_weight", "parameter", ONES),
        Weight("encoder_bias", "parameter", ONES),
        Weight("seen", "non_persistent_buffer", ONES),
        Weight("table", "constant", ONES),
    ),
    inputs=(Input("token_ids", ONES, None), Input("mask", ONES, ONES)),
    branches=(BRANCH,),
    members={"true_graph_0": "TrueGraph0"},
    body=(
        "x = torch.ops.aten.mul.Tensor(token_ids, self.encoder_weight)  # model.py:7",
        "weight = torch.ops.aten.view.default(mask, [batch, token_ids.shape[1] * 2])",
        "cond = torch.cond(x, self.true_graph_0, [self.encoder_bias, self.table])",
        "self.seen.copy_(x)",
        "return (cond, 'mask')",
    ),
    dims=('batch = torch.export.Dim("batch", min=2, max=9)',),
    dynamic_shapes="({0: 2 * batch + 1}, None)",
)


def test_inputs_weights_sizes_and_arguments_of_branches_are_renamed() -> None:
    made, new = anonymize(SOURCE)
    assert [each.name for each in made.inputs] == ["y", "z"]  # a value is x
    assert [w.attribute for w in made.weights] == [
        *("weight_1", "weight_2", "buffer", "constant")  # a value is weight
    ]
    assert made.body == (
        "x = torch.ops.aten.mul.Tensor(y, self.weight_1)",
        "weight = torch.ops.aten.view.default(z, [M, y.shape[1] * 2])",
        "cond = torch.cond(x, self.true_graph_0, [self.weight_2, self.constant])",
        "self.buffer.copy_(x)",
        "return (cond, 'mask')",
    )
    assert made.dims == ('M = torch.export.Dim("M", min=2, max=9)',)
    assert made.dynamic_shapes == "({0: 2 * M + 1}, None)"
    assert "def forward(self, a, b):" in made.branches[0]
    assert "aten.add.Tensor(a, b)" in made.branches[0]
    for text in (*made.body, *made.branches):
        ast.parse(text)
        assert "model.py" not in text
    assert new.inputs == {"token_ids": "y", "mask": "z"}
    assert new.in_file["weight_encoder_weight"] == "weight_weight_1"
    assert new.in_file["failing_mask"] == "failing_z"


def test_program_without_user_names_only_loses_its_comments() -> None:
    plain = replace(
        SOURCE,
        weights=(),
        inputs=(Input("x", ONES, None),),
        branches=(),
        members={},
        body=("relu = torch.ops.aten.relu.default(x)  # model.py:3", "return (relu,)"),
        dims=(),
        dynamic_shapes="None",
    )
    body = ("relu = torch.ops.aten.relu.default(x)", "return (relu,)")
    assert anonymize(plain)[0] == replace(plain, body=body)
