"""Values that kernels are made to leave, held against eager: no compiler here."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch._inductor import scheduler
from torch._inductor.decomposition import select_decomp_table as decompositions
from torch._inductor.virtualized import V
from torch.export import ExportedProgram

from shrinkfx.protocol.kernel_values import KernelValues
from shrinkfx.worker.checking.reference import DEFAULT_TOLERANCES
from shrinkfx.worker.explaining.recording import RecordedLaunch, Recording
from shrinkfx.worker.explaining.values import (
    CannotRecompute,
    ComparedRun,
    find_out_of_range_conversion,
    judge_values,
    list_nodes_between,
    measure_difference,
    measure_sensitivity,
    recompute,
)
from shrinkfx.worker.model import Inputs

aten = torch.ops.aten
X = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


class Steps(nn.Module):
    """Four operators in a row."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin().exp().cos().tanh()


def exported(module: nn.Module, *args: torch.Tensor) -> ExportedProgram:
    return torch.export.export(module, args)


class Run:
    """A run of a program, whose kernels leave what a test says.

    The lowered graph is the program's own, unless a test gives another.
    """

    def __init__(
        self,
        folder: Path,
        program: ExportedProgram,
        *args: torch.Tensor,
        graph: fx.GraphModule | None = None,
    ) -> None:
        module = program.module(check_guards=False)
        assert isinstance(module, fx.GraphModule)
        self.recording = Recording(folder, graph or program.graph_module)
        self.program, self.args = program, args
        (folder / "tmp" / "aoti_torch").mkdir(parents=True)

    def launch(self, kernel: str, *given: str, **made: torch.Tensor) -> None:
        """Have a kernel leave values of nodes, in buffers of their names."""
        assert self.recording.graph
        nodes = {n.name: n for n in self.recording.graph.graph.nodes}
        pairs = tuple((name, nodes[name]) for name in made)
        number = len(self.recording.launches)
        for name, value in made.items():
            self.leave(f"after_{number}_{name}", value)
        self.recording.launches.append(RecordedLaunch(kernel, given, pairs))

    def leave(self, name: str, value: torch.Tensor) -> None:
        folder = self.recording.folder / "tmp" / "aoti_torch"
        torch.save(value, folder / f"{name}_cpu.pt")

    def judged(self, *results: torch.Tensor) -> KernelValues:
        torch.save(list(results), self.recording.folder / "results.pt")
        ran = ComparedRun(
            self.program,
            Inputs(self.args, {}),
            1,
            DEFAULT_TOLERANCES.tolerance,
            lambda node: [node.name],
        )
        return judge_values(self.recording, ran)


def wrong(told: KernelValues) -> list[tuple[str, ...]]:
    assert not told.unknown
    return [v.operators for v in told.computed if v.wrong]


def test_only_the_faulty_kernel_is_wrong(tmp_path: Path) -> None:
    run = Run(tmp_path, exported(Steps(), X), X)
    spoilt = X.sin().exp() + 1
    run.launch("first", sin=X.sin())
    run.launch("second", "sin", exp=spoilt)
    run.launch("third", "exp", tanh=spoilt.cos().tanh())
    told = run.judged(spoilt.cos().tanh())
    assert wrong(told) == [("exp",)]
    second, third = told.computed[1:3]
    assert second.wrong
    assert second.wrong.wrong == 4
    assert second.wrong.exact == "eager"
    assert second.wrong_sources == ()
    assert third.wrong_sources == ("exp",)
    assert third.wrong is None


