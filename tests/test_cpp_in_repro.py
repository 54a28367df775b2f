"""Operators in C++ that a script compiles are in its repro as C++, from end to end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.aoti,
    pytest.mark.skipif(
        shutil.which("ninja") is None,
        reason="torch.utils.cpp_extension compiles with ninja, which is not there",
    ),
]

SCRIPT = '''\
import torch
from torch._inductor.lowering import register_lowering
from torch.utils.cpp_extension import load_inline

HEADER = "#include <ATen/ATen.h>\\n#include <torch/library.h>"
SOURCE = """
at::Tensor twice(const at::Tensor& x) { return x + x; }
TORCH_LIBRARY(in_cpp, m) { m.def("twice(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(in_cpp, CPU, m) { m.impl("twice", &twice); }
"""

load_inline(
    name="in_cpp",
    cpp_sources=[HEADER, SOURCE],
    is_python_module=False,
    no_implicit_headers=True,
)


@torch.library.register_fake("in_cpp::twice")
def _(x):
    return torch.empty_like(x)


@register_lowering(torch.ops.in_cpp.twice)
def _(x):
    raise NotImplementedError("planted: twice cannot be lowered")


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.in_cpp.twice(x.relu()) + 1


print("serving")
program = torch.export.export(Model(), (torch.ones(3, 4),))
torch._inductor.aoti_compile_and_package(program, package_path="model.pt2")
'''


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    path = str(Path(__file__).parents[1])
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONPATH": path},
        timeout=1500,
        check=False,
        capture_output=True,
        text=True,
    )


def test_repro_of_a_captured_script_compiles_its_cpp_operator(tmp_path: Path) -> None:
    code, out = tmp_path / "code", tmp_path / "out"
    code.mkdir()
    (code / "serve.py").write_text(SCRIPT)
    options = "--out", str(out), "--no-progress", "--no-explain"
    command = "--capture", "--", sys.executable, "serve.py"
    done = run("-m", "shrinkfx", *options, *command, cwd=code)
    assert done.returncode == 0, done.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert summary["operators"]["after"] == 1
    assert summary["verified"] == {"runs": 3, "failed": 3}
    assert summary["files"] == ["repro.py"], done.stderr
    text = (out / "repro.py").read_text()
    assert "at::Tensor twice(" in text
    assert "load_inline(" in text
    assert "ninja" in text.partition("\nimport torch\n")[0]
    assert "serving" not in text
    assert str(tmp_path) not in text
