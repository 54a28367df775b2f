"""Names in a printed program, and the order of its statements."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Self

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.listing.printed_program import (
    Block,
    PrintedProgram,
    Statement,
    projections,
)

# add_13 = torch.ops.aten.add.Tensor(arg7_1, self.p_a_0_b)    becomes add =
# torch.ops.aten.add.Tensor(x, self.weight)

_BUILT_IN = frozenset(dir(builtins))
_TAKEN = _BUILT_IN | {*keyword.kwlist, *keyword.softkwlist}
_TAKEN |= {"torch", "self", "operator", "math", "data"}
"""Names that have a meaning already."""

_ATTRIBUTES = {
    "parameter": "weight",
    "trainable_parameter": "weight",
    "buffer": "buffer",
    "non_persistent_buffer": "buffer",
    "constant": "constant",
}
"""Attribute names of weights by kind; the other kinds are called ``object``."""


def require_defined(listing: PrintedProgram) -> None:
    """Check that each statement reads only names that are defined before it.

    Raises:
        InvalidEdit: a statement reads an undefined name.
    """
    weights = {weight.spelling for weight in listing.weights}
    for block in listing.blocks:
        known = {*block.arguments, *(f"self.{name}" for name, _ in block.members)}
        known |= weights if block is listing.main else set()
        for statement in block.statements:
            if unknown := sorted(statement.reads - known - _BUILT_IN):
                raise InvalidEdit(f"nothing before {statement.name} is {unknown[0]}")
            known.add(statement.name)


@dataclass(frozen=True)
class Names:
    """Maps from old names to new ones, applied simultaneously.

    Attributes:
        values: for each block, the names of its values as statements spell them; the
            main block includes weights.
        dims: the names of dynamic dims.
    """

    values: Mapping[str, Mapping[str, str]]
    dims: Mapping[str, str]

    def inverse(self) -> Self:
        """Return the inverse maps, from new names to old ones."""
        values = {block: _turned(names) for block, names in self.values.items()}
        return replace(self, values=values, dims=_turned(self.dims))


def short_names(listing: PrintedProgram) -> Names:
    """Choose short names: x, y, z for inputs, and the operator's name for other values.

    Classes, and attributes that hold branches and loop bodies, keep their names. If
    other dims are derived from a dim, it is not named N, because export parses its name
    with SymPy, where N is a function.
    """
    values = {block.name: dict(_values(block)) for block in listing.blocks}
    fresh = FreshNames(name for name, _ in listing.main.members)
    for weight in listing.weights:
        attribute = fresh.name(_ATTRIBUTES.get(weight.kind, "object"))
        values[listing.main.name][weight.spelling] = f"self.{attribute}"
    dims = [dim.name for dim in listing.dims]
    derived = any(
        how not in dims for each in listing.given for _, how in each.open_dims
    )
    letters = _letters("MKL" if derived else "NMKL")
    return Names(values, dict(zip(dims, letters, strict=False)))


def rename_values(listing: PrintedProgram, names: Names) -> PrintedProgram:
    """Return the printed program with new names."""
    renamed = names.values[listing.main.name]
    tensors = tuple(
        replace(
            each,
            name=renamed[each.spelling].removeprefix("self."),
            open_dims=tuple(
                (d, rename_words(how, names.dims)) for d, how in each.open_dims
            ),
        )
        for each in listing.given
    )
    dims = tuple(replace(dim, name=names.dims[dim.name]) for dim in listing.dims)
    blocks = tuple(_block(block, names.values[block.name]) for block in listing.blocks)
    return PrintedProgram(blocks, tensors, dims)


class FreshNames:
    """A generator of unused names: ``view``, ``view_1`` and so on."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {*_TAKEN, *taken}

    def name(self, base: str) -> str:
        tries = chain([base], (f"{base}_{number}" for number in count(1)))
        return self.first(tries)

    def first(self, names: Iterable[str]) -> str:
        """Return the first unused name."""
        chosen = next(name for name in names if name not in self._taken)
        self._taken.add(chosen)
        return chosen


def _letters(first: str) -> Iterator[str]:
    """Yield the letters, and then the first letter with numbers."""
    yield from first
    yield from (f"{first[0]}{number}" for number in count(1))


def _values(block: Block) -> Iterator[tuple[str, str]]:
    fresh, names = FreshNames(), {}
    for argument, letter in zip(block.arguments, _letters("xyz"), strict=False):
        names[argument] = fresh.name(letter)
    for statement in block.statements:
        if statement.yields:
            names[statement.name] = fresh.name(_base(statement, names))
    yield from names.items()


