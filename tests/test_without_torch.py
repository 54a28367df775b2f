"""``--without-torch`` leaves out what imports torch, and finds what wants it anyway."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent

HELPER = "import torch.nn\n"
FILES = {
    "test_imports.py": "import helper\n\ndef test_never_runs(): raise SystemExit\n",
    "test_inside.py": """
import pytest

def test_wants_it():
    import torch

@pytest.mark.torch
def test_is_marked():
    import torch
""",
    "test_below.py": """
import subprocess, sys

def run(text):
    return subprocess.run([sys.executable, "-I", "-c", text], env={}).returncode

def test_starts_one():
    assert run("import torch") == 1

def test_comes_after():
    assert run("import pytest, shrinkfx") == 0
""",
}


def test_without_torch_option_blocks_the_import_of_torch(tmp_path: Path) -> None:
    for name, text in {"helper.py": HELPER, **FILES}.items():
        (tmp_path / name).write_text(text)
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
    *_, last = ran.stdout.splitlines()
    counts = "1 failed, 2 passed, 1 skipped, 1 deselected, 1 error"
    assert counts in last, ran.stdout
    for said in (
        ": imports torch",
        "ImportError: torch is kept out by --without-torch: mark this test",
        "test_starts_one starts what wants torch",
    ):
        assert said in ran.stdout
