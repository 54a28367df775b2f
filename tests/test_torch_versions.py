"""The tested versions of PyTorch, and the files that repeat them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from shrinkfx.versions import (
    OLDEST,
    RANGE,
    TESTED,
    how_tested,
    why_too_old,
    why_untested,
)

ROOT = Path(__file__).resolve().parents[1]


def test_package_requires_the_oldest_version_and_has_no_upper_bound() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert f"torch>={OLDEST}" in told["project"]["dependencies"]


def test_make_test_versions_and_its_table_list_the_tested_versions() -> None:
    table = (ROOT / "docs" / "versions.md").read_text()
    rows = re.findall(r"^\| (2\.\d+)\.\d+ \|", table, re.MULTILINE)
    pairs = (ROOT / "tests" / "try_versions.py").read_text()
    tried = re.findall(r'Pair\("(2\.\d+)\.\d+"', pairs)
    assert (*rows,) == (*tried,) == TESTED


@pytest.mark.parametrize("page", ["README.md", "docs/failures.md", "docs/versions.md"])
def test_page_names_the_oldest_version_and_no_other_range(page: str) -> None:
    text = (ROOT / page).read_text()
    assert {*re.findall(r"\b2\.\d\d to 2\.\d\d\b", text)} <= {RANGE}
    assert re.search(rf"\b{re.escape(OLDEST)}\b", text)


@pytest.mark.parametrize("version", ["2.10.1", "2.5.0+cu121", "1.13.1"])
def test_version_below_the_oldest_is_too_old(version: str) -> None:
    assert why_too_old(version).startswith(f"torch {version} is older than {OLDEST}")


@pytest.mark.parametrize(
    "version", ["2.12.1", "2.16.0", "2.17.0.dev20261101+cpu", "3.0.0"]
)
def test_untested_version_has_a_warning(version: str) -> None:
    assert f"not with {version}. If something fails, run" in why_untested(version)
    assert why_too_old(version) == ""
    assert how_tested(version).startswith("not tested")


@pytest.mark.parametrize(
    "version", [*(f"{t}.1+cpu" for t in (OLDEST, *TESTED)), "unknown", ""]
)
def test_tested_and_unknown_versions_have_no_warning(
    version: str,
) -> None:
    assert why_untested(version) == why_too_old(version) == ""


def test_description_distinguishes_tested_versions() -> None:
    told = {version: how_tested(version) for version in ("2.13.0", "2.12.1", "2.11.0")}
    assert told["2.13.0"] == "tested"
    assert told["2.12.1"] == f"not tested; tested: {RANGE}"
    assert told["2.11.0"].startswith("tested with CUDA programs only")
