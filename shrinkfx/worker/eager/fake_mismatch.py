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
        if not self._is_like(fake, real):
            # Mismatches propagate, so report only the first operator.
            if n.op != "placeholder" and not self.untrue & {*producer.all_input_nodes}:
                self.found.append(self.describe(n, real))
            self.untrue.add(n)
        elif n.op != "placeholder" and not str(producer.target).startswith(_BUILT_IN):
            self._look_at_strides(n, fake, real)

    def describe(self, n: fx.Node, real: torch.Tensor) -> FakeMismatch:
        """Return the declared and the real properties of a value."""
        fake, (producer, place) = n.meta["val"], _producer(n)
        return FakeMismatch(
            node=producer.name,
            operator=str(producer.target),
            place=place,
            declared=describe_tensor(
                fake, lambda size: evaluate_size(size, self.sizes)
            ),
            made=describe_tensor(real),
            within=producer.name,
        )

    def _is_like(self, fake: torch.Tensor, real: torch.Tensor) -> bool:
        declared = [evaluate_size(size, self.sizes) for size in fake.shape]
        return (
            fake.dtype == real.dtype
            and fake.device.type == real.device.type
            and fake.dim() == real.dim()
            and all(a in (None, b) for a, b in zip(declared, real.shape, strict=True))
        )

    def _look_at_strides(
        self, n: fx.Node, fake: torch.Tensor, real: torch.Tensor
    ) -> None:
        """Record wrong strides of custom operators.

        Those of PyTorch's own operators are no finding, because some fake kernels guess
        them.
        """
        strides = [evaluate_size(step, self.sizes) for step in fake.stride()]
        layout = zip(real.shape, real.stride(), strides, strict=True)
        if any(size > 1 and claim not in (None, step) for size, step, claim in layout):
            self.found.append(self.describe(n, real))

    def clear(self) -> None:
        """Forget the mismatches, but not the nodes with wrong metadata."""
        self.found.clear()


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


def describe_tensor(
    tensor: torch.Tensor, size_of: Callable[[Any], int | None] = int
) -> TensorFacts:
    """Return the properties of a tensor, without its values.

    Args:
        size_of: converts a size that may be symbolic; None if it is unknown.
    """
    is_strided = tensor.layout == torch.strided
    return TensorFacts(
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(map(size_of, tensor.shape)),
        strides=tuple(map(size_of, tensor.stride())) if is_strided else (),
        device=str(tensor.device),
        layout="" if is_strided else str(tensor.layout).removeprefix("torch."),
    )
