"""Changes: the smallest modifications of a printed program that an edit can contain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from typing import ClassVar

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.listing.names import require_defined
from shrinkfx.program.listing.printed_program import (
    Dim,
    InputOrWeight,
    PrintedProgram,
    Run,
    Statement,
    require_results,
    without_argument,
    without_result,
)
from shrinkfx.program.listing.tensor_specs import (
    Initializer,
    Opaque,
    Saved,
    TensorSpec,
    is_usual,
)
from shrinkfx.program.record import OneOf


@dataclass(frozen=True)
class Change(OneOf):
    """The smallest modification of a printed program.

    Attributes:
        SETS: the fields with what is new; the others are the place that it modifies.
    """

    TAG = "change"
    SETS: ClassVar[Set[str]] = frozenset()

    @property
    def place(self) -> tuple[object, ...]:
        """The place that it modifies; two changes of one place conflict."""
        fields = vars(self).items()
        return type(self), *(value for name, value in fields if name not in self.SETS)

    def apply(self, listing: PrintedProgram) -> PrintedProgram:
        """Return the changed printed program.

        Raises:
            InvalidEdit: it names something that does not exist, or cannot be changed.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class _SpecChange(Change):
    """A change of the tensor specs of an input or weight, in one run or in all."""

    name: str

    def apply(self, listing: PrintedProgram) -> PrintedProgram:
        tensor = listing.find(self.name)
        only = getattr(self, "run", None)
        for run, spec in tensor.recipes:
            if only in (None, run):
                tensor = tensor.with_recipe(run, self.changed(spec))
        return listing.with_given(tensor)

    def changed(self, spec: TensorSpec) -> TensorSpec:
        raise NotImplementedError


@dataclass(frozen=True)
class Resize(_SpecChange):
    """Change the size of a dim of an input or weight, in one run or in all."""

    SETS = frozenset({"size"})
    dim: int
    size: int
    run: Run | None = None

    def changed(self, spec: TensorSpec) -> TensorSpec:
        return spec.resized(self.dim, self.size)


@dataclass(frozen=True)
class Straighten(_SpecChange):
    """Make an input or weight contiguous.

    Attributes:
        in_order: keep the order of its dims in memory, and only remove gaps.
    """

    SETS = frozenset({"in_order"})
    in_order: bool = False

    def changed(self, spec: TensorSpec) -> TensorSpec:
        return spec.contiguous(in_order=self.in_order)


@dataclass(frozen=True)
class Refill(_SpecChange):
    """Change the initializer of an input or weight, in one run or in all."""

    SETS = frozenset({"fill"})
    fill: Initializer
    run: Run | None = None

    def changed(self, spec: TensorSpec) -> TensorSpec:
        return spec.filled(self.fill)


@dataclass(frozen=True)
class Cast(_SpecChange):
    """Change the dtype of an input or weight."""

    SETS = frozenset({"dtype"})
    dtype: str

    def changed(self, spec: TensorSpec) -> TensorSpec:
        return replace(spec, dtype=self.dtype)


@dataclass(frozen=True)
class Fix(Change):
    """Make a dim of an input static."""

    name: str
    dim: int

    def apply(self, listing: PrintedProgram) -> PrintedProgram:
        tensor = listing.find(self.name)
        dims = tuple(pair for pair in tensor.open_dims if pair[0] != self.dim)
        return listing.with_given(replace(tensor, open_dims=dims))


@dataclass(frozen=True)
class Squeeze(Change):
    """Remove a static dim of size 1 from an input or weight."""

    name: str
    dim: int

    def apply(self, listing: PrintedProgram) -> PrintedProgram:
        tensor = listing.find(self.name)
        if not _can_go(tensor, self.dim):
            raise InvalidEdit(f"{self.name} needs its dim {self.dim}")
        for run, spec in tensor.recipes:
            tensor = tensor.with_recipe(run, _without(spec, self.dim))
        dims = ((d - (d > self.dim), how) for d, how in tensor.open_dims)
        return listing.with_given(replace(tensor, open_dims=tuple(dims)))


@dataclass(frozen=True)
class Declare(Change):
    """Change the declared range of a dynamic dim."""

    SETS = frozenset({"low", "high"})
    name: str
    low: int
    high: int | None

    def apply(self, listing: PrintedProgram) -> PrintedProgram:
        new = Dim(self.name, self.low, self.high)
        if self.name not in {dim.name for dim in listing.dims}:
            raise InvalidEdit(f"there is no dim {self.name}")
        dims = (new if dim.name == self.name else dim for dim in listing.dims)
        return replace(listing, dims=tuple(dims))


@dataclass(frozen=True)
class Write(Change):
    """Replace a leaf of a statement; '' removes it.

    Attributes:
        block: the name of the block.
        statement: the name of the statement.
        leaf: the number of the leaf.
    """

    SETS = frozenset({"text"})
    block: str
    statement: str
    leaf: int
    text: str


