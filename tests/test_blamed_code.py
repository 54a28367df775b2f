"""A package that changes the compiler twice, one of which a failure needs: for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.aoti

FILES = {
    "tuning/__init__.py": "from . import decomps\n",
    "tuning/decomps.py": """\
import torch
from torch._inductor.decomposition import decompositions

aten = torch.ops.aten


def softmax(x, dim, half_to_float):
    e = torch.exp(x - x.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)


def install():
    decompositions[aten._softmax.default] = softmax


install()
""",
    "tuning/passes.py": """\
import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

aten = torch.ops.aten


class NoRelus(CustomGraphPass):
    def __call__(self, graph):
        for node in graph.nodes:
            if node.target is aten.relu.default:
                raise ValueError("planted: a relu")

    def uuid(self):
        return get_hash_for_files((__file__,))
""",
    "serve.py": """\
import sys
import shrinkfx
import torch
from tuning.passes import NoRelus


class Net(torch.nn.Module):
    def forward(self, x):
        return x.relu() + x.softmax(0) * 2


torch._inductor.config.post_grad_custom_post_pass = NoRelus()
shrinkfx.minify(Net(), args=(torch.ones(4, 8),), out=sys.argv[1], quiet=True)
""",
}


def test_repro_defines_only_the_needed_compiler_code(tmp_path: Path) -> None:
    code, out = tmp_path / "code", tmp_path / "out"
    for name, text in FILES.items():
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(text)
    paths = os.pathsep.join([str(code), str(Path(__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "serve.py", str(out)],
        cwd=code,
        env={**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONPATH": paths},
        timeout=900,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    known = json.loads((out / "summary.json").read_text())["in_compiler"]
    assert known == {
        "places": ["torch._inductor.config post_grad_custom_post_pass"],
        "sources": ["tuning.passes"],
        "only_defined": True,
        "fails_without": False,
    }
    repro = (out / "repro.py").read_text()
    code_of_it = repro.partition("\nimport torch")[2]
    assert "softmax" not in code_of_it
    assert "sys.path" not in code_of_it
    assert "tuning" not in code_of_it
    assert code_of_it.count("class NoRelus") == 1
    title, _, rest = (out / "ISSUE.md").read_text().partition("\n")
    own = "with post_grad_custom_post_pass from tuning.passes"
    assert title.startswith(f"# compile error in aten.relu {own}: ")
    assert "preload_settings" not in rest
