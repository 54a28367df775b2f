"""Small libraries of ours, where the cache cannot take them."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from shrinkfx.worker import build_cache, native

FULL = os.strerror(errno.ENOSPC)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_cache, "folder", lambda: tmp_path / "cache")


@pytest.fixture
def source(tmp_path: Path) -> Path:
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


def test_compiler_in_a_command_with_arguments_is_found() -> None:
    path = shutil.which("g++")
    assert native.find_compiler("env g++ -m64") == native.find_compiler("g++") == path
    assert native.find_compiler("env no-such-compiler") is None
