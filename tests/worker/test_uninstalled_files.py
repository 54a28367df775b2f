"""What preloads change and which files they use."""

from __future__ import annotations

import functools
import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx
from torch._inductor.codegen.cpp import CppOverrides
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.lowering import lowerings, make_pointwise
from torch._inductor.pattern_matcher import PatternMatcherPass
from torch._inductor.virtualized import ops

from shrinkfx.program.uninstalled_files import UninstalledFiles
from shrinkfx.worker.preloads.alone import Changes, Snapshot
from shrinkfx.worker.preloads.files_used import FileRecorder, is_local

# --- changes


aten = torch.ops.aten


def _printed(x: object) -> str:
    return str(x)


@functools.wraps(CppOverrides.erf)
def _wrapped(x: object) -> object:
    """Act around a function of PyTorch's, whose module it is said to be in."""
    return x


class _Pass(CustomGraphPass):
    """A pass of somebody's own."""

    def __call__(self, graph: fx.Graph) -> None:
        pass

    def uuid(self) -> str:
        return "none"


def test_snapshot_finds_added_changed_and_removed_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = Snapshot()
    assert before.changes({}) == Changes({}, ())
    monkeypatch.setitem(lowerings, aten.cosh.default, lambda x: x)
    monkeypatch.delitem(lowerings, aten.sinh.default)
    monkeypatch.setattr(CppOverrides, "erfc", staticmethod(_printed))
    monkeypatch.setenv("TORCHINDUCTOR_FREEZING", "1")
    with torch._inductor.config.patch(epilogue_fusion=False):
        found = before.changes({"mylib::mix": "kernels"})
    changes, own = dict(found.places), [name.rpartition(" ")[2] for name in found.own]
    assert own[:2] == ["erfc", "aten.cosh.default"]
    assert [name.partition(": ")[2] for name in found.own[2:]] == [
        "aten.sinh.default (removed)"
    ]
    for place in ("lowerings: aten.cosh.default", "aten.sinh.default (removed)"):
        (name,) = (each for each in changes if each.endswith(place))
        assert (changes.pop(name) == "is gone") == ("sinh" in place)
    assert {name.rpartition(" ")[2] for name in changes} == {
        *("mylib::mix", "erfc", "epilogue_fusion", "TORCHINDUCTOR_FREEZING")
    }
    first = dict(changes)
    monkeypatch.setattr(CppOverrides, "erfc", staticmethod(lambda x: str(x)))
    with torch._inductor.config.patch(epilogue_fusion=False):
        assert before.changes({"mylib::mix": "kernels"}).places != first


@pytest.mark.parametrize(
    "lowering",
    [lowerings[aten.sin.default], make_pointwise(lambda x: ops.abs(x))],
    ids=["of another operator", "with a function of the user"],
)
def test_user_may_put_code_of_pytorch_into_the_compiler(
    lowering: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Snapshot()
    monkeypatch.setitem(lowerings, aten.atan.default, lowering)
    (place,) = before.changes({}).own
    assert place.endswith(" lowerings: aten.atan.default")


@pytest.mark.parametrize(
    ("value", "is_own"),
    [
        *((_Pass(), True), ([_Pass()], True), (_wrapped, True)),
        *((CppOverrides.erf, False), (None, False)),
    ],
)
def test_user_code_is_distinguished_from_pytorch_code(
    value: object, is_own: bool
) -> None:
    before = Snapshot()
    option = "post_grad_custom_post_pass"
    with torch._inductor.config.patch({option: value}):
        own = before.changes({}).own
    assert own == ((f"torch._inductor.config {option}",) if is_own else ())


_WRITTEN = """
class Drop:
    def __call__(self, graph):
        graph.erase_node({})
"""


def test_object_of_a_user_class_is_identified_by_code_not_by_module() -> None:
    """In a repro the same class is of another module than with its maker."""

    def describe_change(module: str, what: str) -> str:
        names: dict[str, object] = {"__name__": module}
        exec(_WRITTEN.format(what), names)
        made = names["Drop"]
        assert isinstance(made, type)
        with torch._inductor.config.patch(post_grad_custom_post_pass=made()):
            (change,) = before.changes({}).places.values()
        return change

    before = Snapshot()
    assert describe_change("my.passes", "1") == describe_change("__main__", "1")
    assert describe_change("my.passes", "1") != describe_change("my.passes", "2")


_FUSES = """
class Fuse:
    def __call__(self, graph):
        TABLE.apply(graph)

def fuse(graph):
    TABLE.apply(graph)
"""


@pytest.mark.parametrize("custom_pass", ["Fuse()", "fuse"])
def test_custom_pass_is_described_with_the_number_of_its_patterns(
    custom_pass: str,
) -> None:
    table = PatternMatcherPass()
    names: dict[str, Any] = {"__name__": "my.passes", "TABLE": table}
    exec(_FUSES, names)
    value = eval(custom_pass, names)
    before = Snapshot()
    with torch._inductor.config.patch(post_grad_custom_post_pass=value):
        empty = before.changes({}).places
        entry: Any = None
        table.patterns["call_function", torch.relu].append(entry)
        assert before.changes({}).places != empty
        table.patterns.clear()
        assert before.changes({}).places == empty


# --- files


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
