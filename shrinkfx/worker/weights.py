"""The weights that a program holds: all runs of it share them, nothing stores them."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram


def weights_of(exported: ExportedProgram) -> dict[str, str]:
    """Map the placeholders of weights to their names."""
    signature = exported.graph_signature
    return {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }


def shared_weights(exported: ExportedProgram) -> dict[str, str]:
    """Map those that no operator writes into: a run needs no copy of them."""
    return {} if calls_mutable(exported) else weights_of(exported)


def calls_mutable(exported: ExportedProgram) -> bool:
    """Tell whether an operator of the graph writes into what it is given."""
    schemas = (getattr(n.target, "_schema", None) for n in exported.graph.nodes)
    return any(schema is not None and schema.is_mutable for schema in schemas)


class Views:
    """Values that are views of a weight, such as a transposed one."""

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
        """State which view of a weight this is, without its elements; {} if none."""
        name = self._names.get(value.untyped_storage().data_ptr())
        if (
            name is None
            or value.layout != torch.strided
            or value.is_conj()
            or value.is_neg()
        ):
            return {}
        place = value.storage_offset(), value.size(), value.stride()
        return {"weight": name, "dtype": value.dtype, "place": place}

    def read(self, stated: dict[str, Any]) -> torch.Tensor:
        """Give the view that ``state`` has stated."""
        memory = self._weights[stated["weight"]].untyped_storage()
        empty = torch.empty(0, dtype=stated["dtype"])
        return empty.set_(memory, *stated["place"])
