"""Scripts that fail in AOTInductor, captured with PyTorch itself."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from shrinkfx import api
from shrinkfx.errors import FailsDifferently, NotReproducible
from shrinkfx.events import NoteAdded
from shrinkfx.intake.capture import script_capture
from shrinkfx.options.options import Options

pytestmark = pytest.mark.aoti

PLANTED = """
from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides

def read_null(x):
    return f"({x} + decltype({x})(*reinterpret_cast<const volatile float*>(8)))"

CppOverrides.cos = CppVecOverrides.cos = staticmethod(read_null)
"""

UNDER_PYTEST = """
import torch
import planted

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x).cos() + 1

def test_serving(tmp_path):
    dims = {"x": {0: torch.export.Dim("rows", min=2, max=64)}}
    program = torch.export.export(Model(), (torch.ones(2, 3),), dynamic_shapes=dims)
    with torch._inductor.config.patch(epilogue_fusion=False):
        path = torch._inductor.aoti_compile_and_package(
            program, package_path=str(tmp_path / "model.pt2")
        )
    torch._inductor.aoti_load_package(path)(torch.full((5, 3), 2.0))
"""

OPERATORS = """
import time
import torch

@torch.library.custom_op("captured::wait", mutates_args=())
def wait(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 100:
        time.sleep(600)
    return x.clone()

@wait.register_fake
def _(x):
    return torch.empty_like(x)
"""

HANGS = """
import os
import torch
import kernels.waiting

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.captured.wait(x) + 1

program = torch.export.export(Model(), (torch.zeros(4),))
path = torch._inductor.aoti_compile_and_package(program, package_path="model.pt2")
model = torch._inductor.aoti_load_package(path)
model(torch.ones(4))
model(torch.full((4,), 100.0))
"""


@pytest.fixture
def messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "planted.py").write_text(PLANTED)
    (tmp_path / "test_model.py").write_text(UNDER_PYTEST)
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "waiting.py").write_text(OPERATORS)
    (tmp_path / "serve.py").write_text(HANGS)
    return []


def listener(messages: list[str]) -> Callable[[object], None]:
    return lambda event: (
        messages.append(event.text) if isinstance(event, NoteAdded) else None
    )


def segfaulting(tmp_path: Path, messages: list[str]) -> Options:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    options = Options(model=Path(), out=tmp_path / "out")
    with api.capture(options, command, listener(messages)) as asked:
        return asked


@pytest.mark.every_run
def test_segfault_under_pytest_is_captured(tmp_path: Path, messages: list[str]) -> None:
    asked = segfaulting(tmp_path, messages)
    assert asked.model == tmp_path / "out" / "capture" / "program-1.pt2"
    assert asked.inputs
    assert asked.preload == ("planted",)
    assert asked.inductor == {"epilogue_fusion": False}
    (line,) = [line for line in messages if "the process died in call 1" in line]
    assert line.startswith("captured: the process died in call 1 of program 1 (test_mo")


def test_hang_is_captured(tmp_path: Path, messages: list[str]) -> None:
    options = Options(model=Path(), out=tmp_path / "out", timeout_s=30.0)
    with api.capture(
        options, [sys.executable, "serve.py"], listener(messages)
    ) as asked:
        pass
    assert asked.preload == ("kernels.waiting",)
    assert asked.inputs
    assert any(
        "call 2 of program 1 (serve.py:14) did not end in" in s for s in messages
    )


def test_segfault_under_pytest_is_reduced(tmp_path: Path, messages: list[str]) -> None:
    asked = replace(segfaulting(tmp_path, messages), no_explain=True)
    reduction = api.reduce(asked)
    assert reduction.exit_code == 0
    assert str(reduction.signature.kind) == "crash"
    assert reduction.operators == (3, 1)
    assert "cos" in reduction.repro.read_text()


PASS = """
import torch
from torch._inductor.custom_graph_pass import CustomGraphPass

class Refuse(CustomGraphPass):
    def __init__(self, word):
        self.word = word

    def __call__(self, graph):
        if any(self.word in str(node.target) for node in graph.nodes):
            raise ValueError(f"no {self.word} here")

    def uuid(self):
        return self.word
"""

GIVES_A_PASS = """
import torch
import passes

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x).cos() + 1

