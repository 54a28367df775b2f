"""Programs that hold script objects, from a real failure to a repro."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from shrinkfx.cli import main
from shrinkfx.worker.load import preload

pytestmark = pytest.mark.aoti

PRELOAD = Path(__file__).parent / "worker" / "script_objects.py"

PLANTED = """\
import torch
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import V


def refuse(lower):
    def lower_unless_planted(*args, **kwargs):
        if {name!r} in str(V.graph.current_node.args[0].target):
            raise NotImplementedError("planted: cannot scan that")
        return lower(*args, **kwargs)

    return lower_unless_planted


CUMSUM = torch.ops.aten.cumsum.default
lowerings[CUMSUM] = refuse(lowerings[CUMSUM])
"""


class Net(torch.nn.Module):
    """Sums up what is padded, then what an object has made."""

    def __init__(self) -> None:
        super().__init__()
        self.foo = torch.classes._TorchScriptTesting._Foo(3, 4)
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(self.linear(x).relu(), (1, 1)).cumsum(-1)
        made = torch.ops._TorchScriptTesting.takes_foo(self.foo, padded.sin())
        return self.foo.add_tensor(made.cumsum(-1)).tanh().sum(-1)


@pytest.mark.parametrize(
    ("culprit", "line"),
    [
        ("pad", "script_object("),
        ("foo", "self.foo = script_object([3, 4], '__torch__.torch.classes."),
    ],
    ids=["beside", "needed"],
)
def test_failure_of_a_program_with_a_script_object_is_reduced(
    culprit: str, line: str, tmp_path: Path
) -> None:
    preload([str(PRELOAD)])
    planted = tmp_path / "planted.py"
    planted.write_text(PLANTED.format(name=culprit))
    model, out = tmp_path / "model.pt2", tmp_path / "out"
    torch.export.save(torch.export.export(Net(), (torch.randn(2, 4),)), model)
    preloads = ["--preload", str(PRELOAD), "--preload", str(planted)]
    assert main([str(model), *preloads, "--out", str(out), "--no-progress"]) == 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary["operators"]["after"] == 2
    assert summary["verified"] == {"runs": 3, "failed": 3}
    text = (out / "repro.py").read_text()
    assert (line in text) == (culprit == "foo")
    command = [sys.executable, "-I", str(out / "repro.py")]
    seen = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert seen.returncode == 1
    assert "planted: cannot scan that" in seen.stderr