def _base(statement: Statement, known: Mapping[str, str]) -> str:
    """Return the base of a value's name: its operator, or a result number."""
    if match := re.fullmatch(r"(\w+)\[(\d+)\]", statement.code):
        return f"{known.get(match[1], match[1])}_{match[2]}"
    match statement.callee.split("."):
        case ["torch", "ops", "higher_order", name] | ["torch", "cond" as name]:
            return name
        case ["torch", "ops", _, name, *_]:
            return name.strip("_") or "value"
        case ["self", _, method]:
            return method
    return "size"


def _turned(names: Mapping[str, str]) -> dict[str, str]:
    return {new: old for old, new in names.items()}


def rename_words(text: str, names: Mapping[str, str]) -> str:
    """Rename all identifiers in a text."""
    return re.sub(r"\b[A-Za-z_]\w*", lambda word: names.get(word[0], word[0]), text)


def _block(block: Block, names: Mapping[str, str]) -> Block:
    return replace(
        block,
        arguments=tuple(names[argument] for argument in block.arguments),
        statements=tuple(_statement(line, names) for line in block.statements),
    )


def _statement(statement: Statement, names: Mapping[str, str]) -> Statement:
    tree = ast.parse(statement.code, mode="eval").body
    made = replace(statement, code=ast.unparse(Renamer(names).visit(tree)))
    if statement.yields:
        return replace(made, name=names[statement.name])
    is_call = statement.name == statement.callee
    return replace(made, name=made.callee) if is_call else made


class Renamer(ast.NodeTransformer):
    """Renames values, as statements spell them: ``x`` and ``self.weight``."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        new = self._names.get(ast.unparse(node))
        if new is None:
            return self.generic_visit(node)
        return ast.parse(new, mode="eval").body


# Sort statements into the order of use: each right before its first reader.
#
#     a = relu(x)              a = relu(x)
#     b = exp(y)               c = neg(a)
#     c = neg(a)    becomes    b = exp(y)
#     d = add(c, b)            d = add(c, b)
#
# This is not a step of the search, because it does not lower the cost. It is done
# once, when the repro is written.


def sort_by_use(listing: PrintedProgram) -> PrintedProgram:
    """Sort statements, and the arguments of the main block, into the order of use.

    A block with a statement that has side effects is left unchanged.
    """
    blocks = tuple(_sort_block(block) for block in listing.blocks)
    main = blocks[-1]
    first = {name: place for place, name in enumerate(_read_in_order(main))}
    arguments = tuple(sorted(main.arguments, key=lambda name: first.get(name, -1)))
    by_name = {tensor.name: tensor for tensor in listing.inputs}
    return replace(
        listing,
        blocks=(*blocks[:-1], replace(main, arguments=arguments)),
        given=(*listing.weights, *(by_name[name] for name in arguments)),
    )


def _sort_block(block: Block) -> Block:
    *lines, last = block.statements
    if any(line.may_have_effects or not line.yields for line in lines):
        return block
    known = {line.name: line for line in lines}
    results = {line.name: projections(block, line.name) for line in lines}
    read = frozenset[str]().union(*(line.reads for line in block.statements))
    placed: dict[str, Statement] = {}
    for root in (*(line for line in lines if line.name not in read), last):
        _place(root, known, placed)
    moved = {result.name for each in results.values() for result in each.values()}
    ordered = [
        each
        for line in placed.values()
        if line.name not in moved
        for each in (line, *_in_turn(results.get(line.name, {})))
    ]
    return replace(block, statements=tuple(ordered))


def _in_turn(results: Mapping[int, Statement]) -> list[Statement]:
    """List projections in order, right after their operator, as an export does."""
    return [results[number] for number in sorted(results)]


def _place(
    root: Statement, known: Mapping[str, Statement], placed: dict[str, Statement]
) -> None:
    """Place the operands of a statement, depth first, and then the statement."""
    waiting = [(root, iter(_reads(root)))]
    while waiting:  # no recursion, because a program may be long
        statement, operands = waiting[-1]
        operand = next((o for o in operands if o in known and o not in placed), None)
        if operand is not None:
            waiting.append((known[operand], iter(_reads(known[operand]))))
        else:
            waiting.pop()
            placed[statement.name] = statement


def _reads(statement: Statement) -> list[str]:
    """List the names that a statement reads, in text order."""
    texts = [leaf.text for leaf in statement.leaves if leaf.text in statement.reads]
    return list(dict.fromkeys([*texts, *sorted(statement.reads)]))


def _read_in_order(block: Block) -> list[str]:
    reads = [name for statement in block.statements for name in _reads(statement)]
    return list(dict.fromkeys(reads))
