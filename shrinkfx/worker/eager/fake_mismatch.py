"""Operators whose metadata says something else than what they really yield."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from shrinkfx.worker.sizes.bindings import (
    SizesByName,
    declared_bytes,
    evaluate,
    reach,
)

_BUILT_IN = ("aten.", "prims.", "cond")


class FakeMismatches:
    """What is found by comparing metadata with real values.

    Attributes:
        sizes: what the symbols stand for.
        found: a line for each operator that lies.
        mismatched: the nodes of these operators.
        short: what these call, where a result ends before it is declared to.
        untrue: nodes whose dtype, shape or device is not what they say, whoever lied.
    """

    def __init__(self) -> None:
        self.sizes: SizesByName = {}
        self.found: list[str] = []
        self.mismatched: list[str] = []
        self.short: list[str] = []
        self.untrue: set[fx.Node] = set()

    def look(self, n: fx.Node, real: torch.Tensor) -> None:
        """Compare one value; sizes that depend on data cannot be."""
        fake = n.meta.get("val")
        if not isinstance(fake, torch.Tensor):
            return
        producer = _producer(n)
        if not self._is_like(fake, real):
            # What is computed from a lie is one as well, but no other operator's.
            if n.op != "placeholder" and not self.untrue & {*producer.all_input_nodes}:
                self._note(n, self.describe(n, real), real)
            self.untrue.add(n)
        elif n.op != "placeholder" and not str(producer.target).startswith(_BUILT_IN):
            self._look_at_strides(n, fake, real)

    def describe(self, n: fx.Node, real: torch.Tensor) -> str:
        fake = n.meta["val"]
        said = [evaluate(size, self.sizes) for size in fake.shape]
        return (
            f"{_name(n)} is {real.dtype}{list(real.shape)} on "
            f"{real.device}, its metadata says {fake.dtype}{said} on {fake.device}"
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
        if any(size > 1 and step != told for size, step, told in layout):
            lie = f"{_name(n)} has strides {list(real.stride())}"
            self._note(n, f"{lie}, its metadata says {said}", real)

    def _note(self, n: fx.Node, lie: str, real: torch.Tensor) -> None:
        producer = _producer(n)
        self.found.append(lie)
        self.mismatched.append(producer.name)
        declared = declared_bytes(n.meta["val"], self.sizes)
        if real.layout is torch.strided and _bytes(real) < (declared or 0):
            self.short.append(str(producer.target))

    def clear(self) -> None:
        """Forget what has been found, but not what is untrue."""
        self.found.clear()
        self.mismatched.clear()
        self.short.clear()


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
                self.mismatches.mismatched[before:] = [user.name for user in n.users]
            return results

        return run


def is_branching(n: fx.Node) -> bool:
    """Tell whether a node runs one of several graphs that it is given."""
    return n.target is torch.ops.higher_order.cond


def _bytes(real: torch.Tensor) -> int:
    return reach(real.shape, real.stride()) * real.itemsize


def _producer(n: fx.Node) -> fx.Node:
    """Find the operator that a value is one of several results of."""
    while n.target is operator.getitem and isinstance(n.args[0], fx.Node):
        n = n.args[0]
    return n


def _name(n: fx.Node) -> str:
    """Name an operator, and which of its results is meant."""
    places = ""
    while n.target is operator.getitem and isinstance(n.args[0], fx.Node):
        places, n = f"[{n.args[1]}]{places}", n.args[0]
    return f"{n.name} ({n.target}){places}"
