"""The printed program: statements, and the tensor specs of inputs and weights.

It is the form in which people read a program, as data. Only the worker knows the
semantics of operators and whether a printed program is valid; this module knows only
names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Self

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.listing.statements import Statement
from shrinkfx.program.listing.tensor_specs import TensorSpec

MAIN = "Repro"
"""The block that is run; the others are called by its higher-order operators."""


class Run(StrEnum):
    """A call of the program; an input may have other values in each call."""

    EXAMPLE = "example"
    """The inputs that the program is exported with."""
    PASSING = "passing"
    """An earlier call, on which the program passes."""
    FAILING = "failing"
    """The failing call; an input without its own value has that of the example."""


@dataclass(frozen=True)
class InputOrWeight:
    """An input or a weight.

    Attributes:
        kind: ``input``, ``parameter``, ``buffer``, ``non_persistent_buffer``,
            ``constant``, ``script_object`` or ``saved_object``.
        recipes: tensor specs by run; a weight has only that of the example.
        open_dims: dynamic dims, each with the expression of its declaration.
    """

    name: str
    kind: str
    recipes: tuple[tuple[Run, TensorSpec], ...]
    open_dims: tuple[tuple[int, str], ...] = ()

    @property
    def is_input(self) -> bool:
        return self.kind == "input"

    @property
    def spelling(self) -> str:
        """The expression that statements use for it."""
        return self.name if self.is_input else f"self.{self.name}"

    def recipe(self, run: Run = Run.EXAMPLE) -> TensorSpec:
        """Return the tensor spec in a run."""
        known = dict(self.recipes)
        return known.get(run, known[Run.EXAMPLE])

    def with_recipe(self, run: Run, recipe: TensorSpec) -> Self:
        """Change the tensor spec in a run; one that equals the example's is dropped."""
        known = {**dict(self.recipes), run: recipe}
        example = known[Run.EXAMPLE]
        pairs = [(r, known[r]) for r in Run if r in known]
        unique = [(r, spec) for r, spec in pairs if r is Run.EXAMPLE or spec != example]
        return replace(self, recipes=tuple(unique))

    def with_single_run(self, run: Run) -> Self:
        """Make the values of a run the failing ones, and drop those of other runs."""
        example = ((Run.EXAMPLE, self.recipe()),)
        alone = replace(self, recipes=example)
        return alone.with_recipe(Run.FAILING, self.recipe(run))


@dataclass(frozen=True)
class Dim:
    """The declaration of a dynamic dim.

    Attributes:
        high: the upper bound; None if there is none.
    """

    name: str
    low: int
    high: int | None

    def holds(self, size: int) -> bool:
        return self.low <= size and (self.high is None or size <= self.high)

    def line(self) -> str:
        span = [f"min={self.low}"] if self.low > 0 else []
        span += [] if self.high is None else [f"max={self.high}"]
        return f"{self.name} = torch.export.Dim({', '.join([f'{self.name!r}', *span])})"


@dataclass(frozen=True)
class Block:
    """The ``forward`` of a module: of the program, or of a branch or loop body.

    Attributes:
        name: the name of the class.
        members: attribute and class of each submodule.
        statements: the statements; the last one is the return.
    """

    name: str
    arguments: tuple[str, ...]
    members: tuple[tuple[str, str], ...]
    statements: tuple[Statement, ...]

    def statement(self, name: str) -> Statement:
        """Return the statement with a name.

        Raises:
            InvalidEdit: there is none.
        """
        for each in self.statements:
            if each.name == name:
                return each
        raise InvalidEdit(f"{self.name} has no statement {name}")

    @cached_property
    def needed_statements(self) -> tuple[Statement, ...]:
        """The statements that are needed by the return or have side effects."""
        names: set[str] = set()
        needed = []
        for statement in reversed(self.statements):
            if (
                not statement.yields
                or statement.name in names
                or statement.may_have_effects
            ):
                needed.append(statement)
                names |= statement.reads
        return tuple(reversed(needed))

    def normalised(self) -> Self:
        """Remove unneeded statements and members.

        The arguments stay, because callers pass them.
        """
        reads = frozenset[str]().union(*(s.reads for s in self.needed_statements))
        members = [pair for pair in self.members if f"self.{pair[0]}" in reads]
        return replace(self, members=tuple(members), statements=self.needed_statements)


