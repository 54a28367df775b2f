"""Whether custom operators read outside of their arguments, as a candidate calls them.

A program that is made smaller may give an operator less than it reads: a weight of one
row for an input of two, say. It fails then as the original does, with values that lie
where nothing of it is.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx

from shrinkfx.protocol.operators import What
from shrinkfx.worker.eager.intermediates import SEED, given_to_one_run
from shrinkfx.worker.graph.rebuild import Rebuilt
from shrinkfx.worker.model import flat_inputs
from shrinkfx.worker.operators.repeated import hangs_on


def straying(run: Rebuilt, operators: Collection[str]) -> str:
    """Run a program in eager, and name one of some operators that reads elsewhere.

    Returns:
        '' where none does, and where eager raises: the check itself says what.
    """
    flat = flat_inputs(run.exported, run.failing)
    watcher = _Watcher(run.exported.graph_module, operators)
    torch.manual_seed(SEED)
    try:
        with torch.no_grad():
            watcher.run(*given_to_one_run(run.exported, flat))
    except Exception:  # noqa: BLE001 - whatever the user's program raises
        pass
    if not watcher.straying:
        return ""
    return (
        f"{watcher.straying} reads outside its arguments, unlike in the input program"
    )


class _Watcher(fx.Interpreter):
    """Runs a graph, with an eye on some operators; not on those in branches."""

    def __init__(self, module: fx.GraphModule, operators: Collection[str]) -> None:
        super().__init__(module)
        self._operators = operators
        self.straying = ""

    def run_node(self, n: fx.Node) -> Any:
        if str(n.target) in self._operators:
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            if What.STRAYS in hangs_on(n.target, args, kwargs):
                self.straying = str(n.target)
        return super().run_node(n)
