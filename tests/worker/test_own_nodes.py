"""Nodes that a user's pass has put into a graph are told from PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, fx
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.exc import InductorError

from shrinkfx.protocol.files import Traces
from shrinkfx.worker.checking.evidence import PROVENANCE, collect_evidence
from shrinkfx.worker.explaining.own_nodes import track_user_nodes

aten = torch.ops.aten


def put(graph: fx.Graph, node: fx.Node) -> None:
    with graph.inserting_before(node):
        new = graph.call_function(aten.lerp.Tensor, (*node.args, 0.5))
    new.meta.update(node.meta)
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def change(graph: fx.Graph, node: fx.Node) -> None:
    node.target = aten.rsub.Tensor


def leave(graph: fx.Graph, node: fx.Node) -> None:
    pass


class Pass(CustomGraphPass):
    """Has somebody change each addition."""

    def __init__(self, change: Callable[[fx.Graph, fx.Node], None]) -> None:
        self.change = change

    def __call__(self, graph: fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=aten.add.Tensor):
            self.change(graph, node)

    def uuid(self) -> None:
        return None


class Adds(torch.nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.add(x, y)


def stop(*_: object, **__: object) -> None:
    raise NotImplementedError


def at_work(path: Path, config: dict[str, object]) -> Traces:
    x = torch.ones(3)
    with pytest.raises(InductorError), collect_evidence(path, lambda _: None):
        torch._inductor.aoti_compile_and_package(
            torch.export.export(Adds(), (x, x)),
            package_path=str(path.with_suffix(".pt2")),
            inductor_configs={**PROVENANCE, **config},
        )
    return Traces.from_line(path.read_text())


@pytest.mark.parametrize(
    ("does", "calls", "is_own"),
    [
        (put, "aten.lerp.Tensor", True),
        (change, "aten.rsub.Tensor", True),
        (leave, "aten.add.Tensor", False),
    ],
)
@pytest.mark.parametrize(
    "where", ["post_grad_custom_pre_pass", "joint_custom_pre_pass"]
)
def test_failing_node_is_named_by_its_target(
    does: Callable[[fx.Graph, fx.Node], None],
    calls: str,
    is_own: bool,
    where: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lower = "torch._inductor.graph.GraphLowering.call_function"
    monkeypatch.setattr(lower, stop)
    told = at_work(tmp_path / "evidence.json", {where: Pass(does)})
    assert (told.at_work, told.is_own) == (calls, is_own)
    assert told.raised_at[0] == ("add",)


def test_decomposed_nodes_do_not_count_as_user_nodes() -> None:
    class Traced(fx.Interpreter):
        def call_function(self, *_: object) -> fx.Node:
            return made.call_function(aten.sub.Tensor, ())

    made, program = fx.Graph(), fx.Graph()
    program.call_function(aten.add.Tensor, ())
    program.output(())
    with track_user_nodes() as own:
        Traced(fx.GraphModule({}, program)).run()
        (node,) = made.find_nodes(op="call_function", target=aten.sub.Tensor)
        assert node not in own
        copied = fx.Graph().node_copy(node)
        assert copied not in own
