"""Printed programs without the names of the user's model.

h = torch.ops.aten.relu.default(token_ids)  # model.py:7, encoder    becomes
h = torch.ops.aten.relu.default(x)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, count

from shrinkfx.program.listing.names import FreshNames, Renamer, rename_words
from shrinkfx.protocol.source import Source

_KINDS = {
    "parameter": "weight",
    "trainable_parameter": "weight",
    "buffer": "buffer",
    "non_persistent_buffer": "buffer",
}
"""New names of weights by kind; every other kind is called ``constant``."""

_RUNS = ("example", "failing", "passing")


@dataclass(frozen=True)
class NewNames:
    """New names of inputs and weights, by old name."""

    inputs: Mapping[str, str]
    weights: Mapping[str, str]

    @property
    def in_file(self) -> dict[str, str]:
        """New names of the values in the data file of the program, by old name."""
        files = {f"weight_{old}": f"weight_{new}" for old, new in self.weights.items()}
        pairs = self.inputs.items()
        return files | {f"{r}_{old}": f"{r}_{new}" for r in _RUNS for old, new in pairs}


def anonymize(source: Source) -> tuple[Source, NewNames]:
    """Rename inputs, weights, dims and the arguments of branches; drop comments."""
    fresh = FreshNames(_names(source))
    inputs = {i.name: fresh.first(_letters("xyz")) for i in source.inputs}
    weights = {
        w.attribute: fresh.name(_KINDS.get(w.kind, "constant")) for w in source.weights
    }
    dims = {_declared(line): fresh.first(_letters("MKL")) for line in source.dims}
    values = inputs | dims | {f"self.{o}": f"self.{n}" for o, n in weights.items()}
    made = replace(
        source,
        inputs=tuple(replace(i, name=inputs[i.name]) for i in source.inputs),
        weights=tuple(
            replace(w, attribute=weights[w.attribute]) for w in source.weights
        ),
        branches=tuple(_branch(text) for text in source.branches),
        body=tuple(_statement(line, values) for line in source.body),
        dims=tuple(rename_words(line, dims) for line in source.dims),
        dynamic_shapes=rename_words(source.dynamic_shapes, dims),
    )
    return made, NewNames(inputs, weights)


def _letters(letters: str) -> Iterator[str]:
    return chain(letters, (f"{letters[0]}_{number}" for number in count(1)))


def _names(source: Source) -> set[str]:
    """Collect the names that stay: those of values, and of modules for branches."""
    remaining = set(source.members)
    for line in source.body:
        for node in ast.walk(ast.parse(line)):
            if isinstance(node, ast.Assign):
                remaining |= {
                    n.id for n in ast.walk(node.targets[0]) if isinstance(n, ast.Name)
                }
    return remaining - {i.name for i in source.inputs}


def _declared(line: str) -> str:
    return line.partition(" ")[0]


def _statement(line: str, names: Mapping[str, str]) -> str:
    return ast.unparse(Renamer(names).visit(ast.parse(line)))


def _branch(text: str) -> str:
    """Rename the arguments of a branch or loop body; drop comments."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            arguments = [each.arg for each in node.args.args if each.arg != "self"]
            inside = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            fresh = FreshNames(inside - {*arguments})
            names = {each: fresh.first(_letters("abc")) for each in arguments}
            for each in node.args.args:
                each.arg = names.get(each.arg, each.arg)
            Renamer(names).visit(node)
    return ast.unparse(tree)
