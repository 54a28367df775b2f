"""What a preload changes in PyTorch is seen, place by place."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import fx
from torch._inductor.codegen.cpp import CppOverrides
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.lowering import lowerings

from shrinkfx.worker.preloads.alone import Changes, Snapshot

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
    assert own == ["erfc", "aten.cosh.default"]
    for place in ("lowerings: aten.cosh.default", "lowerings: aten.sinh.default"):
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
