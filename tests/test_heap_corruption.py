"""A repro of a heap corruption fails in every process, or says how often it does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shrinkfx.failure.readers.script import CANNOT_TELL

pytestmark = pytest.mark.aoti

PLANTED = '''
"""Make the C++ of copysign write before a heap block, in some calls or processes."""

from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides

OVERRUN = (
    "([&] {{ auto block = static_cast<volatile char*>(std::malloc(40));"
    " for (int i = 1; CHANCE && i <= 8; ++i) block[-i] = 0x41;"
    " std::free(const_cast<char*>(block));"
    " return std::copysign({magnitude}, {sign}); }}())"
)


def print_copysign(magnitude: object, sign: object) -> str:
    return OVERRUN.format(magnitude=magnitude, sign=sign)


CppOverrides.copysign = staticmethod(print_copysign)
CppVecOverrides.copysign = staticmethod(print_copysign)
'''

CHANCES = {
    "calls": "((__builtin_ia32_rdtsc() >> 6) & 1)",
    "processes": "((reinterpret_cast<uintptr_t>(block) >> 12) & 1)",
}
"""The clock is another in each call; the address of a block in each new process, and
the same in all forks of one."""

MODEL = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        y = torch.copysign(x.relu()[:1], x[:1])
        return y.tanh() + 1


program = torch.export.export(Model(), (torch.randn(2, 1),))
torch.export.save(program, "model.pt2")
"""


def python(
    *words: str, folder: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", *words],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )


@pytest.mark.parametrize("where", CHANCES)
def test_repro_of_heap_corruption_always_fails_or_is_not_verified(
    tmp_path: Path, where: str
) -> None:
    (tmp_path / "planted.py").write_text(PLANTED.replace("CHANCE", CHANCES[where]))
    assert python("-c", MODEL, folder=tmp_path).returncode == 0
    command = ["-m", "shrinkfx", "model.pt2", "--until", "crash", "--no-progress"]
    command += ["--preload", "planted.py", "--no-explain", "--guard-pages", "off"]
    for number in range(10):  # all forks of a server may pass
        out = tmp_path / f"out{number}"
        ran = python(*command, "--out", str(out), folder=tmp_path)
        if ran.returncode != 3:
            break
    assert ran.returncode in (0, 5), ran.stderr
    verified = json.loads((out / "summary.json").read_text())["verified"]
    assert verified["runs"] == 10
    script = (out / "repro.py").read_text()
    assert f"# Fails:   in {verified['failed']} of 10 runs, each in a" in script
    is_sure = verified["failed"] == 10
    assert is_sure == (ran.returncode == 0)
    for number in range(4):
        cache = str(tmp_path / f"cache{number}")
        again = python(
            str(out / "repro.py"), folder=tmp_path, TORCHINDUCTOR_CACHE_DIR=cache
        )
        if is_sure or again.returncode != CANNOT_TELL:
            assert re.search(r"free\(\)|corrupt|munmap_chunk", again.stderr), (
                again.stderr
            )
            assert again.returncode != 0
        else:
            assert "need not show" in again.stdout
