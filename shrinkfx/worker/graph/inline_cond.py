"""Graph form in which the taken branch replaces each ``cond``.

For the search, a ``cond`` with all its branches is a single operator. Most failures
inside a branch do not need the ``cond``, so the search can look for them without it.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature

from shrinkfx.worker.eager.intermediates import run_graph
from shrinkfx.worker.model import Inputs, Program, replace_graph
from shrinkfx.worker.private_api.graph_api import pytree

Taken = Mapping[str, bool]
"""Predicates by the path of their ``cond``, such as ``cond_1.cond``."""

_COND = torch.ops.higher_order.cond
_TAKEN = "taken.json"


def inline_conds(program: Program, folder: Path) -> Program:
    """Replace each ``cond`` by the branch that it takes.

    Eager runs find the branches once; the result is stored in ``folder``.
    """
    cache_file = folder / _TAKEN
    if not cache_file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        cache_file.write_text(json.dumps(find_taken_branches(program)))
    return replace(
        program,
        graph=_inline_branches(program.graph, json.loads(cache_file.read_text())),
    )


def find_taken_branches(program: Program) -> dict[str, bool]:
    """Run the program in eager, and return the predicates on which all runs agree."""
    runs = [program.example, program.failing, *filter(None, [program.passing])]
    first, *others = (_predicates(program.graph, inputs) for inputs in runs)
    return {
        path: predicate
        for path, predicate in first.items()
        if all(other.get(path) == predicate for other in others)
    }


def _predicates(exported: ExportedProgram, inputs: Inputs) -> dict[str, bool]:
    taken: dict[str, bool] = {}
    try:
        run_graph(_Chooser(exported.graph_module, taken), exported, inputs)
    except Exception as error:  # noqa: BLE001 - whatever the user's program raises
        # The input program may fail in eager, too; keep the branches up to there.
        print(f"shrinkfx: eager fails: {error}", flush=True)
    return taken


class _Chooser(fx.Interpreter):
    """Runs a graph, and records the taken branches, including nested ones."""

    def __init__(
        self, module: fx.GraphModule, taken: dict[str, bool], path: str = ""
    ) -> None:
        super().__init__(module)
        self._taken = taken
        self._path = path

    def run_node(self, n: fx.Node) -> Any:
        if n.target is not _COND:
            return super().run_node(n)
        (predicate, *branches, operands), _ = self.fetch_args_kwargs_from_env(n)
        path, chosen = self._path + n.name, bool(predicate)
        if _can_be_inlined(n):
            self._taken[path] = chosen
        branch = branches[0] if chosen else branches[1]
        return _Chooser(branch, self._taken, f"{path}.").run(*operands)


def _can_be_inlined(cond: fx.Node) -> bool:
    """Return whether both branches yield tensors of the same known sizes."""
    values = pytree.tree_leaves(cond.meta.get("val"))
    tensors = all(isinstance(value, torch.Tensor) for value in values)
    return tensors and not cond.meta.get("unbacked_bindings")


def _inline_branches(exported: ExportedProgram, taken: Taken) -> ExportedProgram:
    module = _Inliner(exported.graph_module, taken).module()
    (output,) = module.graph.find_nodes(op="output")
    old = exported.graph_signature
    specs = [
        replace(spec, arg=replace(spec.arg, name=value.name))
        if isinstance(value, fx.Node)
        else spec
        for spec, value in zip(old.output_specs, output.args[0], strict=True)
    ]
    signature = ExportGraphSignature(list(old.input_specs), specs)
    return replace_graph(exported, module, signature)


class _Inliner:
    """Writes a new graph, with the taken branches inlined."""

    def __init__(self, module: fx.GraphModule, taken: Taken) -> None:
        self._taken = taken
        self._graph = fx.Graph()
        self._attributes: dict[str, torch.nn.Module | torch.Tensor] = {}
        self._output = self._write(module, "", None)

    def module(self) -> fx.GraphModule:
        self._graph.output(self._output)
        self._graph.eliminate_dead_code()  # predicates, and other branches
        return fx.GraphModule(self._attributes, self._graph)

    def _write(
        self, module: fx.GraphModule, path: str, operands: Sequence[Any] | None
    ) -> Any:
        """Copy the nodes of a graph, and return the values that replace its output.

        Args:
            operands: the values that replace its inputs; None for the program's own
                graph.
        """
        new: dict[fx.Node, Any] = {}
        values = iter(operands or ())
        for node in module.graph.nodes:
            if node.op == "placeholder" and operands is not None:
                new[node] = next(values)
            elif node.op == "output":
                return fx.map_arg(node.args[0], new.__getitem__)
            elif path + node.name in self._taken:
                new[node] = self._inline(module, node, path, new)
            elif node.target is operator.getitem and isinstance(
                results := new[node.args[0]], (tuple, list)
            ):
                new[node] = results[node.args[1]]
            else:
                new[node] = self._copy(module, node, path, new)
        raise AssertionError("a graph without an output")

    def _inline(
        self,
        module: fx.GraphModule,
        cond: fx.Node,
        path: str,
        new: Mapping[fx.Node, Any],
    ) -> Any:
        path = path + cond.name
        _, *branches, operands = cond.args
        branch = branches[0] if self._taken[path] else branches[1]
        assert isinstance(branch, fx.Node)
        chosen = module.get_submodule(str(branch.target))
        assert isinstance(chosen, fx.GraphModule)
        values: Any = fx.map_arg(operands, new.__getitem__)
        return self._write(chosen, f"{path}.", values)

    def _copy(
        self,
        module: fx.GraphModule,
        node: fx.Node,
        path: str,
        new: Mapping[fx.Node, Any],
    ) -> fx.Node:
        copied = self._graph.node_copy(node, new.__getitem__)
        if node.op == "get_attr":
            attribute = f"{path}{node.target}".replace(".", "_")
            self._attributes[attribute] = getattr(module, str(node.target))
            copied.target = attribute
        return copied
