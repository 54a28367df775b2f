"""Make Inductor replace ``mul_`` by ``mul``: who reads the other tensor sees nothing.

It is done to the program as it was exported, before in-place operators are taken
out of it. Importing this twice is harmless; eager never sees it.
"""

import torch
from torch import fx
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass

aten = torch.ops.aten


class LoseProducts(CustomGraphPass):
    """Turn in-place products into others."""

    def __call__(self, graph: fx.Graph) -> None:
        for node in graph.nodes:
            if node.target is aten.mul_.Tensor:
                node.target = aten.mul.Tensor

    def uuid(self) -> str:
        return "planted: lose products"


config.pre_grad_custom_pass = LoseProducts()