class Doubles(nn.Module):
    """Two operators that keep the dtype."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2) - 1


def test_integers_computed_from_integers_are_not_compared_with_float64(
    tmp_path: Path,
) -> None:
    x = X.to(torch.int64)
    run = Run(tmp_path, exported(Doubles(), x), x)
    run.launch("all", sub=x)
    told = run.judged(x)
    assert told.computed[0].wrong
    assert told.computed[0].wrong.exact == ""


def test_fused_operators_without_a_buffer_between_are_judged_together(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path, exported(Steps(), X), X)
    run.launch("all", cos=X.sin().exp().cos() + 1)
    told = run.judged((X.sin().exp().cos() + 1).tanh())
    assert wrong(told) == [("sin", "exp", "cos")]
    assert told.computed[0].calls == (
        "aten.sin.default",
        "aten.exp.default",
        "aten.cos.default",
    )


def test_wrong_result_that_no_kernel_computes_is_reported(tmp_path: Path) -> None:
    run = Run(tmp_path, exported(Steps(), X), X)
    run.launch("all", cos=X.sin().exp().cos())
    told = run.judged(X)
    assert wrong(told) == [("tanh",)]
    assert told.computed[-1].value == "result 0"


def test_returned_input_is_compared_with_itself(tmp_path: Path) -> None:
    class Forgets(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x, x.sin()

    run = Run(tmp_path, exported(Forgets(), X), X)
    run.launch("copies", x=X)
    told = run.judged(X, X)
    assert wrong(told) == [("sin",)]
    assert not any(value.unknown for value in told.computed)


def test_overwritten_operand_leaves_the_culprit_unknown(tmp_path: Path) -> None:
    run = Run(tmp_path, exported(Steps(), X), X)
    run.launch("first", sin=X.sin())
    run.leave("before_1_sin", X)
    run.launch("second", "sin", tanh=X.exp().cos().tanh())
    told = run.judged(X.exp().cos().tanh())
    assert wrong(told) == []
    assert "sin, which first made, was overwritten" in told.computed[1].unknown


def test_random_values_are_reported_as_sources(tmp_path: Path) -> None:
    class Noise(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (torch.rand_like(x) + x).sin()

    run = Run(tmp_path, exported(Noise(), X), X)
    noise = torch.rand_like(X) + X
    run.launch("first", add=noise)
    run.launch("second", "add", sin=noise.sin() + 1)
    told = run.judged(noise.sin() + 1)
    assert "random" in told.computed[0].unknown
    assert wrong(told) == [("sin",)]
    assert told.computed[1].random_sources == ("add",)


def chained(**operators: Any) -> fx.GraphModule:
    """Make a graph that calls named operators one after the other."""
    made = fx.Graph()
    value = made.placeholder("x")
    for name, target in operators.items():
        value = made.call_function(target, (value,), name=name)
    made.output((value,))
    return fx.GraphModule({}, made)


def steps_with_expm1() -> fx.GraphModule:
    ends = {"cos": aten.cos.default, "tanh": aten.tanh.default}
    return chained(sin=aten.sin.default, exp=aten.expm1.default, **ends)


def test_wrong_graph_rewrite_is_distinguished_from_a_wrong_kernel(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path, exported(Steps(), X), X, graph=steps_with_expm1())
    run.launch("all", tanh=X.sin().expm1().cos().tanh())
    told = run.judged(X.sin().expm1().cos().tanh())
    assert wrong(told) == []
    assert told.rewritten == "exp"
    assert told.decomposition == ""
    assert "    exp = torch.ops.aten.expm1.default(sin)\n" in told.graph


def test_graph_has_no_names_of_weights(tmp_path: Path) -> None:
    class Scales(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    made = fx.Graph()
    value = made.placeholder("x")
    scale = made.get_attr("secret_scale")
    scale.meta["val"] = torch.ones(2)
    made.output((made.call_function(aten.mul.Tensor, (value, scale), name="mul"),))
    graph = fx.GraphModule({"secret_scale": torch.ones(2)}, made)
    run = Run(tmp_path, exported(Scales(), X), X, graph=graph)
    run.launch("all", mul=X)
    told = run.judged(X)
    assert "weight_0 = self.weight_0\n" in told.graph
    assert "secret" not in told.graph


def test_operator_with_a_changed_shape_is_the_rewritten_one(tmp_path: Path) -> None:
    class Turns(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.unsqueeze(0).permute(1, 0, 2) * 2

    made = fx.Graph()
    value = made.call_function(aten.unsqueeze.default, (made.placeholder("x"), 0))
    value.name = "unsqueeze"
    value = made.call_function(aten.permute.default, (value, [1, 2, 0]), name="permute")
    made.output((made.call_function(aten.mul.Tensor, (value, 2), name="mul"),))
    run = Run(tmp_path, exported(Turns(), X), X, graph=fx.GraphModule({}, made))
    result = X.unsqueeze(-1) * 2
    run.launch("all", mul=result)
    told = run.judged(result)
    assert told.rewritten == "permute"
    assert told.rewritten_wrong is not None
    assert told.rewritten_wrong.metadata.startswith("the result has shape")


def test_wrong_decomposition_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def less_one(x: torch.Tensor) -> torch.Tensor:
        return torch.expm1(x)

    file = str(Path(torch.__file__).parent / "_refs" / "made_up.py")
    less_one.__code__ = less_one.__code__.replace(co_filename=file)
    monkeypatch.setitem(decompositions(), aten.exp.default, less_one)
    run = Run(tmp_path, exported(Steps(), X), X, graph=steps_with_expm1())
    run.launch("all", tanh=X.sin().expm1().cos().tanh())
    told = run.judged(X.sin().expm1().cos().tanh())
    assert told.rewritten == "exp"
    assert told.decomposition == "torch/_refs/made_up.py:less_one"
    assert told.rewritten_wrong
    assert told.rewritten_wrong.exact == "eager"
    own = less_one.__code__.replace(co_filename=str(tmp_path / "own.py"))
    less_one.__code__ = own
    assert run.judged(X.sin().expm1().cos().tanh()).decomposition == ""


def test_sign_of_zero_is_compared_if_all_values_are_equal(tmp_path: Path) -> None:
    class Inverse(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.ceil().reciprocal()

    x = torch.tensor([-0.5, 3.0])
    ceil = torch.tensor([0.0, 3.0])
    run = Run(tmp_path, exported(Inverse(), x), x)
    run.launch("first", ceil=ceil)
    run.launch("second", "ceil", reciprocal=ceil.reciprocal())
    told = run.judged(ceil.reciprocal())
    assert wrong(told) == [("ceil",)]
    assert told.tiny


def test_removed_operator_whose_sign_of_zero_is_lost_is_named(tmp_path: Path) -> None:
    class Inverse(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x + 0.0).neg().neg().reciprocal()

    x = torch.tensor([-0.0, 3.0])
    neg = aten.neg.default
    graph = chained(neg=neg, neg_1=neg, reciprocal=aten.reciprocal.default)
    run = Run(tmp_path, exported(Inverse(), x), x, graph=graph)
    run.launch("all", reciprocal=x.reciprocal())
    told = run.judged(x.reciprocal())
    assert wrong(told) == []
    assert told.rewritten == "add"
    assert told.rewritten_wrong is not None
    assert told.rewritten_wrong.expected == "0.0"


def test_amplified_rounding_is_reported_for_a_value_that_is_right(
    tmp_path: Path,
) -> None:
    class Steep(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x.sin() * 1e7).sin()

    sin = torch.nextafter(X.sin(), torch.tensor(2.0))
    run = Run(tmp_path, exported(Steep(), X), X)
    run.launch("first", sin=sin)
    run.launch("second", "sin", sin_1=(sin * 1e7).sin())
    told = run.judged((sin * 1e7).sin())
    assert wrong(told) == []
    first, second, _ = told.computed
    assert first.amplified is None
    assert second.amplified is not None
    assert second.operators == ("mul", "sin_1")


def test_write_that_a_pass_dropped_is_found(tmp_path: Path) -> None:
    class Writes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made = x + 1
            made[0].mul_(3.0)
            made[1].add_(2.0)
            return made.exp()

    program = exported(Writes(), X)
    made = fx.Graph()
    x = made.placeholder("x")
    add = made.call_function(aten.add.Tensor, (x, 1), name="add")
    bias = made.call_function(aten.full.default, ([2, 2], 0.0))
    rows = made.call_function(aten.select_scatter.default, (bias, X[0] * 0 + 2, 0, 1))
    both = made.call_function(aten.add.Tensor, (add, rows), name="both")
    made.output((made.call_function(aten.exp.default, (both,), name="exp"),))
    run = Run(tmp_path, program, X, graph=fx.GraphModule({}, made))
    result = (X + 1 + torch.tensor([[0.0], [2.0]])).exp()
    run.launch("all", exp=result)
    told = run.judged(result)
    assert wrong(told) == []
    assert told.lost == "mul_"
    assert told.graph_agrees is False


def test_writes_that_functionalization_changes_are_named(tmp_path: Path) -> None:
    class Writes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made = x.exp()
            made.unfold(1, 1, 2).mul_(x.t()[0, 0])
            return made

    program, result = exported(Writes(), X), torch.func.functionalize(Writes())(X)
    if result.equal(Writes()(X)):
        pytest.skip("this version of PyTorch has no such bug")
    made = fx.Graph()
    x = made.placeholder("x")
    zero = made.call_function(aten.sub.Tensor, (x, x))
    made.output((made.call_function(aten.add.Tensor, (zero, result)),))
    run = Run(tmp_path, program, X, graph=fx.GraphModule({}, made))
    assert run.judged(result).functionalized == ("mul_", "unfold")


def test_float64_is_no_evidence_for_integers_that_overflow(tmp_path: Path) -> None:
    class Absolute(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.abs().float()

    least = torch.tensor([-32768], dtype=torch.int16)
    run = Run(tmp_path, exported(Absolute(), least), least)
    result = torch.tensor([32768.0])
    run.launch("all", to=result)
    (computed, *_) = run.judged(result).computed
    assert computed.wrong
    assert computed.wrong.exact == ""


def test_error_below_tolerance_is_found_if_it_is_the_whole_value(
    tmp_path: Path,
) -> None:
    class Bounded(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x / x.clamp_min(1e-12)

    zero = torch.zeros(2)
    run = Run(tmp_path, exported(Bounded(), zero), zero)
    run.launch("first", clamp_min=zero)
    run.launch("second", "clamp_min", div=zero / zero)
    told = run.judged(zero / zero)
    assert told.tiny
    assert wrong(told) == [("clamp_min",)]


def test_rounding_is_not_a_tiny_error(tmp_path: Path) -> None:
    class Cancels(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x - y

    x, y = torch.tensor([1.0]), torch.tensor([1.0 - 2**-24])
    run = Run(tmp_path, exported(Cancels(), x, y), x, y)
    run.launch("first", sub=torch.zeros(1))
    assert wrong(run.judged(torch.zeros(1))) == []


def test_kernel_values_are_unknown_without_a_result(tmp_path: Path) -> None:
    run = Run(tmp_path, exported(Steps(), X), X)
    ran = ComparedRun(
        run.program,
        Inputs((X,), {}),
        1,
        DEFAULT_TOLERANCES.tolerance,
        lambda n: [n.name],
    )
    assert judge_values(run.recording, ran).unknown


def nodes(program: ExportedProgram) -> dict[str, fx.Node]:
    return {n.name: n for n in program.graph.nodes}


def test_value_is_recomputed_from_the_nearest_known_values() -> None:
    of = nodes(exported(Steps(), X))
    assert [n.name for n in list_nodes_between(of["tanh"], [of["x"], of["exp"]])] == [
        "cos",
        "tanh",
    ]
    made = recompute(of["tanh"], {of["x"]: X, of["exp"]: X})
    assert torch.equal(made, X.cos().tanh())


def test_recomputation_runs_in_place_writes_before_reads() -> None:
    made = fx.Graph()
    x = made.placeholder("x")
    copy = made.call_function(aten.clone.default, (x,))
    made.call_function(aten.mul_.Tensor, (copy, 2.0))
    last = made.call_function(aten.sin.default, (copy,))
    given = X.clone()
    assert torch.equal(recompute(last, {x: given}), (2 * X).sin())
    assert torch.equal(given, X)


@pytest.mark.parametrize("target", [aten.empty_like.default, aten.rand_like.default])
def test_nondeterministic_operator_is_not_recomputed(
    target: torch._ops.OpOverload,
) -> None:
    made = fx.Graph()
    x = made.placeholder("x")
    with pytest.raises(CannotRecompute):
        recompute(made.call_function(target, (x,)), {x: X})


@pytest.mark.parametrize(
    ("value", "dtype", "unfit"),
    [
        (128.5, torch.int8, "int8"),
        (-1.0, torch.uint8, "uint8"),
        (torch.nan, torch.int64, "int64"),
        (2.0**63, torch.int64, "int64"),
        (127.9, torch.int8, ""),
        (-0.5, torch.uint8, ""),
        (1e30, torch.float16, ""),
    ],
)
def test_conversion_of_a_value_that_does_not_fit_is_found(
    value: float, dtype: torch.dtype, unfit: str
) -> None:
    made = fx.Graph()
    x = made.placeholder("x")
    doubled = made.call_function(aten.mul.Tensor, (x, 2.0))
    last = made.call_function(aten._to_copy.default, (doubled,), {"dtype": dtype})
    known = {x: torch.tensor([1.0, value / 2], dtype=torch.float64)}
    second = torch.tensor([False, True])
    assert find_out_of_range_conversion(last, known, second) == unfit
    assert not find_out_of_range_conversion(last, known, ~second)


def test_conversion_between_integer_types_is_not_reported() -> None:
    made = fx.Graph()
    x = made.placeholder("x")
    last = made.call_function(aten._to_copy.default, (x,), {"dtype": torch.int8})
    known, differs = {x: torch.tensor([300])}, torch.tensor([True])
    assert not find_out_of_range_conversion(last, known, differs)


class Quantized(nn.Module):
    """A conversion, and an operator that hides the result for NaN."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.isnan(), 0, x.to(torch.int8)) + 1


