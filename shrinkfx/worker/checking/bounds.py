"""Find custom operators that read outside their arguments in a candidate.

A smaller program may pass an operator less memory than it reads, such as a weight of
one row for an input of two. Then it fails like the input program, but because of values
outside the program's memory.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx

from shrinkfx.protocol.operators import Misbehavior
from shrinkfx.worker.eager.intermediates import SEED, copy_run_inputs
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.model import flat_inputs
from shrinkfx.worker.operators.repeated_call import find_hidden_dependencies


def find_out_of_bounds_operator(
    run: RebuiltCandidate, operators: Collection[str]
) -> str:
    """Run a program in eager; return one of the operators that reads out of bounds.

    Returns:
        A message; '' if no operator does so, or if eager raises, because the check
        itself reports that.
    """
    flat = flat_inputs(run.exported, run.failing)
    watcher = _Watcher(run.exported.graph_module, operators)
    torch.manual_seed(SEED)
    try:
        with torch.no_grad():
            watcher.run(*copy_run_inputs(run.exported, flat))
    except Exception:  # noqa: BLE001 - whatever the user's program raises
        pass
    if not watcher.culprit:
        return ""
    return f"{watcher.culprit} reads outside its arguments, unlike in the input program"


class _Watcher(fx.Interpreter):
    """Runs a graph and watches some operators, except those in its subgraphs."""

    def __init__(self, module: fx.GraphModule, operators: Collection[str]) -> None:
        super().__init__(module)
        self._operators = operators
        self.culprit = ""

    def run_node(self, n: fx.Node) -> Any:
        if str(n.target) in self._operators:
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            if Misbehavior.STRAYS in find_hidden_dependencies(n.target, args, kwargs):
                self.culprit = str(n.target)
        return super().run_node(n)
