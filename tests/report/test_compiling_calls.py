"""Calls that compile C++: which say in a module's text all that they compile."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.compiling import PLAIN, beside

from shrinkfx.preloads.bundle_builder import build_bundle
from shrinkfx.preloads.preload_bundle import Preload, PreloadCut
from shrinkfx.preloads.relocation import drop_compiled_libraries
from shrinkfx.preloads.statements import read_source
from shrinkfx.program.uninstalled_files import UninstalledFiles


@pytest.mark.parametrize(
    "call",
    [
        PLAIN,
        'OPS = load_inline(name="my_ops", cpp_sources=[SOURCE], extra_cflags=FLAGS)',
        'cpp_extension.load_inline("my_ops", "#include <x.h>" + SOURCE)',
        f"if True:\n    {PLAIN}",
    ],
)
def test_self_contained_load_inline_call_is_carried_unchanged(
    tmp_path: Path, call: str
) -> None:
    file, used = beside(tmp_path, call)
    assert drop_compiled_libraries(used, read_source) == UninstalledFiles(
        callers=used.callers
    )
    cut = PreloadCut(compiles=True)
    carried = build_bundle([Preload(str(file), file)], used, cut)
    (part,) = carried.definitions
    assert carried.compiles
    assert "load_inline(" in part.text
    assert "HALF = " in part.text
    assert not carried.files
    assert not carried.unpacking
    assert any("ninja" in line for line in carried.header_remarks)


@pytest.mark.parametrize(
    "call",
    [
        'torch.ops.load_library("cache/my_ops/my_ops.so")',
        'load_inline("my_ops", open("ops.cpp").read())',
        'load_inline("my_ops", SOURCE, extra_include_paths=["/home/me/include"])',
        'load_inline("my_ops", SOURCE, build_directory="/tmp/ops")',
        "load_inline(**all_of_it())",
        'load_inline("my_ops", \'#include "/home/me/ops.h"\')',
    ],
)
def test_compiled_library_is_carried_if_its_call_needs_other_files(
    tmp_path: Path, call: str
) -> None:
    file, used = beside(tmp_path, call)
    assert drop_compiled_libraries(used, read_source) == used
    cut = PreloadCut(compiles=True)
    carried = build_bundle([Preload(str(file), file)], used, cut)
    assert not carried.compiles
    assert "my_ops.so" in carried.files


def test_compiled_library_is_carried_by_default(tmp_path: Path) -> None:
    file, used = beside(tmp_path, PLAIN)
    carried = build_bundle([Preload(str(file), file)], used, PreloadCut())
    assert not carried.compiles
    assert "my_ops.so" in carried.files
    assert "load_inline(" not in carried.unpacking