@pytest.mark.parametrize(
    ("wrong_at", "unfit"), [(0, ""), (1, ""), (2, "int8"), (slice(1, 3), "")]
)
def test_out_of_range_conversion_explains_only_elements_that_depend_on_it(
    tmp_path: Path, wrong_at: int | slice, unfit: str
) -> None:
    x = torch.tensor([torch.nan, 2.0, 300.0])
    expected = Quantized()(x)
    actual = expected.clone()
    actual[wrong_at] += 9
    run = Run(tmp_path, exported(Quantized(), x).run_decompositions({}), x)
    run.launch("all", add=actual)
    told = run.judged(actual)
    assert told.computed[0].wrong
    assert told.computed[0].wrong.unfit == unfit


def test_sensitivity_is_measured_with_rounded_inputs() -> None:
    of = nodes(exported(Steps(), X))
    moved = measure_sensitivity(of["sin"], {of["x"]: X})
    assert 0 < moved.max() < 1e-5


@pytest.mark.parametrize(
    ("actual", "expected", "ulps"),
    [
        (torch.tensor([1.5]), torch.tensor([1.0]), 2.0**22),
        (torch.tensor([3.0]), torch.tensor([2.0]), 2.0**22),
        (
            torch.tensor([2], dtype=torch.int32),
            torch.tensor([1], dtype=torch.int32),
            None,
        ),
    ],
)
def test_errors_are_counted_in_units_of_the_last_place(
    actual: torch.Tensor, expected: torch.Tensor, ulps: float | None
) -> None:
    found = measure_difference(actual, expected, None, DEFAULT_TOLERANCES.tolerance)
    assert found
    assert found.ulps == ulps


