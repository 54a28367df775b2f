"""Fake-kernel mismatches: operators whose metadata differs from real results."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from shrinkfx.protocol.operators import FakeMismatch, TensorFacts
from shrinkfx.worker.sizes.bindings import SizesByName, evaluate_size

_BUILT_IN = ("aten.", "prims.", "cond")


class MismatchRecorder:
    """Mismatches between metadata and real values.

    Attributes:
        sizes: the numbers of the symbolic sizes.
        found: the results for which fake kernel and real kernel disagree.
        untrue: nodes whose metadata has a wrong dtype, shape or device, whichever
            operator caused it.
    """

    def __init__(self) -> None:
        self.sizes: SizesByName = {}
        self.found: list[FakeMismatch] = []
        self.untrue: set[fx.Node] = set()

    def compare_value(self, n: fx.Node, real: torch.Tensor) -> None:
        """Compare one value with its metadata; skip sizes that depend on data."""
        fake = n.meta.get("val")
        if not isinstance(fake, torch.Tensor):
            return
        producer, _ = _producer(n)
        if not has_declared_type(fake, real, self._evaluate):
            # Mismatches propagate, so report only the first operator.
            if n.op != "placeholder" and not self.untrue & {*producer.all_input_nodes}:
                self.found.append(self.describe(n, real))
            self.untrue.add(n)
            return
        # Strides of PyTorch's own operators are no finding, because some fake kernels
        # guess them.
        is_custom = not str(producer.target).startswith(_BUILT_IN)
        if (
            n.op != "placeholder"
            and is_custom
            and not has_declared_strides(fake, real, self._evaluate)
        ):
            self.found.append(self.describe(n, real))

    def describe(self, n: fx.Node, real: torch.Tensor) -> FakeMismatch:
        """Return the declared and the real properties of a value."""
        fake, (producer, place) = n.meta["val"], _producer(n)
        return FakeMismatch(
            node=producer.name,
            operator=str(producer.target),
            place=place,
            declared=describe_tensor(fake, self._evaluate),
            made=describe_tensor(real),
            within=producer.name,
        )

    def _evaluate(self, size: Any) -> int | None:
        return evaluate_size(size, self.sizes)

    def clear(self) -> None:
        """Forget the mismatches, but not the nodes with wrong metadata."""
        self.found.clear()


SizeOf = Callable[[Any], int | None]
"""Converts a size that may be symbolic; None if it is unknown."""


def has_declared_type(fake: torch.Tensor, real: torch.Tensor, size_of: SizeOf) -> bool:
    """Return whether a value has the dtype, kind of device and shape of its fake."""
    if (fake.dtype, fake.device.type) != (real.dtype, real.device.type):
        return False
    declared = map(size_of, fake.shape)
    return fake.dim() == real.dim() and all(
        claim in (None, size) for claim, size in zip(declared, real.shape, strict=True)
    )


def has_declared_strides(
    fake: torch.Tensor, real: torch.Tensor, size_of: SizeOf
) -> bool:
    """Return whether a value has the strides of its fake, in dims longer than 1."""
    layout = zip(real.shape, real.stride(), map(size_of, fake.stride()), strict=True)
    return all(size <= 1 or claim in (None, step) for size, step, claim in layout)


class Watcher(fx.Interpreter):
    """Runs a graph and the branches that it takes, and records mismatches."""

    def __init__(self, module: fx.GraphModule, recorder: MismatchRecorder) -> None:
        super().__init__(module)
        self.mismatches = recorder

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor) and n.op in ("placeholder", "call_function"):
            self.mismatches.compare_value(n, value)
        if isinstance(value, fx.GraphModule) and all(map(runs_a_subgraph, n.users)):
            return self._watch_branch(n, value)
        return value

    def _watch_branch(self, n: fx.Node, branch: fx.GraphModule) -> Callable[..., Any]:
        def run(*operands: Any) -> Any:
            before = len(self.mismatches.found)
            results = Watcher(branch, self.mismatches).run(*operands)
            if len(self.mismatches.found) > before:
                self.mismatches.untrue.add(n)
                # Names inside a branch are local to it.
                within = next(iter(n.users)).name
                self.mismatches.found[before:] = [
                    replace(mismatch, within=within)
                    for mismatch in self.mismatches.found[before:]
                ]
            return results

        return run


def runs_a_subgraph(n: fx.Node) -> bool:
    """Return whether a node runs one of several subgraphs."""
    return n.target is torch.ops.higher_order.cond


def _producer(n: fx.Node) -> tuple[fx.Node, str]:
    """Return the operator that computes a value, and the index of the result."""
    place = ""
    while n.target is operator.getitem and isinstance(n.args[0], fx.Node):
        place, n = f"[{n.args[1]}]{place}", n.args[0]
    return n, place


def describe_tensor(tensor: torch.Tensor, size_of: SizeOf = int) -> TensorFacts:
    """Return the properties of a tensor, without its values."""
    is_strided = tensor.layout == torch.strided
    return TensorFacts(
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(map(size_of, tensor.shape)),
        strides=tuple(map(size_of, tensor.stride())) if is_strided else (),
        device=str(tensor.device),
        layout="" if is_strided else str(tensor.layout).removeprefix("torch."),
    )
