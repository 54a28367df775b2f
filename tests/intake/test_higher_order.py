"""Higher-order operators, and programs that ``torch.export.save`` refuses: reduced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.aoti

PROGRAMS = Path(__file__).parent / "higher_order" / "with_subgraphs.py"

LEFT = {
    "FlexAttention": "higher_order.flex_attention(",
    "WhileLoop": "higher_order.while_loop(",
    "Scan": "higher_order.scan(",
    "AssociativeScan": "aten.cumprod",
    "Map": "higher_order.map_impl(",
    "Cond": "torch.cond(",
    "InvokeSubgraph": "aten.cum",
    "AutoFunctionalized": "planted.increase",
    "Quantized": "aten.cumprod",
}
"""By program, what the repro calls."""

SHRINKFX = [sys.executable, "-m", "shrinkfx"]


def finish(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SHRINKFX, *command], capture_output=True, text=True, timeout=900, check=False
    )


def check(name: str, out: Path) -> None:
    """Look at what a run of a program has left."""
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    assert summary["status"] == "reduced"
    assert summary["verified"] == {"runs": 3, "failed": 3}
    assert summary["operators"]["after"] <= 3
    assert LEFT[name] in (out / "repro.py").read_text()


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.every_run] * (n == "WhileLoop")) for n in LEFT],
)
def test_higher_order_program_captured_from_script_is_reduced(
    name: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    script = [sys.executable, str(PROGRAMS), name]
    done = finish(["--capture", "--out", str(out), "--", *script])
    assert done.returncode == 0, done.stderr
    check(name, out)
    as_source = "minimal.zip holds its source code and tensors" in done.stderr
    assert (out / "minimal.zip").exists() == as_source
    assert (out / "minimal.pt2").exists() != as_source


COMPILED_BY_DYNAMO = (
    "FlexAttention",
    "WhileLoop",
    "Scan",
    "Map",
    "Cond",
    "Quantized",
    "AutoFunctionalized",
    "AssociativeScan",
)


@pytest.mark.parametrize("name", COMPILED_BY_DYNAMO)
def test_higher_order_program_of_torch_compile_is_reduced(
    name: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    script = [sys.executable, str(PROGRAMS), name, "torch.compile"]
    done = finish(["--capture", "--out", str(out), "--", *script])
    assert done.returncode == 0, done.stderr
    check(name, out)


@pytest.mark.parametrize("name", LEFT)
def test_higher_order_module_is_reduced_by_resume_after_kill(
    name: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, str(PROGRAMS), name, str(out)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        cwd=tmp_path,
    )
    assert process.stderr is not None
    with process:
        said = next((line for line in process.stderr if " -> " in line), None)
        os.killpg(process.pid, signal.SIGKILL)
    assert said
    resumed = finish(["--resume", str(out)])
    assert resumed.returncode == 0, resumed.stderr
    assert "(from the journal)" in resumed.stderr
    check(name, out)
