"""Programs compiled as ``torch.compile`` compiles them, with a fake of Inductor."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor.exc import InductorError
from torch.export import ExportedProgram

from shrinkfx.worker.aoti.torch_compile import (
    CompiledProgram,
    find_dynamic_dims,
    share_kernels,
)
from shrinkfx.worker.eager.intermediates import call
from shrinkfx.worker.model import Inputs
from shrinkfx.worker.private_api import inductor_api


class Counter(torch.nn.Module):
    """Counts its calls in a buffer."""

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return torch.cat([x, y]) * self.calls


X, Y = torch.ones(5, 3), torch.ones(4, 3)
INPUTS = Inputs((X, Y), {})


@pytest.fixture(scope="module")
def exported() -> ExportedProgram:
    rows = torch.export.Dim("rows", min=2)
    return torch.export.export(Counter(), (X, Y), dynamic_shapes=({0: rows}, None))


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[Any]]]:
    """Replace Inductor by eager; collect the declared inputs of each graph."""
    given: list[list[Any]] = []

    def compile_fx(graph: torch.fx.GraphModule, _: list[Any], **__: Any) -> Any:
        nodes = graph.graph.find_nodes(op="placeholder")
        given.append([node.meta["example_value"] for node in nodes])
        return graph.forward

    torch._dynamo.reset()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "restored")
    monkeypatch.setattr(inductor_api.compile_fx, "compile_fx", compile_fx)
    yield given
    torch._dynamo.reset()


def compiled(
    exported: ExportedProgram, folder: Path, notes: list[str], inputs: Inputs = INPUTS
) -> CompiledProgram:
    return CompiledProgram(exported, folder, {}, notes.append, inputs)


def test_program_is_compiled_before_it_runs(
    exported: ExportedProgram, tmp_path: Path, graphs: list[list[Any]]
) -> None:
    notes: list[str] = []
    function = compiled(exported, tmp_path, notes)
    assert set(notes) == {"compile"}
    (result,) = call(function, INPUTS)
    assert set(notes) == {"compile"}  # the first call compiles nothing
    assert result.tolist() == torch.ones(9, 3).tolist()


def test_sizes_are_dynamic_as_in_the_exported_program(
    exported: ExportedProgram, tmp_path: Path, graphs: list[list[Any]]
) -> None:
    assert find_dynamic_dims(exported, INPUTS) == {0: [0]}
    function = compiled(exported, tmp_path, [])
    (result,) = call(function, Inputs((torch.ones(7, 3), Y), {}))
    assert result.shape == (11, 3)
    (inputs,) = graphs
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    dynamic = [[isinstance(n, torch.SymInt) for n in t.shape] for t in tensors]
    assert [True, False] in dynamic
    assert [False, False] in dynamic


class Score(torch.nn.Module):
    def forward(
        self, score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor, bias: Tensor
    ) -> Tensor:
        chosen: Tensor = torch.ops.aten.index.Tensor(bias, [h])
        return score + chosen


class Mask(torch.nn.Module):
    def forward(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return q >= k


class Attention(torch.nn.Module):
    """Calls flex_attention in the form that the graphs of torch.compile have."""

    def __init__(self) -> None:
        super().__init__()
        self.score, self.mask = Score(), Mask()

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        functions = self.score, (8, 8, self.mask)
        options = {"OUTPUT_LOGSUMEXP": False, "OUTPUT_MAX": False}
        attend = torch.ops.higher_order.flex_attention
        result: Tensor = attend(x, x, x, *functions, 0.5, options, (bias,), ())[0]
        return result


def test_flex_attention_reads_captured_tensors(
    tmp_path: Path, graphs: list[list[Any]]
) -> None:
    inputs = Inputs((torch.rand(1, 2, 8, 4), torch.tensor([0.0, 9.0])), {})
    exported = torch.export.export(Attention(), inputs.args)
    (result,) = call(compiled(exported, tmp_path, [], inputs), inputs)
    torch.testing.assert_close(result, Attention()(*inputs.args))


def test_size_that_is_not_dynamic_is_compiled_again(
    exported: ExportedProgram, tmp_path: Path, graphs: list[list[Any]]
) -> None:
    notes: list[str] = []
    function = compiled(exported, tmp_path, notes)
    call(function, Inputs((X, torch.ones(6, 3)), {}))
    assert len(graphs) == 2
    assert notes[-2:] == ["compile", "run"]


def test_buffers_of_the_program_stay_as_they_are(
    exported: ExportedProgram, tmp_path: Path, graphs: list[list[Any]]
) -> None:
    function = compiled(exported, tmp_path, [])
    results = [call(function, INPUTS)[0][0, 0].item() for _ in range(2)]
    assert results == [1, 2]
    assert exported.state_dict["calls"] == 0


def test_returned_values_are_not_the_buffers(
    tmp_path: Path, graphs: list[list[Any]]
) -> None:
    class Steps(torch.nn.Module):
        calls: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.calls.add_(x)

    inputs = Inputs((torch.ones(1),), {})
    functional = torch.export.export(Steps(), inputs.args).run_decompositions({})
    function = compiled(functional, tmp_path, [], inputs)
    results = [call(function, inputs)[0] for _ in range(2)]
    assert [result.item() for result in results] == [1, 2]  # as a repro returns them


def test_program_whose_sizes_depend_on_data_is_compiled(
    tmp_path: Path, graphs: list[list[Any]]
) -> None:
    class Positive(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[x > 0] * x.sum().item()

    inputs = Inputs((torch.tensor([1.0, 2.0, -1.0]),), {})
    exported = torch.export.export(Positive(), inputs.args)
    (result,) = call(compiled(exported, tmp_path, [], inputs), inputs)
    assert result.tolist() == [2, 4]
    assert len(graphs) == 1


def test_error_of_the_compiler_is_not_hidden(
    exported: ExportedProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise inductor_api.InvalidCxxCompiler

    torch._dynamo.reset()
    monkeypatch.setattr(inductor_api.compile_fx, "compile_fx", fail)
    with pytest.raises(inductor_api.InvalidCxxCompiler):
        compiled(exported, tmp_path, [])


def test_error_of_inductor_is_raised_as_in_a_repro(
    exported: ExportedProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise InductorError(ValueError("no"), None)

    torch._dynamo.reset()
    monkeypatch.setattr(inductor_api.compile_fx, "compile_fx", fail)
    with pytest.raises(InductorError, match="ValueError: no"):
        compiled(exported, tmp_path, [])


@pytest.mark.parametrize(
    ("age_s", "added"), [(0.0, ["new.so", "young.so"]), (9.0, ["new.so"])]
)
def test_recent_kernels_are_shared_and_whole_graphs_are_not(
    tmp_path: Path, age_s: float, added: list[str]
) -> None:
    cache, shared = tmp_path / "cache", tmp_path / "shared"
    ages = {"ab/new.so": 60, "ab/known.so": 60, "ab/young.so": 1, "ab/old.so": 9_999}
    for name, age in {**ages, "fxgraph/ab/graph.so": 60}.items():
        file = cache / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("compiled here")
        os.utime(file, (time.time() - age,) * 2)
    (shared / "ab").mkdir(parents=True)
    (shared / "ab/known.so").write_text("compiled before")
    share_kernels(cache, shared, age_s=age_s)
    found = {str(f.relative_to(shared)): f.read_text() for f in shared.glob("*/**/*")}
    assert found.pop("ab/known.so") == "compiled before"
    assert sorted(found) == [f"ab/{name}" for name in added]
