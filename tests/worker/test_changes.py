"""What a preload changes in PyTorch is seen, place by place."""

from __future__ import annotations

import pytest
import torch
from torch._inductor.codegen.cpp import CppOverrides
from torch._inductor.lowering import lowerings

from shrinkfx.worker.preloads.registrations import Snapshot

aten = torch.ops.aten


def test_snapshot_tells_what_is_new_other_or_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = Snapshot()
    assert before.changes({}) == {}
    monkeypatch.setitem(lowerings, aten.cosh.default, lambda x: x)
    monkeypatch.delitem(lowerings, aten.sinh.default)
    monkeypatch.setattr(CppOverrides, "erfc", staticmethod(str))
    monkeypatch.setenv("TORCHINDUCTOR_FREEZING", "1")
    with torch._inductor.config.patch(epilogue_fusion=False):
        changes = before.changes({"mylib::mix": "kernels"})
    for place in ("lowerings: aten.cosh.default", "lowerings: aten.sinh.default"):
        (name,) = (each for each in changes if each.endswith(place))
        assert (changes.pop(name) == "is gone") == ("sinh" in place)
    assert {name.rpartition(" ")[2] for name in changes} == {
        *("mylib::mix", "erfc", "epilogue_fusion", "TORCHINDUCTOR_FREEZING")
    }
    first = dict(changes)
    monkeypatch.setattr(CppOverrides, "erfc", staticmethod(lambda x: str(x)))
    with torch._inductor.config.patch(epilogue_fusion=False):
        assert before.changes({"mylib::mix": "kernels"}) != first
