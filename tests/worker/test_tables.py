"""Code of a user's own in Inductor's tables, in one process and in another."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch._inductor.decomposition import decompositions

from shrinkfx.worker.intake.tables import list_missing_entries, own_entries

TABLE = "torch._inductor.decomposition.decompositions"
SOFTMAX, GELU = torch.ops.aten._softmax.default, torch.ops.aten.gelu.default


@pytest.fixture(name="own")
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of somebody's own, which is imported."""
    file = tmp_path / "my_decomps.py"
    file.write_text("def softmax(x, dim, half): return x.exp()\n")
    spec = importlib.util.spec_from_file_location("my_decomps", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "my_decomps", module)
    spec.loader.exec_module(module)
    return module


def test_only_table_entries_of_user_code_are_listed(
    own: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (TABLE, str(SOFTMAX)) not in own_entries().entries
    monkeypatch.setitem(decompositions, SOFTMAX, own.softmax)
    entries = own_entries().entries
    assert entries == ((TABLE, "aten._softmax.default"),)


def test_entry_is_missing_if_no_table_of_this_process_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there, gone = (TABLE, str(GELU)), (TABLE, "aten.no_such.default")
    monkeypatch.setitem(decompositions, GELU, print)
    unknown = ("torch._inductor.no_such_module.table", str(GELU))
    assert list_missing_entries([there, gone, unknown]) == [gone]
    monkeypatch.delitem(decompositions, GELU)
    assert list_missing_entries([there]) == [there]
