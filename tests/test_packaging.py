"""What is built here holds every file of shrinkfx, those behind its symlink too."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import shrinkfx

ROOT = Path(__file__).resolve().parents[1]

_BUILD = """
import sys
from setuptools import build_meta
sys.modules["shrinkfx"] = None  # pip builds where none of what it imports is
getattr(build_meta, "build_" + sys.argv[1])(sys.argv[2])
"""


def build(kind: str, source: Path) -> Path:
    """Build what pip would, with the setuptools that is installed."""
    subprocess.run(
        [sys.executable, "-c", _BUILD, kind, "dist"],
        cwd=source,
        check=True,
        capture_output=True,
        timeout=600,
    )
    (built,) = (source / "dist").iterdir()
    return built


@pytest.fixture(name="unpacked", scope="module")
def _unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Go the whole way: a source package, a wheel from that, and its files."""
    folder = tmp_path_factory.mktemp("packaging")
    source, wheel = folder / "source", folder / "wheel"
    source.mkdir()
    for name in ("shrinkfx", "strategies"):
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=without)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    with tarfile.open(build("sdist", source)) as archive:
        archive.extractall(folder / "sdist", filter="data")
    (sdist,) = (folder / "sdist").iterdir()
    with zipfile.ZipFile(build("wheel", sdist)) as archive:
        archive.extractall(wheel)
    return wheel


def files(package: Path) -> set[str]:
    # os.walk follows the symlink to strategies/, which rglob does not.
    found = [
        Path(folder, name).relative_to(package)
        for folder, _, names in os.walk(package, followlinks=True)
        for name in names
    ]
    return {str(path) for path in found if path.parent.name != "__pycache__"}


def test_wheel_holds_every_file_of_the_package(unpacked: Path) -> None:
    expected = files(ROOT / "shrinkfx")
    assert "strategies/operators.py" in expected
    assert files(unpacked / "shrinkfx") == expected


def test_wheel_has_the_version_of_the_package(unpacked: Path) -> None:
    (about,) = unpacked.glob("*.dist-info/METADATA")
    assert f"\nVersion: {shrinkfx.__version__}\n" in about.read_text()


@pytest.mark.parametrize(
    ("option", "answer"),
    [
        ("--list-strategies", "drop_nodes"),
        ("--help", "--until KIND"),
        ("--version", f"shrinkfx {shrinkfx.__version__}\n"),
    ],
)
def test_unpacked_wheel_runs_as_a_module(
    unpacked: Path, tmp_path: Path, option: str, answer: str
) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "shrinkfx", option],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        capture_output=True,
        check=False,
        text=True,
        timeout=600,
    )
    assert answer in said.stdout, said.stderr
