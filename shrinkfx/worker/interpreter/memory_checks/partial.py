"""Memory that kernels have not fully written, because they were skipped or sampled.

The unwritten part holds implausible values, and an index read there may point anywhere.
So findings in a kernel that reads such memory, or values computed from it, are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from shrinkfx.worker.interpreter.findings import Unsupported
from shrinkfx.worker.model import Keywords
from shrinkfx.worker.private_api.graph_api import TorchDispatchMode, pytree


class PartialMemory:
    """The storages that are not fully written, or computed from such storages."""

    def __init__(self) -> None:
        # Kept alive: another storage could get the address of a freed one.
        self._by_address: dict[int, torch.UntypedStorage] = {}

    def __contains__(self, values: Any) -> bool:
        return any(s.data_ptr() in self._by_address for s in _storages(values))

    def __bool__(self) -> bool:
        return bool(self._by_address)

    def add(self, values: Any) -> None:
        """Add the storages of all tensors in a value."""
        self._by_address |= {s.data_ptr(): s for s in _storages(values)}

    def copy_state(self) -> dict[int, torch.UntypedStorage]:
        """Return a copy of the state, for ``restore``."""
        return dict(self._by_address)

    def restore(self, state: dict[int, torch.UntypedStorage]) -> None:
        """Restore the state that ``copy_state`` returned."""
        self._by_address = state

    def clear(self) -> None:
        self._by_address.clear()


def _storages(values: Any) -> Iterable[torch.UntypedStorage]:
    tensors = (v for v in pytree.tree_leaves(values) if isinstance(v, torch.Tensor))
    return [t.untyped_storage() for t in tensors if t.numel()]


class PartialPropagation(TorchDispatchMode):
    """Marks the results of operators that read partial memory as partial, too.

    Raises:
        Unsupported: an operator fails on partial memory, or reads a number from it.
    """

    def __init__(self, partial: PartialMemory) -> None:
        super().__init__()
        self._partial = partial

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Keywords | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if (args, kwargs) not in self._partial:
            return func(*args, **kwargs)
        try:
            result = func(*args, **kwargs)
        except Exception as error:
            raise Unsupported(f"{func} takes {UNWRITTEN_MEMORY}") from error
        if not isinstance(result, bool | int | float):
            self._partial.add(result)
            return result
        raise Unsupported(
            f"{func} reads {UNWRITTEN_MEMORY}"
        )  # the number may be a size


UNWRITTEN_MEMORY = "what a kernel that was not run, or in part, has left unwritten"