program = torch.export.export(Model(), (torch.ones(2, 3),))
options = {"post_grad_custom_pre_pass": passes.Refuse("cos")}
torch._inductor.aoti_compile_and_package(program, inductor_configs=options)
"""


def test_repro_contains_custom_pass_of_script(
    tmp_path: Path, messages: list[str]
) -> None:
    (tmp_path / "passes.py").write_text(PASS)
    (tmp_path / "serve.py").write_text(GIVES_A_PASS)
    options = Options(model=Path(), out=tmp_path / "out", no_explain=True)
    with api.capture(
        options, [sys.executable, "serve.py"], listener(messages)
    ) as asked:
        pass
    sets = (
        "a generated preload sets Inductor's post_grad_custom_pre_pass: passes.Refuse"
    )
    assert any(sets in line for line in messages)
    reduction = api.reduce(asked)
    assert reduction.exit_code == 0
    assert str(reduction.signature.kind) == "compile-error"
    assert "no cos here" in str(reduction.signature)
    assert reduction.operators == (3, 1)
    text = reduction.repro.read_text()
    assert "class Refuse" in text
    assert "torch._inductor.config.post_grad_custom_pre_pass = made_1" in text


TRAINS = """
import torch
import wrong_gradient

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x):
        x = torch.nn.functional.dropout(self.inner(x), 0.5)
        torch._dynamo.graph_break()
        return torch.nn.functional.hardtanh(x).sum()

torch.manual_seed(0)
model = Model()
torch.compile(model)(torch.randn(64, 8)).backward()
raise SystemExit("the gradients are wrong")
"""

WRONG_GRADIENT = """
import torch
from torch._inductor.lowering import lowerings

def wrong(a, b):
    return lowerings[torch.ops.aten.lt.Scalar](a, b - 0.25)

lowerings[torch.ops.aten.le.Scalar] = wrong
"""


def capture_training(tmp_path: Path, messages: list[str]) -> Options:
    (tmp_path / "wrong_gradient.py").write_text(WRONG_GRADIENT)
    return capture_script(tmp_path, messages, TRAINS)


def capture_script(tmp_path: Path, messages: list[str], script: str) -> Options:
    (tmp_path / "train.py").write_text(script)
    options = Options(model=Path(), out=tmp_path / "out", no_explain=True)
    command = [sys.executable, "train.py"]
    with api.capture(options, command, listener(messages)) as asked:
        return asked


@pytest.mark.every_run
def test_forward_and_backward_graphs_are_captured(
    tmp_path: Path, messages: list[str]
) -> None:
    asked = capture_training(tmp_path, messages)
    assert asked.model == tmp_path / "out" / "capture" / "program-1.py"
    assert asked.others == (2, 3, 4)
    assert asked.preload == ("wrong_gradient",)
    inputs = torch.load(asked.inputs) if asked.inputs else ()
    assert (64, 8) in [value.shape for value in inputs]


def test_wrong_graph_of_training_is_found_and_reduced(
    tmp_path: Path, messages: list[str]
) -> None:
    asked = capture_training(tmp_path, messages)
    reduction = api.reduce(asked, listener(messages))
    tried = [line for line in messages if "that program does not fail" in line]
    assert len(tried) == 1  # the first one, of dropout
    assert reduction.exit_code == 0
    assert str(reduction.signature.kind) == "mismatch"
    assert reduction.operators[1] == 1
    text = reduction.repro.read_text()
    assert "aten.le.Scalar" in text
    assert "# train.py:13" in text
    assert "torch.compile(model" in text


DECOMPOSES = """
import torch
from torch._inductor.decomposition import decompositions

def hardswish(x):
    return x * (x + 3).clamp(0, 5) / 6

def hardsigmoid_backward(grad, x):
    return torch.where((x > -3) & (x < 3), grad / 5, 0.0)

decompositions[torch.ops.aten.hardswish.default] = hardswish
decompositions[torch.ops.aten.hardsigmoid_backward.default] = hardsigmoid_backward
"""

IS_DECOMPOSED = """
import torch
import decomposes

@torch.compile(dynamic=True, options={{"epilogue_fusion": False}})
def function(x):
    return torch.nn.functional.{operator}(x.tanh() * 4)

if {has_other_graph}:
    torch.compile(lambda: torch.arange(3.0).cos())()
x = torch.linspace(-2, 2, 12).reshape(3, 4).requires_grad_({trains})
result = function(x)
if {trains}:
    result.sum().backward()
