"""Small native libraries and the cache of builds."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shrinkfx.worker import build_cache, native

# --- native libraries


FULL = os.strerror(errno.ENOSPC)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(build_cache, "folder", lambda: tmp_path / "cache")
    source = tmp_path / "ours.cpp"
    source.touch()
    return source


def test_cached_library_on_a_read_only_disk_is_used(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text('#!/bin/sh\ntouch "$3"\n')  # g++ SOURCE -o LIBRARY -ldl
    compiler.chmod(0o755)

    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    built = native.build(source, (), compiler=str(compiler))
    monkeypatch.setattr(os, "utime", refuse)
    assert native.build(source, (), compiler=str(compiler)) == built


def test_linker_error_on_a_full_disk_is_reported_as_a_full_cache(
    tmp_path: Path, source: Path
) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text(
        f"#!/bin/sh\necho 'ld: final link failed: {FULL}' >&2\nexit 1\n"
    )
    compiler.chmod(0o755)
    with pytest.raises(native.CannotBuild, match="disk of the cache is full") as caught:
        native.build(source, (), compiler=str(compiler))
    assert FULL not in str(caught.value)


def test_cache_folder_on_a_full_disk_is_reported_as_a_full_cache(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise OSError(errno.ENOSPC, FULL, "cache")

    monkeypatch.setattr(build_cache, "forget_old", refuse)
    with pytest.raises(native.CannotBuild, match="disk of the cache is full") as caught:
        native.build(source, (), compiler="/bin/true")
    assert FULL not in str(caught.value)


REGISTERED = """
import torch
torch.version.cuda = None
from shrinkfx.worker.interpreter.fake_cuda import register_guard
register_guard()
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_cuda_guard_is_built_and_loaded(tmp_path: Path) -> None:
    variables = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", REGISTERED]
    subprocess.run(command, env=variables, check=True, timeout=300)
    assert list(tmp_path.rglob("cuda_guard-*.so"))


def test_compiler_in_a_command_with_arguments_is_found() -> None:
    path = shutil.which("g++")
    assert native.find_compiler("env g++ -m64") == native.find_compiler("g++") == path
    assert native.find_compiler("env no-such-compiler") is None


# --- cache


DAY_S = 86_400
MIB = 1 << 20


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (build_cache.folder() / "aoti-runtime").mkdir(parents=True)
    return build_cache.folder()


def put(path: Path, mib: int, days: float) -> Path:
    """Make a file that was last used some days ago, without filling the disk."""
    with path.open("wb") as file:
        file.truncate(mib * MIB)
    used = time.time() - days * DAY_S
    os.utime(path, (used, used))
    return path


def test_cache_files_unused_for_two_months_are_deleted(folder: Path) -> None:
    old = put(folder / "guard_pages-1.so", 1, 61)
    older = put(folder / "aoti-runtime" / "a.o", 1, 90)
    new = put(folder / "aoti-runtime" / "b.o", 1, 59)
    build_cache.forget_old()
    assert [path.exists() for path in (old, older, new)] == [False, False, True]


def test_least_recently_used_files_of_an_oversized_cache_are_deleted(
    folder: Path,
) -> None:
    files = [put(folder / f"{n}.o", 200, 10 - n) for n in range(4)]
    build_cache.note_use(files[0])
    build_cache.forget_old()
    assert [path.exists() for path in files] == [True, False, False, True]