@dataclass(frozen=True)
class PrintedProgram:
    """A program as statements, with its inputs and weights.

    Attributes:
        blocks: the blocks; each follows those that it calls, so ``MAIN`` is last.
        given: the weights, then the arguments of ``forward`` in order.
        dims: the declarations that ``open_dims`` refer to.
    """

    blocks: tuple[Block, ...]
    given: tuple[InputOrWeight, ...]
    dims: tuple[Dim, ...] = ()

    @property
    def main(self) -> Block:
        return self.blocks[-1]

    @property
    def nbytes(self) -> int:
        """The bytes of all inputs and weights, in all runs."""
        return sum(recipe.nbytes for each in self.given for _, recipe in each.recipes)

    def block(self, name: str) -> Block:
        """Return the block with a name.

        Raises:
            InvalidEdit: there is none.
        """
        for each in self.blocks:
            if each.name == name:
                return each
        raise InvalidEdit(f"there is no block {name}")

    def find(self, name: str) -> InputOrWeight:
        """Return the input or weight with a name.

        Raises:
            InvalidEdit: there is none.
        """
        for each in self.given:
            if each.name == name:
                return each
        raise InvalidEdit(f"there is no input or weight {name}")

    @property
    def inputs(self) -> tuple[InputOrWeight, ...]:
        return tuple(each for each in self.given if each.is_input)

    @property
    def weights(self) -> tuple[InputOrWeight, ...]:
        return tuple(each for each in self.given if not each.is_input)

    def operators(self) -> Iterator[tuple[Block, Statement]]:
        """Yield the operators of all blocks, in order."""
        lines = ((block, line) for block in self.blocks for line in block.statements)
        yield from ((block, line) for block, line in lines if line.is_operator)

    def with_single_run(self, run: Run) -> Self:
        """Return the program with the inputs of one run as its only inputs."""
        return replace(
            self, given=tuple(each.with_single_run(run) for each in self.given)
        )

    def normalised(self) -> Self:
        """Remove unneeded statements, blocks, inputs and dims.

        Raises:
            InvalidEdit: no operator would remain.
        """
        main = self.main.normalised()
        reads = frozenset[str]().union(*(s.reads for s in main.statements))
        tensors = tuple(each for each in self.given if each.spelling in reads)
        arguments = tuple(name for name in main.arguments if name in reads)
        declared = " ".join(how for each in tensors for _, how in each.open_dims)
        named = set(re.findall(r"\w+", declared))
        if not any(s.is_operator for s in main.statements):
            raise InvalidEdit("nothing would be left")
        return replace(
            self,
            blocks=(*_called(main, self.blocks), replace(main, arguments=arguments)),
            given=tensors,
            dims=tuple(dim for dim in self.dims if dim.name in named),
        )

    @cached_property
    def cost(self) -> tuple[int, int, int, int]:
        """The cost that an edit may lower, compared lexicographically.

        It consists of the number of operators, the number of elements of inputs and
        weights, the complexity of specs, statements and arguments, and the sum of the
        integers in statements. It counts elements and not bytes, because a simple dtype
        may need more bytes, and a contiguous tensor more than an expanded one.
        """
        operators = sum(1 for _ in self.operators())
        recipes = [recipe for each in self.given for _, recipe in each.recipes]
        plainness = sum(recipe.complexity for recipe in recipes)
        plainness += sum(s.weight for block in self.blocks for s in block.statements)
        plainness += sum(16 + 4 * len(each.open_dims) for each in self.given)
        plainness += 4 * len(self.weights) + sum(len(dim.line()) for dim in self.dims)
        elements = sum(recipe.elements for recipe in recipes)
        total = sum(s.total for block in self.blocks for s in block.statements)
        return operators, elements, plainness, total

    def with_block(self, block: Block) -> Self:
        """Replace the block of the same name."""
        blocks = tuple(block if b.name == block.name else b for b in self.blocks)
        return replace(self, blocks=blocks)

    def with_given(self, tensor: InputOrWeight) -> Self:
        """Replace the input or weight of the same name."""
        tensors = tuple(tensor if g.name == tensor.name else g for g in self.given)
        return replace(self, given=tensors)

    def to_json(self) -> dict[str, Any]:
        return {
            "blocks": [_block_to_json(block) for block in self.blocks],
            "given": [_given_to_json(each) for each in self.given],
            "dims": [[dim.name, dim.low, dim.high] for dim in self.dims],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            tuple(_block_from_json(block) for block in data["blocks"]),
            tuple(_given_from_json(each) for each in data["given"]),
            tuple(Dim(*dim) for dim in data["dims"]),
        )


def _called(main: Block, blocks: Sequence[Block]) -> list[Block]:
    """List the blocks that a block calls, also indirectly, in normal form."""
    wanted = {kind for _, kind in main.members}
    called = []
    for block in reversed(blocks[:-1]):
        if block.name in wanted:
            called.append(block.normalised())
            wanted |= {kind for _, kind in called[-1].members}
    return called[::-1]


def _block_to_json(block: Block) -> dict[str, Any]:
    lines = [line.to_json() for line in block.statements]
    return {
        "name": block.name,
        "arguments": list(block.arguments),
        "members": [list(pair) for pair in block.members],
        "statements": lines,
    }


def _block_from_json(data: Mapping[str, Any]) -> Block:
    return Block(
        data["name"],
        tuple(data["arguments"]),
        tuple((attribute, kind) for attribute, kind in data["members"]),
        tuple(Statement(*line) for line in data["statements"]),
    )


def _given_to_json(tensor: InputOrWeight) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "kind": tensor.kind,
        "recipes": {run.value: recipe.to_json() for run, recipe in tensor.recipes},
        "open_dims": [[dim, how] for dim, how in tensor.open_dims],
    }


def _given_from_json(data: Mapping[str, Any]) -> InputOrWeight:
    return InputOrWeight(
        data["name"],
        data["kind"],
        tuple(
            (Run(run), TensorSpec.from_json(r)) for run, r in data["recipes"].items()
        ),
        tuple((dim, how) for dim, how in data["open_dims"]),
    )