raise SystemExit("a result is wrong")
"""


@pytest.mark.parametrize(
    ("operator", "trains", "programs"),
    [
        pytest.param(
            *("hardswish", False),
            {1: "arange(", 2: "torch.nn.functional.hardswish("},
            marks=pytest.mark.every_run,
        ),
        (
            "hardsigmoid",
            True,
            {
                1: "arange(",
                2: "torch.nn.functional.hardsigmoid(",
                3: "hardsigmoid_backward.default(",
            },
        ),
    ],
)
def test_second_run_captures_graphs_before_they_are_decomposed(
    tmp_path: Path,
    messages: list[str],
    operator: str,
    trains: bool,
    programs: dict[int, str],
) -> None:
    asked = capture_decomposed(
        tmp_path, messages, operator, trains=trains, has_other_graph=True
    )
    teller = api.make_teller(listener(messages))
    passes = NotReproducible("any", 1, [], "")
    again = script_capture.capture_again(asked, teller, passes)
    assert again is not None
    assert "Running the script again" in "\n".join(messages)
    capture = tmp_path / "out" / "capture"
    written = {int(p.stem[8:]): p.read_text() for p in capture.glob("program-*.py")}
    assert written.keys() == programs.keys()
    for number, call in programs.items():
        assert call in written[number]
        if number > 1:
            assert re.search(r"s\d+ = 3$", written[number], re.MULTILINE)
    assert again.others == (*programs,)[1:]
    assert again.preload == ("decomposes",)
    second = script_capture.resolve_next_program(again, teller, passes)
    assert second is not None
    assert second.inputs
    assert second.inductor == {"epilogue_fusion": False}
    for each in (again, second):  # the script fails in this run, too
        assert "with its graphs in eager, without Inductor" in each.lacking[-1]
    assert script_capture.capture_again(again, teller, passes) is None


def test_wrong_decomposition_of_gradient_is_found_and_reduced(
    tmp_path: Path, messages: list[str]
) -> None:
    asked = capture_decomposed(tmp_path, messages, "hardsigmoid", trains=True)
    reduction = api.reduce(asked, listener(messages))
    assert reduction.exit_code == 0
    assert str(reduction.signature.kind) == "mismatch"
    assert reduction.operators[1] == 1
    text = reduction.repro.read_text()
    assert "aten.hardsigmoid_backward.default(" in text
    assert "# train.py:7" in text


@pytest.mark.parametrize("has_other_graph", [False, True])
def test_error_in_decomposition_is_found_and_reduced(
    tmp_path: Path, messages: list[str], has_other_graph: bool
) -> None:
    raising = DECOMPOSES.replace("return x *", "raise TypeError('no vectors')\n    x *")
    asked = capture_decomposed(
        *(tmp_path, messages, "hardswish"),
        has_other_graph=has_other_graph,
        decomposes=raising,
    )
    early = "torch.compile failed before it called Inductor" in "\n".join(messages)
    assert early == (not has_other_graph)
    reduction = api.reduce(asked, listener(messages))
    assert reduction.exit_code == 0
    assert str(reduction.signature.kind) == "compile-error"
    assert "no vectors" in str(reduction.signature)
    assert reduction.operators[1] == 1


def capture_decomposed(
    tmp_path: Path,
    messages: list[str],
    operator: str,
    *,
    trains: bool = False,
    has_other_graph: bool = False,
    decomposes: str = DECOMPOSES,
) -> Options:
    (tmp_path / "decomposes.py").write_text(decomposes)
    script = IS_DECOMPOSED.format(
        operator=operator, trains=trains, has_other_graph=has_other_graph
    )
    return capture_script(tmp_path, messages, script)


REFUSES = """
import os
import torch

@torch.library.custom_op("captured::serve", mutates_args=())
def serve(x: torch.Tensor) -> torch.Tensor:
    if os.environ.get("OF_THE_SCRIPT"):
        raise RuntimeError("the queue is full")
    return x.clone()

@serve.register_fake
def _(x):
    return torch.empty_like(x)

from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides

def wrong(x):
    return f"({x} + {x})"

CppOverrides.cos = CppVecOverrides.cos = staticmethod(wrong)
"""

SERVES = """
import os
import torch
import refuses

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.captured.serve(x.cos()) + 1

program = torch.export.export(Model(), (torch.ones(4),))
path = torch._inductor.aoti_compile_and_package(program, package_path="model.pt2")
os.environ["OF_THE_SCRIPT"] = "1"
torch._inductor.aoti_load_package(path)(torch.ones(4))
"""


def test_failure_other_than_that_of_script_is_not_reduced(
    tmp_path: Path, messages: list[str]
) -> None:
    (tmp_path / "refuses.py").write_text(REFUSES)
    (tmp_path / "serve.py").write_text(SERVES)
    options = Options(model=Path(), out=tmp_path / "out", no_explain=True)
    with api.capture(
        options, [sys.executable, "serve.py"], listener(messages)
    ) as asked:
        pass
    assert any("call 1 of program 1 (serve.py:13) raised" in line for line in messages)
    with pytest.raises(FailsDifferently) as caught:
        api.reduce(asked)
    told = str(caught.value)
    assert "in the script: call 1 of program 1 (serve.py:13) raised" in told
    assert "here: mismatch in compare" in told
    assert "until='mismatch'" in told
    reduction = api.reduce(replace(asked, until="mismatch"))
    assert reduction.operators == (3, 1)
