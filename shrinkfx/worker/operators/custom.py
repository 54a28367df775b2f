"""Detection of custom operators."""

from __future__ import annotations

from torch import fx
from torch.export import ExportedProgram

from shrinkfx.program.namespaces import PYTORCH_NAMESPACES
from shrinkfx.worker.private_api import graph_api


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
    """Return whether a node calls an operator whose schema is not PyTorch's own."""
    target = node.target
    if (
        not isinstance(target, graph_api.OpOverload)
        or target.namespace in PYTORCH_NAMESPACES
    ):
        return False
    # Composite operators have no fake kernel, because they are decomposed.
    return not target.has_kernel_for_dispatch_key(_COMPOSITE)


_COMPOSITE = graph_api.DispatchKey.CompositeImplicitAutograd
