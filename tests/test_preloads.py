"""A preload that needs what lies beside it, from a real failure to a stranger."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.aoti, pytest.mark.every_run]

OPS = """\
import ctypes
import logging

import torch
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import V

from . import shapes
from .scale import SCALE

logging.getLogger(__name__).warning("my_ops is there")
LIBRARY = ctypes.CDLL(__file__.replace("ops.py", "build/one.so"))


@torch.library.custom_op("my_ops::mix", mutates_args=())
def mix(x: torch.Tensor) -> torch.Tensor:
    return x * SCALE + LIBRARY.one()


@mix.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("my_ops::gone", mutates_args=())
def gone(x: torch.Tensor) -> torch.Tensor:
    return shapes.same(x)


@gone.register_fake
def _(x):
    return torch.empty_like(x)


def refuse(lower):
    def lower_unless_mixed(*args):
        if V.graph.current_node.args[0].target is torch.ops.my_ops.mix.default:
            raise NotImplementedError("planted: cannot lower what is mixed")
        return lower(*args)

    return lower_unless_mixed


COSH = torch.ops.aten.cosh.default
lowerings[COSH] = refuse(lowerings[COSH])
"""

EXTRA = """\
import torch
import helper_of_extra


@torch.library.custom_op("extra::gone", mutates_args=())
def gone(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


gone.register_fake(torch.empty_like)
"""

MAKE = """\
import sys
import torch
import extra
import my_ops.ops


class Net(torch.nn.Module):
    def forward(self, x):
        x = torch.ops.my_ops.gone(x.relu())
        x = torch.ops.extra.gone(x + 1)
        return torch.ops.my_ops.mix(x).cosh()


torch.export.save(torch.export.export(Net(), (torch.ones(3, 4),)), sys.argv[1])
"""

FILES = {
    "my_ops/__init__.py": "",
    "my_ops/ops.py": OPS,
    "my_ops/shapes.py": "def same(x): return x.clone()\n",
    "my_ops/scale.py": "from .numbers import TWO as SCALE\n",
    "my_ops/numbers.py": "TWO = 2.0\n",
    "my_ops/build/one.c": "int one(void) { return 1; }\n",
    "extra.py": EXTRA,
    "helper_of_extra.py": "",
    "make.py": MAKE,
}


def run(*command: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", **variables}
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        timeout=900,
        check=False,
        capture_output=True,
        text=True,
    )


def test_repro_runs_without_the_original_preload_files(tmp_path: Path) -> None:
    code, out = tmp_path / "code", tmp_path / "out"
    for name, text in FILES.items():
        path = code / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    build = code / "my_ops" / "build"
    run("gcc", "-shared", "-fPIC", "one.c", "-o", "one.so", cwd=build)
    model = str(tmp_path / "model.pt2")
    run(sys.executable, "make.py", model, cwd=code)
    done = run(
        *(sys.executable, "-m", "shrinkfx", model, "--out", str(out), "--no-progress"),
        *("--preload", "my_ops.ops", "--preload", "extra.py"),
        cwd=code,
        PYTHONPATH=os.pathsep.join([str(code), str(Path(__file__).parents[1])]),
        TORCH_LOGS="output_code",
        TORCHINDUCTOR_CPP_MAX_HORIZONTAL_FUSION_SIZE="32",
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads((out / "summary.json").read_text())
    assert summary["operators"]["after"] == 2
    assert summary["verified"] == {"runs": 3, "failed": 3}
    assert summary["files"] == ["repro.py", "one.so"]
    assert summary["modules"] == [
        *("my_ops", "my_ops.numbers", "my_ops.ops", "my_ops.scale")
    ]
    assert summary["preloads"] == {"my_ops.ops": "cut", "extra.py": "not needed"}
    assert summary["environment"] == {
        "set": {},
        "not_needed": ["TORCHINDUCTOR_CPP_MAX_HORIZONTAL_FUSION_SIZE"],
    }
    text = (out / "repro.py").read_text()
    for word in ("::gone", "is there", "environ", "shapes", "extra", str(tmp_path)):
        assert word not in text.partition("\nimport torch\n")[2], word

    stranger = tmp_path / "stranger"
    stranger.mkdir()
    for name in summary["files"]:
        shutil.copy(out / name, stranger)
    seen = run(sys.executable, "-I", str(stranger / "repro.py"), cwd=Path("/"))
    assert seen.returncode == 1
    assert "planted: cannot lower what is mixed" in seen.stderr
