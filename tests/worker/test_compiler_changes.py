"""What a preload changes in the compiler, also if it uses only PyTorch's code."""

from __future__ import annotations

import pytest
import torch
from torch._inductor.codegen.cpp import CppOverrides
from torch._inductor.decomposition import decompositions
from torch._inductor.lowering import lowerings, make_pointwise
from torch._inductor.virtualized import ops

from shrinkfx.worker.preloads.alone import Snapshot

aten = torch.ops.aten


def test_nothing_is_a_change_of_the_user_before_there_is_one() -> None:
    assert Snapshot().changes({}).own == ()


def test_lowering_of_another_operator_is_a_change_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = Snapshot()
    sine = lowerings[aten.sin.default]
    monkeypatch.setitem(lowerings, aten.atan.default, sine)
    (place,) = before.changes({}).own
    assert place.endswith(" lowerings: aten.atan.default")


def test_function_of_pytorch_that_calls_the_user_is_his_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = Snapshot()
    lowering = make_pointwise(lambda x: ops.abs(x))
    monkeypatch.setitem(lowerings, aten.sign.default, lowering)
    (place,) = before.changes({}).own
    assert place.endswith(" lowerings: aten.sign.default")


def test_removed_decomposition_is_a_change_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = Snapshot()
    operator = next(k for k in decompositions if isinstance(k, torch._ops.OpOverload))
    monkeypatch.delitem(decompositions, operator)
    changes = before.changes({})
    assert changes.own
    assert all(place.endswith(f": {operator}") for place in changes.own)
    assert {changes.places[place] for place in changes.own} == {"is gone"}


def test_function_of_a_class_of_the_compiler_is_a_change_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = Snapshot()
    monkeypatch.setattr(CppOverrides, "asinh", staticmethod(lambda x: f"wrong({x})"))
    assert before.changes({}).own == (
        "torch._inductor.codegen.cpp CppOverrides: asinh",
    )
