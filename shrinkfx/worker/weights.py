"""The weights of a program, which its runs share and which no file stores again."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram


def weights_of(exported: ExportedProgram) -> dict[str, str]:
    """Map the names of weight placeholders to the names of the weights."""
    signature = exported.graph_signature
    return {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }


def shared_weights(exported: ExportedProgram) -> dict[str, str]:
    """Map the weights that no operator writes into; a run needs no copy of them.

    If any operator of the graph writes into an argument, no weight is shared.
    """
    return {} if mutates_arguments(exported) else weights_of(exported)


def mutates_arguments(exported: ExportedProgram) -> bool:
    """Return whether an operator of the graph writes into one of its arguments."""
    schemas = (getattr(n.target, "_schema", None) for n in exported.graph.nodes)
    return any(schema is not None and schema.is_mutable for schema in schemas)


class Views:
    """Recognizes values that are views of a weight, such as a transposed weight."""

    def __init__(self, exported: ExportedProgram) -> None:
        stores = (exported.state_dict, exported.constants)
        self._weights = {
            target: store[target]
            for target in shared_weights(exported).values()
            for store in stores
            if isinstance(store.get(target), torch.Tensor)
        }
        self._names = {
            weight.untyped_storage().data_ptr(): target
            for target, weight in self._weights.items()
            if weight.numel()
        }

    def state(self, value: torch.Tensor) -> dict[str, Any]:
        """Describe a view of a weight by name, dtype and layout; {} for others."""
        name = self._names.get(value.untyped_storage().data_ptr())
        if (
            name is None
            or value.layout != torch.strided
            or value.is_conj()
            or value.is_neg()
        ):
            return {}
        layout = value.storage_offset(), value.size(), value.stride()
        return {"weight": name, "dtype": value.dtype, "place": layout}

    def read(self, stated: dict[str, Any]) -> torch.Tensor:
        """Rebuild the view that ``state`` has described."""
        memory = self._weights[stated["weight"]].untyped_storage()
        empty = torch.empty(0, dtype=stated["dtype"])
        return empty.set_(memory, *stated["place"])
