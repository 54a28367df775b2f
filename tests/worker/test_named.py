"""Names of functions in a file: those of torch are found, and no step leads further."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import armed_text
import pytest
import torch
from test_damaged_files import good_program
from torch._export.serde.serialize import SerializeError

from shrinkfx.worker.loading.archive import read_program
from shrinkfx.worker.loading.torch_names import is_operator, resolve_source

LIBRARY = "no_such_library"
_loaded: list[str] = []
_watching = False


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and event == "ctypes.dlopen":
        _loaded.append(str(arguments[0]))


@contextmanager
def record_opened_libraries() -> Iterator[list[str]]:
    global _watching
    if not hasattr(sys, "_named_watched"):
        sys.addaudithook(_watch)
        sys._named_watched = True  # type: ignore[attr-defined]
    _loaded.clear()
    _watching = True
    try:
        yield _loaded
    finally:
        _watching = False


def program(folder: Path, sources: str) -> str:
    def change(graph: dict[str, Any]) -> None:
        for node in graph["graph_module"]["graph"]["nodes"]:
            node["metadata"]["source_fn_stack"] = sources

    path = folder / "program.pt2"
    path.write_bytes(armed_text.changed(good_program(), change))
    return str(path)


def test_source_function_of_a_node_loads_no_library(tmp_path: Path) -> None:
    path = program(tmp_path, f"a,torch.ctypes.cdll.{LIBRARY}")
    with record_opened_libraries() as asked:
        read = read_program(path, path)
    assert LIBRARY not in asked
    nodes = read.graph.find_nodes(op="call_function", target=torch.ops.aten.cat.default)
    assert nodes[0].meta["source_fn_stack"] == [("a", f"torch.ctypes.cdll.{LIBRARY}")]


def test_torch_loads_the_library_named_by_a_source_function(tmp_path: Path) -> None:
    path = program(tmp_path, f"a,torch.ctypes.cdll.{LIBRARY}")
    with record_opened_libraries() as asked, suppress(RuntimeError, SerializeError):
        torch.export.load(path)
    assert LIBRARY in asked


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("torch.nn.modules.linear.Linear", torch.nn.Linear),
        ("torch.nn.functional.linear", torch.nn.functional.linear),
        ("torch._C._nn.linear", torch._C._nn.linear),
        ("torch.relu", torch.relu),
        ("torch.sym_max", torch.sym_max),
        ("torch.ops.aten.add.Tensor", torch.ops.aten.add.Tensor),
        ("torch.ops.higher_order.cond", torch.ops.higher_order.cond),
        ("_operator.add", operator.add),
    ],
)
def test_functions_of_torch_are_resolved(text: str, found: object) -> None:
    assert resolve_source(text) is found


@pytest.mark.parametrize(
    "text",
    [
        "torch",
        "torch.ctypes.cdll.x",
        "torch.ctypes.CDLL",
        "torch.os.system",
        "torch.sys.modules",
        "torch.Tensor.__init__",
        "torch.relu.__self__",
        "torch.ops.load_library",
        "torch.ops.aten.name.join",
        "torch.ops.aten.add.Tensor.__call__",
        "torch.classes.x.y",
        "torch.onnx.x",
        "_operator.__spec__",
        "math.nan.real",
        "os.system",
        "getattr",
        "",
    ],
)
def test_other_names_are_not_resolved(text: str) -> None:
    with record_opened_libraries() as asked:
        assert resolve_source(text) == text
    assert not asked


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("torch.ops.aten.add.Tensor", True),
        ("torch.ops.higher_order.cond", True),
        ("torch.ops.my_own.not_registered.default", True),
        ("torch.ops._c10d_functional.all_reduce.default", True),
        ("torch.ops.aten.name.join", False),
        ("torch.ops.aten.add.op", False),
        ("torch.ops.higher_order.cond.py_impl", False),
        ("torch.ops.loaded_libraries.add", False),
        ("torch.ops.load_library.x", False),
        ("torch.ops.__class__.x", False),
        ("torch.relu", False),
    ],
)
def test_only_operators_are_accepted_as_targets(text: str, right: bool) -> None:
    assert is_operator(text) is right
