"""Small wheels, and a folder of them that serves pip and uv as an index."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterable
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

import pytest

from shrinkfx.check import environments

ANY = "py3-none-any"

VERSIONS = ["2.6.0", "2.13.0", "2.14.0", "2.14.1", "2.15.0"]
"""Versions of packages named torch, in tests of environments."""

COMPILERS = [*filter(None, map(shutil.which, ("g++", "as", "ld", "env")))]
"""What a worker and the run of a repro find on PATH, without an installer."""

_WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n"
_METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


def write_wheel(
    folder: Path, name: str, version: str, text: str, tag: str = ANY
) -> Path:
    """Write a wheel with one module.

    Args:
        text: the text of the module.
        tag: the Pythons and platforms of the wheel.
    """
    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": text,
        f"{about}/METADATA": _METADATA.format(name=name, version=version),
        f"{about}/WHEEL": _WHEEL.format(tag=tag),
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{about}/RECORD"))
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for place, content in {**files, f"{about}/RECORD": record}.items():
            archive.writestr(place, content)
    return path


def write_torch(folder: Path, *versions: str, tag: str = ANY) -> None:
    """Write wheels of packages named torch that have only a version."""
    for version in versions:
        write_wheel(folder, "torch", version, f"__version__ = {version!r}\n", tag)


def write_others(folder: Path) -> None:
    """Write wheels of the other packages of an environment."""
    for name in ("numpy", "setuptools"):
        write_wheel(folder, name, "80.0.0", "")


def use_index(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make pip find packages in this folder only, with space to install them.

    shrinkfx asks for the space that packages of the usual sizes take.
    """
    for name, value in {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(environments, "free_bytes", lambda: 1 << 40)
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)


def on_path(
    monkeypatch: pytest.MonkeyPatch, folder: Path, programs: Iterable[str]
) -> None:
    """Make PATH a folder that has only links to these programs."""
    folder.mkdir()
    for program in programs:
        (folder / Path(program).name).symlink_to(program)
    monkeypatch.setenv("PATH", str(folder))


@pytest.fixture(name="index")
def _index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an index of packages named torch; one is for Python 3.9 only."""
    folder = tmp_path / "index"
    folder.mkdir()
    write_torch(folder, "2.5.1", *VERSIONS)
    write_torch(folder, "2.8.0", tag="cp39-none-any")
    write_others(folder)
    use_index(monkeypatch, folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@pytest.fixture(name="pip_alone")
def _pip_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path(monkeypatch, tmp_path / "no-uv", COMPILERS)


@pytest.fixture(name="no_installer")
def _no_installer(pip_alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    find = PathFinder.find_spec

    def find_all_but_pip(name: str, *more: Any) -> ModuleSpec | None:
        return None if name == "pip" else find(name, *more)

    monkeypatch.setattr(PathFinder, "find_spec", find_all_but_pip)
