"""Printed programs without the names of the user's model.

h = torch.ops.aten.relu.default(token_ids)  # model.py:7, encoder    becomes
h = torch.ops.aten.relu.default(x)
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, count

from shrinkfx.protocol.source import Input, Source

_TAKEN = {*dir(builtins), *keyword.kwlist, "torch", "self", "operator", "math", "data"}
"""Words that cannot be the name of a value."""

_KINDS = {
    "parameter": "weight",
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
    fresh = _FreeNames(_names(source))
    inputs = {
        i.name: name for i, name in zip(source.inputs, fresh("xyz"), strict=False)
    }
    weights = {
        w.attribute: next(fresh([_KINDS.get(w.kind, "constant")]))
        for w in source.weights
    }
    dims = {_declared(line): next(fresh("MKL")) for line in source.dims}
    words = {**inputs, **dims}
    made = replace(
        source,
        inputs=tuple(_input(each, words) for each in source.inputs),
        weights=tuple(
            replace(w, attribute=weights[w.attribute]) for w in source.weights
        ),
        branches=tuple(_branch(text) for text in source.branches),
        body=tuple(_statement(line, words, weights) for line in source.body),
        dims=tuple(_words(line, dims) for line in source.dims),
        dynamic_shapes=_words(source.dynamic_shapes, dims),
    )
    return made, NewNames(inputs, weights)


class _FreeNames:
    """Free names: the requested words, then the first word with numbers."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = {*_TAKEN, *taken}

    def __call__(self, words: Iterable[str]) -> Iterator[str]:
        first, *others = words
        for name in chain([first], others, (f"{first}_{n}" for n in count(1))):
            if name not in self._taken:
                self._taken.add(name)
                yield name


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


def _input(old: Input, words: Mapping[str, str]) -> Input:
    return replace(old, name=words[old.name])


def _declared(line: str) -> str:
    return line.partition(" ")[0]


def _words(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\b[A-Za-z_]\w*", lambda word: names.get(word[0], word[0]), text)


def _statement(line: str, words: Mapping[str, str], weights: Mapping[str, str]) -> str:
    return ast.unparse(_Renamer(words, weights).visit(ast.parse(line)))


def _branch(text: str) -> str:
    """Rename the arguments of a branch or loop body; drop comments."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            arguments = [each.arg for each in node.args.args if each.arg != "self"]
            inside = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            new = _FreeNames(inside - {*arguments})("abc")
            names = dict(zip(arguments, new, strict=False))
            for each in node.args.args:
                each.arg = names.get(each.arg, each.arg)
            _Renamer(names, {}).visit(node)
    return ast.unparse(tree)


class _Renamer(ast.NodeTransformer):
    def __init__(self, words: Mapping[str, str], weights: Mapping[str, str]) -> None:
        self._words, self._weights = words, weights

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._words.get(node.id, node.id), node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        of_self = isinstance(node.value, ast.Name) and node.value.id == "self"
        if of_self and node.attr in self._weights:
            return ast.Attribute(node.value, self._weights[node.attr], node.ctx)
        return self.generic_visit(node)
