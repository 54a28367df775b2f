"""``kernel.py``: a generated kernel that is run by nobody but Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from shrinkfx.protocol.choices import Probe
from shrinkfx.protocol.files import ArtifactFile, KernelAlone
from shrinkfx.worker.explaining.kernel_checks import LARGE
from shrinkfx.worker.explaining.kernel_script import (
    ArgumentMemory,
    has_same_ending,
    keep_failing_kernel,
    write_launch_script,
)
from shrinkfx.worker.interpreter.findings import Fault, KernelFinding, Report
from shrinkfx.worker.interpreter.launch import LAUNCH_OBSERVERS, GeneratedLaunch

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="there is no Triton"
    ),
]

# As Inductor writes it for a kernel of the user's.
KERNEL = """
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import DeviceProperties

@triton_heuristics.user_autotune(
    configs=[],
    inductor_meta={'grid_type': 'FixedGrid', 'kernel_name': 'scaled_0'},
    triton_meta={
        'signature': {'x': '*fp32', 'y': '*fp32', 'n': 'i32', 'block': 'constexpr'},
        'device': DeviceProperties('cuda', 0, multi_processor_count=1, cc=90),
        'constants': {'block': 4},
        'configs': [{(0,): [['tt.divisibility', 16]]}],
    },
    filename=__file__,
    custom_kernel=True,
)
@triton.jit
def scaled(x, y, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.device_assert(i < 12, "far out")
    value = LIMIT * libdevice.tanh(tl.load(x + i, (i < n) and not i < 0))
    value = tl.inline_asm_elementwise(
        'rcp.approx.ftz.f32 $0, $1;', '=f, f', [1 / value],
        dtype=tl.float32, is_pure=True, pack=1)
    tl.store(y + i, value, i < n)

LIMIT = tl.constexpr(2.0)
"""


def launched(folder: Path, n: int, grid: int = 2, past: int = 0) -> GeneratedLaunch:
    """Take its launch on six elements, saying that there are ``n``."""
    path = folder / "scaled.py"
    path.write_text(KERNEL)
    spec = importlib.util.spec_from_file_location("scaled", path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x, y = torch.linspace(-1, 1, 6 + past)[past:], torch.full((6,), float("nan"))
    given = {"x": x, "y": y, "n": n, "block": 4}
    passed = x, y, n, grid, 1, 1
    return GeneratedLaunch(
        module.scaled, "scaled_0", passed, given, (grid, 1, 1), ["x"]
    )


def run_kept_kernel(
    folder: Path, launch: GeneratedLaunch, error: Exception | None
) -> KernelAlone | None:
    """Launch it in a program that ends so; return how ``kernel.py`` has ended."""
    try:
        with keep_failing_kernel(folder, ["scaled_0"]):
            for watch in LAUNCH_OBSERVERS:
                watch(launch)
            if error is not None:
                raise error
    except Report:
        pass
    assert not LAUNCH_OBSERVERS
    path = folder / ArtifactFile.KERNEL_RUN
    return KernelAlone.from_line(path.read_text()) if path.exists() else None


def found(fault: Fault, **facts: Any) -> Report:
    """Raise what the interpreter has found in a kernel."""
    facts = {"kernel": "scaled_0", "argument": "x", "item_bytes": 4, **facts}
    return Report([KernelFinding(Probe.REAL, fault, **facts)])


def test_kernel_script_computes_the_gpu_result_of_a_healthy_kernel(
    tmp_path: Path,
) -> None:
    assert run_kept_kernel(tmp_path, launched(tmp_path, n=6), None) == KernelAlone(
        "scaled_0",
        "TRITON_INTERPRET=1 python kernel.py",
        alike=True,
        output="scaled_0 runs to its end",
    )
    text = (tmp_path / ArtifactFile.KERNEL).read_text()
    assert "import shrinkfx" not in text
    assert "from shrinkfx" not in text
    (tmp_path / "more.py").write_text(f"{text}\nassert arguments['y'][5] > 1.523\n")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", str(tmp_path / "more.py")]
    assert subprocess.run(command, env=environment, check=False).returncode == 0


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        (
            {"n": 7},
            found(Fault.LOAD, offset=6, elements=6),
            "out-of-bounds load of 4 bytes through x: element 6 of 6, 1 lanes",
        ),
        (
            {"n": 6, "grid": 4},
            found(Fault.ASSERT, message="far out"),
            "device-side assert: far out",
        ),
        (
            {"n": 6, "past": 1},
            found(Fault.MISALIGNED, message="declared divisible by 16, is 4 past"),
            "misaligned address through x: declared divisible by 16",
        ),
    ],
)
def test_kernel_script_reproduces_the_interpreter_finding(
    tmp_path: Path, how: dict[str, int], error: Report, words: str
) -> None:
    told = run_kept_kernel(tmp_path, launched(tmp_path, **how), error)
    assert told is not None
    assert words in told.output
    assert told.alike


def test_no_script_is_written_for_a_finding_in_another_kernel(tmp_path: Path) -> None:
    launch = launched(tmp_path, n=6)
    assert (
        run_kept_kernel(tmp_path, launch, found(Fault.LOAD, kernel="another_1")) is None
    )
    assert run_kept_kernel(tmp_path, launch, found(Fault.LAYOUT, kernel="")) is None
    assert not (tmp_path / ArtifactFile.KERNEL).exists()


def test_kernel_script_replaces_large_arguments_by_zeros(tmp_path: Path) -> None:
    launch = launched(tmp_path, n=6)
    large = torch.zeros(LARGE // 4)
    held = ArgumentMemory.copy_arguments({"x": large[2:6], "y": torch.ones(2)})
    text = write_launch_script(launch, held).text
    assert f"'memory_of_x': torch.zeros({LARGE // 4}, dtype=torch.float32)" in text
    assert "Zeros stand for what was in memory_of_x" in text


def test_kernel_script_keeps_memory_shared_by_arguments() -> None:
    whole = torch.arange(8.0)
    held = ArgumentMemory.copy_arguments(
        {"a": whole[:4], "b": whole[4:], "c": torch.ones(2)}
    )
    assert [memory.name for memory in held.values()] == [
        *("memory_of_a", "memory_of_a", "memory_of_c")
    ]
    assert str(held["b"]) == "part('memory_of_a', torch.float32, (4,), (1,), 4)"


FOUND = (
    "interpreter: illegal memory access: out-of-bounds load of 4 bytes in k_0 (user "
    "kernel k) through x (input 0): element 6 of 6 [program (1, 0, 0), 1 lane] at `t`"
)


@pytest.mark.parametrize(
    ("message", "code", "said", "alike"),
    [
        (FOUND, 1, "out-of-bounds load of 4 bytes through x: element 6 of 6", True),
        (FOUND, 1, "out-of-bounds load of 4 bytes through y: element 6 of 6", False),
        (FOUND, 1, "NotImplementedError", False),
        (FOUND, 0, "", False),
        ("", 0, "", True),
        ("", 1, "NotImplementedError", False),
        ("something that nobody knows", 1, "something that nobody knows", False),
    ],
)
def test_endings_are_alike_only_with_the_same_finding(
    message: str, code: int, said: str, *, alike: bool
) -> None:
    assert has_same_ending(message, code, said) is alike
