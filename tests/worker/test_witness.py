"""What a preload uses is seen, however it gets at it."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shrinkfx.program.uninstalled_files import UninstalledFiles
from shrinkfx.worker.preloads.files_used import FileRecorder, is_local

USER = """\
import ctypes
import json
import importlib
from pathlib import Path

HERE = Path(__file__).parent
helper = importlib.import_module("wit" + "ness_helper")
TABLE = json.loads((HERE / "table.json").read_text())
(HERE / "written.txt").write_text("by the preload")

def find():
    return next(HERE.glob("build/*.so"))

LIBRARY = ctypes.CDLL(
    str(find())
)
"""


@pytest.fixture(name="home")
def _home(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "witness_user.py").write_text(USER)
    (tmp_path / "witness_helper.py").write_text("X = 1\n")
    (tmp_path / "table.json").write_text("[1]")
    (tmp_path / "build").mkdir()
    source = tmp_path / "build" / "one.c"
    source.write_text("int one(void) { return 1; }\n")
    library = str(tmp_path / "build" / "one.so")
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", library], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        yield tmp_path
    for name in ("witness_user", "witness_helper"):
        sys.modules.pop(name, None)


def test_file_recorder_collects_modules_libraries_and_files(home: Path) -> None:
    with FileRecorder() as witness:
        importlib.import_module("witness_user")
    (home / "later.txt").write_text("")
    (home / "later.txt").read_text()
    seen = witness.collect_files()
    names = ("witness_helper", "witness_user")
    assert seen.modules == {name: str(home / f"{name}.py") for name in names}
    assert list(seen.libraries) == [str(home / "build" / "one.so")]
    assert list(seen.files) == [str(home / "table.json")]
    (loading,) = seen.loadings
    assert loading.file == str(home / "witness_user.py")
    assert loading.span == (14, 10, 16, 1)
    assert loading.library == str(home / "build" / "one.so")
    assert not loading.is_module
    assert (str(home / "witness_user.py"), 14) in seen.callers
    assert UninstalledFiles.from_json(seen.to_json()).loadings == tuple(seen.loadings)


def test_installed_file_is_not_local(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.touch()
    assert is_local(str(own))
    assert not is_local(str(tmp_path / "missing.py"))
    for module in (pytest, subprocess, sys.modules["shrinkfx"]):
        assert module.__file__
        assert not is_local(module.__file__)
    copy = tmp_path / "site-packages" / "theirs.py"
    copy.parent.mkdir()
    copy.touch()
    assert not is_local(str(copy))
