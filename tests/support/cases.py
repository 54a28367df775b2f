"""The cases of ``repros/``, and their expected failures with this PyTorch."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest

from repros.expected import fails_with, read_expected, with_torch

ROOT = Path(__file__).resolve().parents[2]
CASES = sorted(path.parent for path in (ROOT / "repros").glob("*/expected.toml"))


def expected_here(case: Path) -> dict[str, Any]:
    """Read the failure; skip the test if the case does not fail with this PyTorch."""
    expected, here = read_expected(case), importlib.metadata.version("torch")
    if not fails_with(expected, here):
        pytest.skip(f"{case.name} fails with torch {expected['torch']}: this is {here}")
    return with_torch(expected, here)
