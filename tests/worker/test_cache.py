"""What is kept between runs, and for how long."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from shrinkfx.worker import build_cache

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
