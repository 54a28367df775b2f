"""Graphs as torch.compile leaves them as code: what is exported of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._dynamo.debug_utils import InputReader, InputWriter

from shrinkfx.protocol.answers import Exported
from shrinkfx.protocol.requests import ExportRunnable
from shrinkfx.worker.intake.runnable import Size, export_runnable
from shrinkfx.worker.loading.devices import archive_on_cpu, device_type
from shrinkfx.worker.origin import origin_of

pytestmark = pytest.mark.filterwarnings("ignore:could not load")  # torch's own

HEAD = """\
import torch
from torch import device
from torch.nn import *
class Repro(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        {init}
    def forward(self, {names}):
        {body}
{load}
mod = Repro()
"""

OF_SIZES = """\
def load_args(reader):
    reader.symint(5, expr='s7')  # a
    reader.symint(10, expr='2*s7')  # b
    reader.symint(3, expr='u0')  # c
    reader.symint(4)  # d
    buf0 = reader.storage(None, 4*s7*(s3 - 1) + 4*s7)
    reader.tensor(buf0, (s7, s3), (s3, 1), is_leaf=True)  # e
    buf1 = reader.storage(None, 8*s7, dtype_hint=torch.int64)
    reader.tensor(buf1, (2*s7,), dtype=torch.int32, is_leaf=True)  # f
    reader.const('g')
load_args._version = 0
"""


def runnable(
    load: str, names: str, body: str, init: str = "pass", top: str = ""
) -> str:
    return top + HEAD.format(load=load, names=names, body=body, init=init)


def exported(
    folder: Path, text: str, save_dir: str = ""
) -> tuple[Exported, torch.export.ExportedProgram]:
    code, program = folder / "fx_graph_runnable.py", folder / "program.pt2"
    code.write_text(text)
    constants = folder / "constants.pt"
    values = str(constants) if constants.exists() else ""
    task = ExportRunnable(str(code), save_dir, values, str(program))
    made = export_runnable(task, lambda _: None, folder)
    if device_type(str(program)) == "cuda":
        return made, torch.export.load(archive_on_cpu(str(program), folder))
    return made, torch.export.load(program)


@pytest.fixture(autouse=True)
def in_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # as a worker's child does, and it is put back


def written(folder: Path, *values: Tensor) -> str:
    """Have PyTorch write down arguments, and their values."""
    writer = InputWriter(str(folder))
    for number, value in enumerate(values):
        writer.tensor(f"arg{number}_1", value)
    return "\n".join(writer.lines())


def test_saved_input_values_are_used(tmp_path: Path) -> None:
    x = torch.arange(6.0).view(2, 3).t()
    y = torch.tensor([2, 0])
    load = written(tmp_path / "saved", x, y)
    text = runnable(load, "x, y", "return (x[y], None, 7)")
    made, program = exported(tmp_path, text, str(tmp_path / "saved"))
    assert made == Exported(inputs=2, made_up=0, fixed=(), left_out=2)
    args, _ = program.example_inputs
    assert torch.equal(args[0], x)
    assert args[0].stride() == x.stride()
    assert torch.equal(args[1], y)
    (result,) = program.module()(*args)
    assert torch.equal(result, x[y])


def test_view_that_the_strides_of_the_values_refuse_is_a_reshape(
    tmp_path: Path,
) -> None:
    x = torch.arange(6.0).view(2, 3).t()
    load = written(tmp_path / "saved", x)
    text = runnable(load, "x", "return (torch.ops.aten.view.default(x, [6]),)")
    _, program = exported(tmp_path, text, str(tmp_path / "saved"))
    assert torch.equal(program.module()(x)[0], x.reshape(6))


def test_missing_input_values_are_made_up_reproducibly(tmp_path: Path) -> None:
    load = written(tmp_path / "saved", torch.ones(3), torch.tensor([2, 0]))
    text = runnable(load, "x, y", "return (x[y] + 1,)")
    made, program = exported(tmp_path, text, str(tmp_path / "gone"))
    _, again = exported(tmp_path, text)
    assert made.made_up == 2
    args, _ = program.example_inputs
    assert torch.equal(args[0], again.example_inputs[0][0])
    assert args[1].tolist() == [0, 0]


def test_sizes_with_a_symbol_are_dynamic(tmp_path: Path) -> None:
    body = "return (e.sum(1) + a + c + d, f.view(b) * 2, a)"
    text = runnable(OF_SIZES, "a, b, c, d, e, f, g", body, top="s3 = 3\ns7 = 5\n")
    if not hasattr(InputReader, "const"):  # before torch 2.13
        text = text.replace("reader.const('g')", "pass")
        text = text.replace("a, b, c, d, e, f, g", "a, b, c, d, e, f")
    made, program = exported(tmp_path, text)
    assert made == Exported(inputs=2, made_up=2, fixed=("4", "u0"), left_out=1)
    module = program.module()
    e, f = torch.ones(6, 2), torch.ones(12, dtype=torch.int32)
    first, second = module(e, f)
    assert torch.equal(first, torch.full((6,), 2.0 + 6 + 3 + 4))
    assert torch.equal(second, f * 2)


def test_size_of_a_jagged_dim_has_any_value(tmp_path: Path) -> None:
    load = """\
def load_args(reader):
    reader.symint(j1, expr='s21')
    buf0 = reader.storage(None, 16*s3)
    reader.tensor(buf0, (s3, 4), is_leaf=True)
load_args._version = 0
"""
    text = runnable(load, "n, x", "return (x + 1,)", top="s21 = j1\ns3 = 5\n")
    made, program = exported(tmp_path, text)
    assert made.inputs == 1
    (args, _) = program.example_inputs
    assert args[0].shape == (5, 4)


def test_arithmetic_on_symbolic_sizes_gives_symbolic_sizes() -> None:
    size = Size(5, "s7")
    for worked_out in (size + 1, 2 * size, size - 1, 7 - size, size // 2, size % 3):
        assert isinstance(worked_out, Size)
        assert worked_out.name == ""
    assert (2 * size, 7 - size, size // 2) == (10, 2, 2)
    assert not isinstance(size / 2, Size)


def test_writes_to_inputs_are_kept_in_the_program(tmp_path: Path) -> None:
    load = written(tmp_path / "saved", torch.zeros(2))
    text = runnable(load, "x", "y = x + 1; z = x.copy_(y); return (z,)")
    _, program = exported(tmp_path, text, str(tmp_path / "saved"))
    args, _ = program.example_inputs
    assert args[0].tolist() == [0, 0]
    assert "copy" in str(program.graph)


def test_random_operators_of_inductor_become_those_of_pytorch(tmp_path: Path) -> None:
    prims = "torch.ops.prims.inductor"
    body = (
        f"seeds = {prims}_seeds.default(2, device(type='cpu'))\n        "
        f"first = {prims}_lookup_seed.default(seeds, 0)\n        "
        f"y = {prims}_random.default([3], first, 'randn') + x\n        "
        f"z = {prims}_randint.default(0, 5, [3], first)\n        "
        "return (y, z)"
    )
    load = written(tmp_path / "saved", torch.zeros(3))
    _, program = exported(tmp_path, runnable(load, "x", body))
    operators = [str(node.target) for node in program.graph.nodes]
    assert "aten.randn.default" in operators
    assert "aten.randint.low" in operators
    assert not any("inductor" in name for name in operators)


def test_nan_and_other_operators_of_inductor_are_accepted(tmp_path: Path) -> None:
    load = written(tmp_path / "saved", torch.ones(2, 3))
    ordered = "torch.ops.prims.inductor_force_stride_order.default(x, (1, 2))"
    body = f"return ({ordered} + torch.ops.aten.full.default([], nan),)"
    text = runnable(load, "x", body)
    _, program = exported(tmp_path, text, str(tmp_path / "saved"))
    (result,) = program.module()(torch.ones(2, 3))
    assert result.isnan().all()


def test_graph_with_nested_inputs_takes_flat_ones(tmp_path: Path) -> None:
    load = written(tmp_path / "saved", torch.ones(2), torch.zeros(2))
    flatten = "x, y, = fx_pytree.tree_flatten_spec(([a], {}), self._in_spec)"
    text = runnable(load, "a", f"{flatten}\n        return (x - y,)")
    made, program = exported(tmp_path, text, str(tmp_path / "saved"))
    assert made.inputs == 2
    (result,) = program.module()(torch.ones(2), torch.zeros(2))
    assert result.tolist() == [1, 1]


def test_graph_of_optimizer_returns_the_inputs_that_it_writes(tmp_path: Path) -> None:
    load = written(tmp_path / "saved", torch.zeros(2))
    text = runnable(load, "x", "x.copy_(x + 1); return ()")
    _, program = exported(tmp_path, text, str(tmp_path / "saved"))
    (result,) = program.module()(torch.zeros(2))
    assert result.tolist() == [1, 1]


def test_saved_constants_are_used(tmp_path: Path) -> None:
    torch.save({"c": torch.tensor([1.0, 2.0, 5.0])}, tmp_path / "constants.pt")
    load = written(tmp_path / "saved", torch.ones(3))
    init = "self.register_buffer('c', torch.randn([3]))"
    _, program = exported(tmp_path, runnable(load, "x", "return (x * self.c,)", init))
    (result,) = program.module()(torch.ones(3))
    assert result.tolist() == [1, 2, 5]


def test_nodes_have_the_lines_of_the_captured_script(tmp_path: Path) -> None:
    body = "y = x + 1\n        z = torch.relu(y)\n        return (z,)"
    text = runnable(written(tmp_path / "saved", torch.zeros(3)), "x", body)
    trace = '  File "/home/who/train.py", line 12, in forward'
    traces = {"y": trace, "z": "", "other": "no"}
    _, program = exported(tmp_path, f"{text}\nstack_traces = {traces!r}\n")
    origins = {str(n.target): origin_of(n) for n in program.graph.nodes}
    assert origins["aten.add.Tensor"] == "train.py:12"
    assert origins["aten.relu.default"] == ""


def test_cuda_graph_is_saved_for_cuda_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    load = written(tmp_path / "saved", torch.ones(2)).replace(
        ", 8)", ", 8, device=device(type='cuda', index=0))"
    )
    assert "cuda" in load
    body = "return (x + torch.zeros(2, device=device(type='cuda', index=0)) + self.b,)"
    init = "self.register_buffer('b', torch.ones(2).to(\"cuda:0\"))"
    text = runnable(load, "x", body, init)
    made, program = exported(tmp_path, text, str(tmp_path / "saved"))
    assert made.made_up == 0
    assert device_type(str(tmp_path / "program.pt2")) == "cuda"
    args, _ = program.example_inputs
    assert args[0].tolist() == [1, 1]
