"""The algorithm of PyTorch's minifier on the cases of ``synthetic``, with one oracle.

It is ``functorch.compile.minifier``, which the AOTI minifier runs, too; nothing is
exported or compiled here, and no candidate is lost because it cannot be. The program
becomes an fx graph of equal structure, of ``torch.relu`` and ``torch.add`` on tiny
tensors. Dead operators don't count: no compiler would see them.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Sequence

import torch
from functorch.compile import minifier
from synthetic import Case, Run
from torch import Tensor, fx


class OutOfTimeError(Exception):
    """A case takes longer than it may."""


class Watch:
    """Answer what the minifier asks, and count."""

    def __init__(self, case: Case, limit_s: float) -> None:
        self._case = case
        self._until = time.process_time() + limit_s
        self.asked: list[str] = []
        self.sizes: list[int] = []
        self.best = len(case.program.operators)

    def fails(self, module: fx.GraphModule, inputs: Sequence[Tensor]) -> bool:
        if time.process_time() > self._until:
            raise OutOfTimeError
        live = live_operators(module.graph)
        failed = self._case.fails(live)
        if failed:
            self.best = min(self.best, len(live))
        self.asked.append(str(module.graph))
        self.sizes.append(self.best)
        return failed


def minify(case: Case, limit_s: float) -> Run | None:
    """Run the minifier on a case; None if it takes more CPU-seconds than it may."""
    module, inputs = build(case)
    watch = Watch(case, limit_s)
    began = time.process_time()
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            result, _ = minifier(module, inputs, watch.fails, lambda *_: None)
        except OutOfTimeError:
            return None
    checks = len(watch.asked)
    kept = live_operators(result.graph)
    return Run(
        checks=checks,
        repeated=checks - len(set(watch.asked)),
        left=len(kept),
        minimal=not any(case.fails(kept - {name}) for name in kept),
        cpu_ms=1e3 * (time.process_time() - began) / checks,
        sizes=watch.sizes,
    )


def build(case: Case) -> tuple[fx.GraphModule, list[Tensor]]:
    """Build the case's program for fx, and its inputs."""
    program, graph = case.program, fx.Graph()
    made: dict[str, fx.Node] = {}
    feeds = [n for n in program.graph if n not in set(program.operators)]
    for name in feeds:
        made[name] = graph.placeholder(name)
    for name in program.operators:
        operands = tuple(made[operand] for operand in program.node(name).operands)
        target = torch.relu if len(operands) == 1 else torch.add
        made[name] = graph.create_node("call_function", target, operands, name=name)
        made[name].meta["operator"] = name
    graph.output(tuple(made[name] for name in program.outputs))
    return fx.GraphModule(torch.nn.Module(), graph), [torch.ones(2) for _ in feeds]


def live_operators(graph: fx.Graph) -> frozenset[str]:
    """Name the operators that an output needs."""
    (output,) = graph.find_nodes(op="output")
    seen: set[fx.Node] = set()
    stack = [output]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack += node.all_input_nodes
    return frozenset(n.meta["operator"] for n in seen if n.op == "call_function")
