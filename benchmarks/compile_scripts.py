"""The scripts of ``peers_compile.py``: each calls ``torch.compile``, and fails.

A script is what a user would have: it makes a model, compares it compiled with eager,
and imports ``planted.py`` from its folder if the failure is planted. The plants are
those of ``repros/``, or a fault at the end of a chain of operators in Inductor's graph.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tools import ROOT

from repros.expected import read_expected, with_torch

CRASHING = "crash_null_read"
"""The case of ``repros/`` whose plant makes each ``copysign`` read address 8."""

FAULTS = {
    "compile-error": "raise NotImplementedError('planted: cannot lower this chain')",
    "mismatch": "return lowerings[aten.mul.Tensor](lowered, 1.5)",
    "nan": "return lowerings[aten.mul.Tensor](lowered, float('nan'))",
    "crash": "return lowerings[aten.copysign.Tensor](lowered, lowered)",
}

PLANT = '''
"""Planted: Inductor lowers the end of a chain of operators wrongly."""

from torch import fx, ops
from torch._inductor.graph import GraphLowering
from torch._inductor.lowering import lowerings

aten, prims = ops.aten, ops.prims
CHAIN = ({chain},)


def ends_chain(node):
    """Return whether a node and its first operands are the chain."""
    for target in reversed(CHAIN):
        if not isinstance(node, fx.Node) or node.target is not target:
            return False
        node = node.args[0] if node.args else None
    return True


def with_fault(lower):
    def run_node(self, node):
        lowered = lower(self, node)
        if not ends_chain(node):
            return lowered
        {fault}

    run_node.planted = True
    return run_node


if not hasattr(GraphLowering.run_node, "planted"):
    GraphLowering.run_node = with_fault(GraphLowering.run_node)
'''

SCRIPT = """
import sys

sys.path[:0] = {paths!r}
import torch
from torch.utils._pytree import tree_leaves
{imports}

torch.manual_seed(0)
{model}


def tensors(result):
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]

{step}

compiled = torch.compile(model, dynamic={dynamic})
for inputs in batches:
    torch.testing.assert_close(
        step(compiled, inputs), step(model, inputs), rtol=1e-2, atol=1e-4
    )
"""

REPRO = """
from export import load

case = load({model!r})
model, args, _ = case.make()
kwargs = case.kwargs() if hasattr(case, "kwargs") else {{}}
batches = [args, case.run_args()] if hasattr(case, "run_args") else [args]
"""

SAMPLE = """
from architectures import MODELS

sample = MODELS[{model!r}]()
model, kwargs, batches = sample.module.eval(), sample.arguments, [()]
"""

INFERENCE = """
def step(run, inputs):
    with torch.no_grad():
        return tensors(run(*inputs, **kwargs))
"""

TRAINING = """
def step(run, inputs):
    model.zero_grad()
    results = tensors(run(*inputs, **kwargs))
    sum(r.square().sum() for r in results if r.requires_grad).backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]
"""


@dataclass(frozen=True)
class Script:
    """A failing script.

    Attributes:
        model: a case of ``repros/``, or a model of ``tests/models/``.
        kind: of its failure.
        minimum: operators of the smallest graph of Inductor that fails in this way.
        chain: the operators of a planted chain; without, the plant is the case's.
        training: it calls ``backward``.
        dynamic: the argument of ``torch.compile``.
        says: a pattern for what the failure says, if not that of the case.
    """

    name: str
    model: str
    kind: str
    minimum: int
    chain: tuple[str, ...] = ()
    training: bool = False
    dynamic: bool | None = None
    says: str = ""

    @property
    def case(self) -> dict[str, Any]:
        """The ``expected.toml`` of the case in ``repros/``, if it is one."""
        home = ROOT / "repros" / self.model
        return (
            with_torch(read_expected(home), version("torch")) if home.exists() else {}
        )

    @property
    def message(self) -> str:
        """A pattern for what the failure says."""
        if self.says or not self.chain:
            return self.says or str(self.case["message"])
        return "planted: cannot lower" if self.kind == "compile-error" else ""

    @property
    def planted(self) -> tuple[str, ...]:
        """The modules of the script's folder that plant the fault."""
        if not self.chain:
            return ("planted",) if self.case["preload"] else ()
        return ("planted", "crashing") if self.kind == "crash" else ("planted",)

    def write(self, folder: Path) -> Path:
        """Write the script and what it imports."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.chain:
            fault = FAULTS[self.kind]
            plant = PLANT.format(chain=", ".join(self.chain), fault=fault)
            (folder / "planted.py").write_text(plant.lstrip())
        elif self.planted:
            shutil.copy(ROOT / "repros" / self.model / "planted.py", folder)
        if "crashing" in self.planted:
            crashing = ROOT / "repros" / CRASHING / "planted.py"
            shutil.copy(crashing, folder / "crashing.py")
        path = folder / "script.py"
        path.write_text(self._source().lstrip())
        return path

    def _source(self) -> str:
        model = REPRO if self.case else SAMPLE
        return SCRIPT.format(
            paths=[str(ROOT / "repros"), str(ROOT / "tests" / "models")],
            imports="\n".join(f"import {name}" for name in self.planted),
            model=model.format(model=self.model).strip(),
            step=TRAINING if self.training else INFERENCE,
            dynamic=self.dynamic,
        )


def _of_repro(name: str, kind: str = "", minimum: int = 0, **options: Any) -> Script:
    """Make a script of a case of ``repros/``."""
    expected = with_torch(read_expected(ROOT / "repros" / name), version("torch"))
    least = minimum or expected["max_operators"]
    return Script(name, name, kind or expected["kind"], least, **options)


def _of_model(
    model: str, kind: str, *chain: str, training: bool = False, **options: Any
) -> Script:
    """Make a script of a model with a planted chain, which is its minimum."""
    name = "_".join([model, "training" if training else "inference", kind])
    name = name.replace("-", "_")
    targets = tuple(f"aten.{name}" for name in chain)
    return Script(name, model, kind, len(chain), targets, training, **options)


SCRIPTS = [
    _of_repro("compile_lowering_raises"),
    _of_repro("mismatch_wrong_constant"),
    _of_model(
        "convnext", "compile-error", "convolution_backward.default", training=True
    ),
    _of_repro("assert_roll_bound"),
    _of_repro("crash_null_read"),
    _of_repro("nan_in_one_row"),
    _of_model("gpt2", "compile-error", "ne.Scalar", "cumsum.default"),
    _of_model("bert", "mismatch", "mul.Tensor", "sum.dim_IntList", training=True),
    _of_repro("assert_two_input_sets", dynamic=True),
    _of_model("mamba", "crash", "exp.default", "log1p.default"),
    _of_model("whisper", "compile-error", "unsqueeze.default", "repeat.default"),
    _of_repro("exception_data_dependent"),
    _of_model("vit", "crash", "full.default", "select_scatter.default", training=True),
    _of_repro("compile_missing_symbol"),
    _of_repro("mismatch_two_distant_layers"),
    _of_model("llama", "nan", "mean.dim", "add.Tensor", "rsqrt.default"),
    _of_repro("oom_huge_buffer"),
    _of_repro("mismatch_derived_dim", dynamic=True),
    _of_model("bert", "compile-error", "addmm.default", "tanh.default", dynamic=True),
    _of_repro("mismatch_strided_input"),
    _of_repro("ima_lying_operator", "assert", 1, says="expected size"),
    _of_repro("mismatch_aliased_outputs"),
    _of_repro("mismatch_one_of_many_adds"),
    _of_repro("crash_large_images"),
]
