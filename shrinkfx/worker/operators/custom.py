"""Which operators of a program are custom ones."""

from __future__ import annotations

import torch
from torch import fx
from torch.export import ExportedProgram

_OWN = frozenset(
    {
        *("_c10d_functional", "_c10d_functional_autograd", "_dtensor", "_native"),
        *("_quantized", "aten", "c10d", "c10d_functional", "debugprims", "export"),
        *("flex_lib", "fsdp", "inductor", "inductor_prims", "mkl", "mkldnn"),
        *("mkldnn_prepacked", "onednn", "onnx", "onnx_symbolic", "prim", "prims"),
        *("profiler", "quantization", "quantized", "quantized_decomposed", "rngprims"),
        *("sparse", "static_runtime", "streams", "symm_mem"),
    }
)
"""Namespaces of PyTorch's own operators (torch 2.13)."""


def custom_operators(exported: ExportedProgram) -> list[str]:
    """List the operators of a program that are not PyTorch's own."""
    return sorted(
        {
            str(node.target)
            for module in exported.graph_module.modules()
            if isinstance(module, fx.GraphModule)
            for node in module.graph.nodes
            if is_custom(node)
        }
    )


def is_custom(node: fx.Node) -> bool:
    """Tell whether a node calls an operator with a schema of somebody else's."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace in _OWN:
        return False
    # What is made of other operators has no fake kernel, and is taken apart.
    return not target.has_kernel_for_dispatch_key(_COMPOSITE)


_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
