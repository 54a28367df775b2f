"""Operators whose metadata says something else than what they really yield."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from shrinkfx.protocol.operators import FakeMismatch, TensorFacts
from shrinkfx.worker.sizes.bindings import SizesByName, evaluate

_BUILT_IN = ("aten.", "prims.", "cond")


class FakeMismatches:
    """What is found by comparing metadata with real values.

    Attributes:
        sizes: what the symbols stand for.
        found: results of the operators that lie.
        untrue: nodes whose dtype, shape or device is not what they say, whoever lied.
    """

    def __init__(self) -> None:
        self.sizes: SizesByName = {}
        self.found: list[FakeMismatch] = []
        self.untrue: set[fx.Node] = set()

    def look(self, n: fx.Node, real: torch.Tensor) -> None:
        """Compare one value; sizes that depend on data cannot be."""
        fake = n.meta.get("val")
        if not isinstance(fake, torch.Tensor):
            return
        producer, _ = _producer(n)
        if not self._is_like(fake, real):
            # What is computed from a lie is one as well, but no other operator's.
            if n.op != "placeholder" and not self.untrue & {*producer.all_input_nodes}:
                self.found.append(self.describe(n, real))
            self.untrue.add(n)
        elif n.op != "placeholder" and not str(producer.target).startswith(_BUILT_IN):
            self._look_at_strides(n, fake, real)

    def describe(self, n: fx.Node, real: torch.Tensor) -> FakeMismatch:
        """Hold a value against what is declared of it."""
        fake, (producer, place) = n.meta["val"], _producer(n)
        return FakeMismatch(
            node=producer.name,
            operator=str(producer.target),
            place=place,
            declared=facts_of(fake, lambda size: evaluate(size, self.sizes)),
            made=facts_of(real),
            within=producer.name,
        )

    def _is_like(self, fake: torch.Tensor, real: torch.Tensor) -> bool:
        said = [evaluate(size, self.sizes) for size in fake.shape]
        return (
            fake.dtype == real.dtype
            and fake.device.type == real.device.type
            and fake.dim() == real.dim()
            and all(a in (None, b) for a, b in zip(said, real.shape, strict=True))
        )

    def _look_at_strides(
        self, n: fx.Node, fake: torch.Tensor, real: torch.Tensor
    ) -> None:
        """Note wrong strides of custom operators; PyTorch's own guess some."""
        said = [evaluate(step, self.sizes) for step in fake.stride()]
        layout = zip(real.shape, real.stride(), said, strict=True)
        if any(size > 1 and told not in (None, step) for size, step, told in layout):
            self.found.append(self.describe(n, real))

    def clear(self) -> None:
        """Forget what has been found, but not what is untrue."""
        self.found.clear()


class Watcher(fx.Interpreter):
    """Runs a graph, and the branches that it takes, with an eye on lies."""

    def __init__(self, module: fx.GraphModule, lies: FakeMismatches) -> None:
        super().__init__(module)
        self.mismatches = lies

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor) and n.op in ("placeholder", "call_function"):
            self.mismatches.look(n, value)
        if isinstance(value, fx.GraphModule) and all(map(is_branching, n.users)):
            return self._watched(n, value)
        return value

    def _watched(self, n: fx.Node, branch: fx.GraphModule) -> Callable[..., Any]:
        def run(*operands: Any) -> Any:
            before = len(self.mismatches.found)
            results = Watcher(branch, self.mismatches).run(*operands)
            if len(self.mismatches.found) > before:
                self.mismatches.untrue.add(n)
                # Names within a branch are its own.
                within = next(iter(n.users)).name
                self.mismatches.found[before:] = [
                    replace(lie, within=within)
                    for lie in self.mismatches.found[before:]
                ]
            return results

        return run


def is_branching(n: fx.Node) -> bool:
    """Tell whether a node runs one of several graphs that it is given."""
    return n.target is torch.ops.higher_order.cond


def _producer(n: fx.Node) -> tuple[fx.Node, str]:
    """Find the operator that a value is one of several results of, and of which."""
    place = ""
    while n.target is operator.getitem and isinstance(n.args[0], fx.Node):
        place, n = f"[{n.args[1]}]{place}", n.args[0]
    return n, place


def facts_of(
    tensor: torch.Tensor, size_of: Callable[[Any], int | None] = int
) -> TensorFacts:
    """State what a tensor is, without its values.

    Args:
        size_of: what a size is that may be a symbol; None where nobody knows.
    """
    is_strided = tensor.layout == torch.strided
    return TensorFacts(
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(map(size_of, tensor.shape)),
        strides=tuple(map(size_of, tensor.stride())) if is_strided else (),
        device=str(tensor.device),
        layout="" if is_strided else str(tensor.layout).removeprefix("torch."),
    )