@dataclass(frozen=True)
class Convert(Change):
    """Change the kind of a weight, or make it an input, which is then renamed."""

    SETS = frozenset({"kind"})
    name: str
    kind: str

    def apply(self, listing: PrintedProgram) -> PrintedProgram:
        tensor, main, name = listing.find(self.name), listing.main, self.name
        if tensor.is_input:
            raise InvalidEdit(f"{name} is an input already")
        tensor = replace(tensor, kind=self.kind)
        if not tensor.is_input:
            return listing.with_given(tensor)
        if name in {*main.arguments, *(line.name for line in main.statements)}:
            raise InvalidEdit(f"another value is called {name}")
        lines = tuple(_renamed(line, f"self.{name}", name) for line in main.statements)
        rest = tuple(each for each in listing.given if each.name != name)
        main = replace(main, arguments=(*main.arguments, name), statements=lines)
        return replace(listing, given=(*rest, tensor)).with_block(main)


@dataclass(frozen=True)
class DropResult(Change):
    """Remove an unread result from a call and from the blocks that it calls.

    Attributes:
        block: the name of the block that contains the call.
        statement: the name of the call.
        result: the number of the result; for a loop, also that of the carried value.
    """

    block: str
    statement: str
    result: int

    def apply(self, listing: PrintedProgram) -> PrintedProgram:
        return without_result(listing, self.block, self.statement, self.result)


@dataclass(frozen=True)
class DropArgument(Change):
    """Remove an unread argument from a branch or loop body, and from its calls."""

    block: str
    name: str

    def apply(self, listing: PrintedProgram) -> PrintedProgram:
        return without_argument(listing, self.block, self.name)


_IN_ORDER = (
    *(Resize, Straighten, Refill, Cast, Fix, Squeeze, Declare, Convert),
    *(DropResult, DropArgument),
)
"""The order in which changes are applied, after those of statements.

Sizes come before initializers, because resizing drops elements. Arguments come last,
because a removed result may have been the only reader of an argument.
"""


def apply_changes(listing: PrintedProgram, changes: Iterable[Change]) -> PrintedProgram:
    """Apply all changes at once; their order does not matter.

    Raises:
        InvalidEdit: a change names something that does not exist, two changes conflict,
            a statement would read a value that is not defined before it, or no operator
            or no result would remain.
    """
    wanted: dict[tuple[object, ...], Change] = {}
    for change in changes:
        if wanted.setdefault(change.place, change) != change:
            raise InvalidEdit(f"two changes of one place: {change}")
    # All at once, because the numbers of leaves refer to the unchanged statement.
    writes = [change for change in wanted.values() if isinstance(change, Write)]
    changed = _apply_writes(listing, writes)
    others = (change for change in wanted.values() if not isinstance(change, Write))
    for change in sorted(others, key=_rank):
        changed = change.apply(changed)
    changed = changed.normalised()
    require_defined(changed)
    require_results(listing, changed)
    return changed


def _rank(change: Change) -> tuple[int, int, str]:
    """Rank a change; among results of one call, or dims, the last comes first."""
    place = change.result if isinstance(change, DropResult) else 0
    place = change.dim if isinstance(change, Squeeze) else place
    return _IN_ORDER.index(type(change)), -place, str(change)


def _apply_writes(listing: PrintedProgram, changes: Iterable[Write]) -> PrintedProgram:
    texts: dict[tuple[str, str], dict[int, str]] = {}
    for change in changes:
        where = texts.setdefault((change.block, change.statement), {})
        where[change.leaf] = change.text
    for (name, statement), written in texts.items():
        block = listing.block(name)
        new = block.statement(statement).written(written)
        lines = tuple(new if s.name == statement else s for s in block.statements)
        listing = listing.with_block(replace(block, statements=lines))
    return listing


def _renamed(line: Statement, old: str, new: str) -> Statement:
    texts = {leaf.number: new for leaf in line.leaves if leaf.text == old}
    return line.written(texts) if texts else line


def needless(listing: PrintedProgram) -> list[tuple[str, int]]:
    """List the removable dims, each with its input or weight; one dim must stay."""
    return [
        (tensor.name, dim)
        for tensor in listing.given
        for dim in range(len(tensor.recipe().shape))
        if _can_go(tensor, dim)
    ]


def _can_go(tensor: InputOrWeight, dim: int) -> bool:
    recipes = [recipe for _, recipe in tensor.recipes]
    return dim not in dict(tensor.open_dims) and all(
        not isinstance(recipe.fill, (Opaque, Saved))
        and len(recipe.shape) > 1
        and recipe.shape[dim : dim + 1] == (1,)
        for recipe in recipes
    )


def _without(recipe: TensorSpec, dim: int) -> TensorSpec:
    shape = _cut(recipe.shape, dim)
    if recipe.stride is None:
        return replace(recipe, shape=shape)
    stride = _cut(recipe.stride, dim)
    return replace(
        recipe, shape=shape, stride=None if is_usual(shape, stride) else stride
    )


def _cut(items: Sequence[int], place: int) -> tuple[int, ...]:
    return (*items[:place], *items[place + 1 :])
