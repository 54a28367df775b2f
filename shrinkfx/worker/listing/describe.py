"""Conversion of a rebuilt candidate to a printed program, as data."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Refill
from shrinkfx.program.listing.printed_program import (
    MAIN,
    Block,
    Dim,
    InputOrWeight,
    PrintedProgram,
    Run,
)
from shrinkfx.program.listing.statements import Statement
from shrinkfx.program.listing.tensor_specs import Opaque, Saved, TensorSpec
from shrinkfx.protocol.listed import Listed
from shrinkfx.protocol.source import Expression, Input, Source, Weight
from shrinkfx.worker.eager.intermediates import compact
from shrinkfx.worker.graph.describe import dynamic_dims
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.listing.tensor_specs import (
    choose_seeded_initializer,
    key_of_weight,
    make_exact_spec,
)
from shrinkfx.worker.printing.graph import Unprintable, callee
from shrinkfx.worker.printing.module import export_source, is_identical, print_program


@dataclass(frozen=True)
class DescribedProgram:
    """A printed program, and the values that it refers to by key.

    Attributes:
        seeded: a rewrite that draws values from a seed, where no simple initializer
            makes the exact values.
        saved: the values of inputs by key; the values of weights stay in the exported
            program.
    """

    listing: PrintedProgram
    seeded: Rewrite
    saved: Mapping[str, torch.Tensor]

    def save_values(self, data: str) -> Listed:
        """Save the values, if there are any, to the file ``data``; return a message."""
        if self.saved:
            torch.save(dict(self.saved), data)
        return Listed(self.listing, self.seeded, data if self.saved else "")


def describe(built: RebuiltCandidate) -> DescribedProgram:
    """Convert a candidate to statements, and its inputs and weights to tensor specs.

    Raises:
        Unprintable, CannotRebuild: the candidate is not valid, or has no source form.
    """
    loose = export_source(built)[1] if dynamic_dims(built.exported) else frozenset()
    values = _Values()
    printed = print_program(built, loose=loose, write=values.note)
    entries = tuple(values.weight(each) for each in printed.weights)
    entries += values.inputs(printed)
    dims = tuple(map(_dim, printed.dims))
    try:
        listing = PrintedProgram(_blocks(printed, built), entries, dims).normalised()
    except (SyntaxError, ValueError, InvalidEdit) as error:
        raise Unprintable(f"it is not valid Python: {error}") from error
    remaining = {each.name for each in listing.given}
    seeded = (change for change in values.seeded if change.name in remaining)
    return DescribedProgram(listing, Rewrite(tuple(seeded)), values.saved)


class _Values:
    """The inputs and weights of a program, collected while it is printed.

    Attributes:
        saved: the values of inputs that have no simple initializer.
        seeded: seeded initializers that may replace long exact values.
    """

    def __init__(self) -> None:
        self._noted: list[Any] = []
        self.saved: dict[str, torch.Tensor] = {}
        self.seeded: list[Refill] = []

    def note(self, value: Any, device: str) -> Expression:
        """Store a value, and print its number as a placeholder."""
        self._noted.append(value)
        number = str(len(self._noted) - 1)
        return Expression(number, number)

    def weight(self, printed: Weight) -> InputOrWeight:
        """Describe a weight."""
        name, kind, text = printed.attribute, printed.kind, printed.text.exact
        if kind in ("script_object", "saved_object"):
            if not text:
                raise Unprintable(f"{name}, which is too large for a script")
            recipe = TensorSpec((), "", Opaque(text))
        else:
            value = self._noted[int(text)]
            recipe = make_exact_spec(value, key_of_weight(name))
            self._draw(name, recipe, value, None)
        return InputOrWeight(name, kind, ((Run.EXAMPLE, recipe),))

    def inputs(self, printed: Source) -> tuple[InputOrWeight, ...]:
        """Describe the inputs in all runs, with their dynamic dims."""
        shapes = ast.parse(printed.dynamic_shapes, mode="eval").body
        dims = shapes.elts if isinstance(shapes, ast.Tuple) else itertools.repeat(None)
        pairs = zip(printed.inputs, dims, strict=False)
        return tuple(self._input(each, _open_dims(spec)) for each, spec in pairs)

    def _input(
        self, printed: Input, dims: tuple[tuple[int, str], ...]
    ) -> InputOrWeight:
        texts = {
            Run.EXAMPLE: printed.example,
            Run.PASSING: printed.passing,
            Run.FAILING: printed.failing,
        }
        values = {
            r: self._noted[int(t.exact)] for r, t in texts.items() if t is not None
        }
        recipes = []
        for run, value in values.items():
            if run is not Run.EXAMPLE and is_identical(value, values[Run.EXAMPLE]):
                continue
            key = f"{run}_{printed.name}"
            recipe = make_exact_spec(value, key)
            recipes.append((run, recipe))
            self._draw(printed.name, recipe, value, run)
            if isinstance(recipe.fill, Saved):
                self.saved[key] = compact(value.detach())
        return InputOrWeight(printed.name, "input", tuple(recipes), dims)

    def _draw(self, name: str, recipe: TensorSpec, value: Any, run: Run | None) -> None:
        if fill := choose_seeded_initializer(value, recipe):
            self.seeded.append(Refill(name, fill, run))


def _open_dims(spec: ast.expr | None) -> tuple[tuple[int, str], ...]:
    """Read the dynamic dims of an input from its ``dynamic_shapes`` entry."""
    if not isinstance(spec, ast.Dict):
        return ()
    pairs = zip(spec.keys, spec.values, strict=True)
    return tuple((ast.literal_eval(k), ast.unparse(expr)) for k, expr in pairs if k)


def _dim(line: str) -> Dim:
    """Parse the declaration of a dim."""
    (tree,) = ast.parse(line).body
    assert isinstance(tree, ast.Assign)
    assert isinstance(tree.value, ast.Call)
    span = {word.arg: ast.literal_eval(word.value) for word in tree.value.keywords}
    return Dim(ast.unparse(tree.targets[0]), span.get("min", 0), span.get("max"))


def _blocks(printed: Source, built: RebuiltCandidate) -> tuple[Block, ...]:
    """Parse the statements, each block after the blocks that it calls."""
    effectful = set(_list_effectful_operators(built.exported.graph_module))
    inner = [_read_class(text, effectful) for text in printed.branches]
    arguments = tuple(each.name for each in printed.inputs)
    body = _statements(printed.body, effectful)
    main = Block(MAIN, arguments, tuple(printed.members.items()), body)
    return (*inner, main)


def _read_class(text: str, effectful: set[str]) -> Block:
    """Parse the class of a branch or loop body."""
    (tree,) = ast.parse(text).body
    assert isinstance(tree, ast.ClassDef)
    members = [
        (line.targets[0].attr, ast.unparse(line.value).removesuffix("()"))
        for line in ast.walk(tree.body[0])
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Attribute)
    ]
    forward = tree.body[-1]
    assert isinstance(forward, ast.FunctionDef)
    arguments = tuple(each.arg for each in forward.args.args[1:])
    lines = text.splitlines()[forward.lineno :]
    body = _statements(map(str.strip, lines), effectful)
    return Block(tree.name, arguments, tuple(members), body)


def _statements(lines: Iterable[str], effectful: set[str]) -> tuple[Statement, ...]:
    read = map(Statement.parse_line, lines)
    return tuple(
        replace(
            line,
            origin=line.origin if line.is_operator else "",
            acts=_acts(line, effectful),
        )
        for line in read
    )


def _acts(line: Statement, effectful: set[str]) -> bool:
    """Return whether a statement must stay even if nothing reads its result.

    Statements without a result stay in any case.
    """
    return line.yields and (line.callee in effectful or line.callee.startswith("self."))


def _list_effectful_operators(module: fx.GraphModule) -> Iterator[str]:
    """List the operators that mutate an argument, or return nothing."""
    for node in module.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        inner = getattr(module, str(node.target), None)
        if schema is not None and (schema.is_mutable or not schema.returns):
            yield callee(node.target)
        elif node.op == "get_attr" and isinstance(inner, fx.GraphModule):
            yield from _list_effectful_operators(inner)
