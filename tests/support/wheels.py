"""Small wheels, and a folder of them that serves pip and uv as an index."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import json
import shutil
import sys
import threading
import zipfile
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

import pytest

from shrinkfx.check.environments import folders

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
    """Make pip and uv find packages in this folder only, with space to install them.

    shrinkfx asks for the space that packages of the usual sizes take.
    """
    settings = folder.parent / "uv.toml"
    settings.write_text(f'no-index = true\nfind-links = ["{folder}"]\n')
    for name, value in {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
        "UV_CONFIG_FILE": str(settings),
        "UV_CACHE_DIR": str(folder.parent / "uv-cache"),
    }.items():
        monkeypatch.setenv(name, value)
    others = ("INDEX_URL", "EXTRA_INDEX_URL", "INDEX", "DEFAULT_INDEX", "FIND_LINKS")
    for name in others:
        monkeypatch.delenv(f"UV_{name}", raising=False)
    monkeypatch.setattr(folders, "free_bytes", lambda: 1 << 40)
    for name in others[:2]:
        monkeypatch.delenv(f"PIP_{name}", raising=False)


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serve wheels, and lists of them in the JSON format of PyPI."""

    def do_GET(self) -> None:
        if not self.path.startswith("/simple/"):
            super().do_GET()
            return
        name = self.path.split("/")[2]
        files = [
            {"filename": p.name, "url": f"/{p.name}", "size": p.stat().st_size}
            | {"hashes": {"sha256": hashlib.sha256(p.read_bytes()).hexdigest()}}
            for p in sorted(Path(self.directory).glob(f"{name}-*.whl"))
        ]
        known = {"meta": {"api-version": "1.1"}, "name": name, "files": files}
        self.send_response(200)
        self.send_header("Content-Type", "application/vnd.pypi.simple.v1+json")
        self.end_headers()
        self.wfile.write(json.dumps(known).encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the wheels of a folder, with their sizes, on this machine."""
    handler = functools.partial(_Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple"
        finally:
            server.shutdown()
            thread.join()


def uv() -> str | None:
    """Find uv on PATH, or in the folder of the interpreter that runs the tests."""
    beside = Path(sys.executable).with_name("uv")
    return shutil.which("uv") or (str(beside) if beside.exists() else None)


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


@pytest.fixture(name="installer_name", params=["pip", "uv"])
def _installer_name(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Make pip or uv the only installer."""
    name: str = request.param
    path = uv()
    if name == "uv" and path is None:
        pytest.skip("uv is not installed: pip install uv")
    on_path(monkeypatch, tmp_path / "bin", [path] if name == "uv" and path else [])
    return name
