"""The cases of ``repros/``: what to expect of each, and with which PyTorch it fails."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
CASES = sorted(path.parent for path in (ROOT / "repros").glob("*/expected.toml"))


def read_expected(case: Path) -> dict[str, Any]:
    """Read what a case says of its failure."""
    return tomllib.loads((case / "expected.toml").read_text())


def fails_with(expected: dict[str, Any], torch: str) -> bool:
    """Say whether a case fails with a version of PyTorch, as its file has it."""
    return SpecifierSet(expected["torch"]).contains(torch, prereleases=True)


def expected_with(expected: dict[str, Any], torch: str) -> dict[str, Any]:
    """Return what a version of PyTorch is expected to do.

    A table ``[since."2.15"]`` replaces keys from that version on.
    """
    since = expected.get("since", {})
    found = {key: value for key, value in expected.items() if key != "since"}
    for version in sorted(since, key=Version):
        if Version(torch) >= Version(version):
            found |= since[version]
    return found


def expected_here(case: Path) -> dict[str, Any]:
    """Read it, and skip the test where the case does not fail with this PyTorch."""
    expected, here = read_expected(case), importlib.metadata.version("torch")
    if not fails_with(expected, here):
        pytest.skip(f"{case.name} fails with torch {expected['torch']}: this is {here}")
    return expected_with(expected, here)
