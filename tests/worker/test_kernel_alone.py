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

from shrinkfx.worker.explaining.kernel_alone import is_alike
from shrinkfx.worker.explaining.kernel_script import Memory, Script, launching
from shrinkfx.worker.interpreter.launch import Generated

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
    tl.store(y + i, value, i < n)

LIMIT = tl.constexpr(2.0)
"""


def script(folder: Path, n: int, grid: int = 2, past: int = 0) -> Script:
    """Launch it on six elements, saying that there are ``n``."""
    path = folder / "scaled.py"
    path.write_text(KERNEL)
    spec = importlib.util.spec_from_file_location("scaled", path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x, y = torch.linspace(-1, 1, 6 + past)[past:], torch.full((6,), float("nan"))
    arguments = {"x": x, "y": y, "n": n, "block": 4}
    launch = Generated(
        module.scaled, "scaled_0", (x, y, n, grid, 1, 1), arguments, (grid, 1, 1), ["x"]
    )
    return launching(launch, Memory.of_all({"x": x, "y": y}))


def run(folder: Path, written: Script) -> tuple[int, str]:
    """Run it as a stranger would, who has neither a GPU nor shrinkfx."""
    (folder / "kernel.py").write_text(written.text)
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    environment.pop("PYTHONPATH", None)
    command = [sys.executable, "-W", "ignore", "-P", "kernel.py"]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "import shrinkfx" not in written.text
    assert "from shrinkfx" not in written.text
    return done.returncode, f"{done.stdout}\n{done.stderr}"


def test_healthy_kernel_computes_what_it_does_on_a_gpu(tmp_path: Path) -> None:
    code, said = run(tmp_path, script(tmp_path, n=6))
    assert code == 0, said
    assert "scaled_0 runs to its end" in said
    last = 2 * torch.tensor(1.0).tanh().item()
    assert f"{last:.4f}" in said


@pytest.mark.parametrize(
    ("launched", "words"),
    [
        ({"n": 7}, "illegal memory access: out-of-bounds load of 4 bytes through x"),
        ({"n": 6, "grid": 4}, "device-side assert: far out"),
        ({"n": 6, "past": 1}, "misaligned address through x: declared divisible"),
    ],
)
def test_kernel_that_strays_fails_alone(
    tmp_path: Path, launched: dict[str, int], words: str
) -> None:
    code, said = run(tmp_path, script(tmp_path, **launched))
    assert code == 1
    assert words in said
    if words.endswith("through x"):
        assert "element 6 of 6, 1 lanes" in said


def test_arguments_that_share_memory_share_it_in_the_script() -> None:
    whole = torch.arange(8.0)
    held = Memory.of_all({"a": whole[:4], "b": whole[4:], "c": torch.ones(2)})
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
def test_only_what_ends_in_the_same_words_is_alike(
    message: str, code: int, said: str, *, alike: bool
) -> None:
    assert is_alike(message, code, said) is alike
