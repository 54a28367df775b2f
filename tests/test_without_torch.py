"""``--without-torch`` leaves out what imports torch, and finds what wants it anyway."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

IMPORTS = "import helper\n\ndef test_never_runs(): raise SystemExit\n"
HELPER = "import torch.nn\n"
INSIDE = "def test_imports():\n    import torch\n"
BELOW = """
import subprocess, sys

def test_starts_one():
    subprocess.run([sys.executable, "-I", "-c", "import torch"], env={})

def test_comes_after():
    subprocess.run([sys.executable, "-I", "-c", "import pytest, shrinkfx"], check=True)
"""
MARKED = f"import pytest\n\n@pytest.mark.torch\n{INSIDE}"


@pytest.mark.parametrize(
    ("text", "outcome", "said"),
    [
        (IMPORTS, {"skipped": 1}, "imports torch"),
        (MARKED, {"deselected": 1}, ""),
        (INSIDE, {"failed": 1}, "mark this test with pytest.mark.torch"),
        (BELOW, {"passed": 2, "error": 1}, "test_starts_one starts what wants torch"),
    ],
    ids=["imports", "marked", "inside", "below"],
)
def test_torch_is_kept_out(
    tmp_path: Path, text: str, outcome: dict[str, int], said: str
) -> None:
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "test_it.py").write_text(text)
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "support.without_torch"),
            *("--without-torch", "-p", "no:cacheprovider", "-rs", "-W", "ignore"),
            *("--rootdir", str(tmp_path), str(tmp_path)),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        check=False,
        text=True,
        timeout=600,
    )
    last = ran.stdout.splitlines()[-1]
    assert all(f"{count} {what}" in last for what, count in outcome.items()), ran.stdout
    assert said in ran.stdout