def test_float64_separates_wrong_results_from_lack_of_precision() -> None:
    narrow, exact = torch.tensor([2048.0]), torch.tensor([2049.0], dtype=torch.float64)
    assert measure_difference(narrow + 2, narrow, exact, lambda _: (0.0, 0.5)) is None
    wide = narrow.double()
    same = measure_difference(wide + 90, wide, wide.clone(), lambda _: (0.0, 1.0))
    assert same is not None
    assert same.exact == ""  # eager's run in float64, repeated
    far = measure_difference(narrow + 90, narrow, exact, lambda _: (0.0, 1.0))
    assert far
    assert far.exact == "eager"


def test_metadata_is_compared_before_values() -> None:
    found = measure_difference(X.long(), X, None, DEFAULT_TOLERANCES.tolerance)
    assert found
    assert "dtype" in found.metadata


def test_graph_without_launches_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operand that is handed back is a result, too."""
    lowered = fx.GraphModule(torch.nn.Module(), fx.Graph())

    class GraphLowering:
        module, constants = lowered, ()
        graph_inputs = MappingProxyType[str, Any]({})

    monkeypatch.setattr(scheduler.Scheduler, "codegen", lambda _: None)
    recording = Recording(tmp_path)
    graph: Any = GraphLowering()
    scheduling: Any = scheduler.Scheduler
    with recording.record_codegen(), V.set_graph_handler(graph):
        scheduling.codegen(scheduling)
    assert recording.graph is lowered
    assert recording.launches == []
