"""Changes: the smallest modifications of a printed program that an edit can contain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.listing.names import require_defined
from shrinkfx.program.listing.printed_program import (
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


@dataclass(frozen=True)
class Write:
    """Replace a leaf of a statement; '' removes it.

    Attributes:
        block: the name of the block.
        statement: the name of the statement.
        leaf: the number of the leaf.
    """

    block: str
    statement: str
    leaf: int
    text: str


@dataclass(frozen=True)
class Resize:
    """Change the size of a dim of an input or weight, in one run or in all."""

    name: str
    dim: int
    size: int
    run: Run | None = None


@dataclass(frozen=True)
class Refill:
    """Change the initializer of an input or weight, in one run or in all."""

    name: str
    fill: Initializer
    run: Run | None = None


@dataclass(frozen=True)
class Cast:
    """Change the dtype of an input or weight."""

    name: str
    dtype: str


@dataclass(frozen=True)
class Straighten:
    """Make an input or weight contiguous.

    Attributes:
        in_order: keep the order of its dims in memory, and only remove gaps.
    """

    name: str
    in_order: bool = False


@dataclass(frozen=True)
class Convert:
    """Change the kind of a weight, or make it an input."""

    name: str
    kind: str


@dataclass(frozen=True)
class Declare:
    """Change the declared range of a dynamic dim."""

    name: str
    low: int
    high: int | None


@dataclass(frozen=True)
class Fix:
    """Make a dim of an input static."""

    name: str
    dim: int


@dataclass(frozen=True)
class Squeeze:
    """Remove a static dim of size 1 from an input or weight."""

    name: str
    dim: int


@dataclass(frozen=True)
class DropArgument:
    """Remove an unread argument from a branch or loop body, and from its calls."""

    block: str
    name: str


@dataclass(frozen=True)
class DropResult:
    """Remove an unread result from a call and from the blocks that it calls.

    Attributes:
        block: the name of the block that contains the call.
        statement: the name of the call.
        place: the number of the result; for a loop, also that of the carried value.
    """

    block: str
    statement: str
    place: int


Change = (
    Resize
    | Straighten
    | Refill
    | Cast
    | Fix
    | Squeeze
    | Declare
    | Write
    | Convert
    | DropResult
    | DropArgument
)

_IN_ORDER: tuple[type[Change], ...] = get_args(Change)
"""The order in which changes are applied.

Sizes come before initializers, because resizing drops elements. Arguments come last,
because a removed result may have been the only reader of an argument.
"""

_KINDS: Mapping[str, type[Change]] = {kind.__name__: kind for kind in _IN_ORDER}


def change_to_json(change: Change) -> dict[str, Any]:
    fields = dict(vars(change))
    if isinstance(change, Refill):
        fields["fill"] = change.fill.to_json()
    return {"change": type(change).__name__, **fields}


def change_from_json(data: Mapping[str, Any]) -> Change:
    """Read a change of any kind.

    Raises:
        KeyError: there is no such kind.
    """
    fields = {name: value for name, value in data.items() if name != "change"}
    if "fill" in fields:
        fields["fill"] = Initializer.from_json(fields["fill"])
    if fields.get("run") is not None:
        fields["run"] = Run(fields["run"])
    return _KINDS[data["change"]](**fields)


def place_of(change: Change) -> tuple[object, ...]:
    """Return the place that a change modifies; two changes of one place conflict."""
    match change:
        case Write(block, statement, leaf):
            return Write, block, statement, leaf
        case Resize(name, dim, _, run):
            return Resize, name, dim, run
        case Refill(name, _, run):
            return Refill, name, run
        case Fix(name, dim) | Squeeze(name, dim):
            return type(change), name, dim
        case DropArgument(block, name):
            return DropArgument, block, name
        case DropResult(block, statement, place):
            return DropResult, block, statement, place
    return type(change), change.name


def apply_changes(listing: PrintedProgram, changes: Iterable[Change]) -> PrintedProgram:
    """Apply all changes at once; their order does not matter.

    Raises:
        InvalidEdit: a change names something that does not exist, two changes conflict,
            a statement would read a value that is not defined before it, or no operator
            or no result would remain.
    """
    before = listing
    wanted: dict[tuple[object, ...], Change] = {}
    for change in changes:
        if wanted.setdefault(place_of(change), change) != change:
            raise InvalidEdit(f"two changes of one place: {change}")
    written = [change for change in wanted.values() if isinstance(change, Write)]
    # All at once, because the numbers of leaves refer to the unchanged statement.
    listing = _apply_writes(listing, written)
    for change in _sort_changes(wanted.values()):
        match change:
            case Write():
                continue
            case Declare():
                listing = _apply_declaration(listing, change)
            case Convert(name, kind):
                listing = _convert_weight(listing, name, kind)
            case DropArgument(block, name):
                listing = without_argument(listing, block, name)
            case DropResult(block, statement, place):
                listing = without_result(listing, block, statement, place)
            case _:
                tensor = _apply_to_spec(listing.find(change.name), change)
                listing = listing.with_given(tensor)
    listing = listing.normalised()
    require_defined(listing)
    require_results(before, listing)
    return listing


def _sort_changes(changes: Iterable[Change]) -> list[Change]:
    """Sort changes; among results of one call, or dims, the last comes first."""

    def key(change: Change) -> tuple[int, int, str]:
        place = change.place if isinstance(change, DropResult) else 0
        place = change.dim if isinstance(change, Squeeze) else place
        return _IN_ORDER.index(type(change)), -place, str(change)

    return sorted(changes, key=key)


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


def _apply_to_spec(tensor: InputOrWeight, change: Change) -> InputOrWeight:
    match change:
        case Resize(_, dim, size, run):
            for each, recipe in tensor.recipes:
                if run in (None, each):
                    tensor = tensor.with_recipe(each, recipe.resized(dim, size))
        case Refill(_, fill, run):
            for each, recipe in tensor.recipes:
                if run in (None, each):
                    tensor = tensor.with_recipe(each, recipe.filled(fill))
        case Cast(_, dtype):
            for each, recipe in tensor.recipes:
                tensor = tensor.with_recipe(each, replace(recipe, dtype=dtype))
        case Straighten(_, in_order):
            for each, recipe in tensor.recipes:
                tensor = tensor.with_recipe(each, recipe.contiguous(in_order=in_order))
        case Fix(_, dim):
            dims = tuple(pair for pair in tensor.open_dims if pair[0] != dim)
            return replace(tensor, open_dims=dims)
        case Squeeze(_, dim):
            return squeeze_dim(tensor, dim)
    return tensor


def _apply_declaration(listing: PrintedProgram, change: Declare) -> PrintedProgram:
    if change.name not in {dim.name for dim in listing.dims}:
        raise InvalidEdit(f"there is no dim {change.name}")
    dims = (
        replace(dim, low=change.low, high=change.high)
        if dim.name == change.name
        else dim
        for dim in listing.dims
    )
    return replace(listing, dims=tuple(dims))


def _convert_weight(listing: PrintedProgram, name: str, kind: str) -> PrintedProgram:
    """Change the kind of a weight; a weight that becomes an input is renamed."""
    tensor, main = listing.find(name), listing.main
    if tensor.is_input:
        raise InvalidEdit(f"{name} is an input already")
    tensor = replace(tensor, kind=kind)
    if not tensor.is_input:
        return listing.with_given(tensor)
    if name in {*main.arguments, *(line.name for line in main.statements)}:
        raise InvalidEdit(f"another value is called {name}")
    lines = tuple(_renamed(line, f"self.{name}", name) for line in main.statements)
    arguments = (*main.arguments, name)
    rest = tuple(each for each in listing.given if each.name != name)
    listing = replace(listing, given=(*rest, tensor))
    return listing.with_block(replace(main, arguments=arguments, statements=lines))


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


def squeeze_dim(tensor: InputOrWeight, dim: int) -> InputOrWeight:
    """Remove a dim of size 1, in all runs.

    Raises:
        InvalidEdit: the dim is dynamic, has another size, is the only one, or belongs
            to saved values.
    """
    if not _can_go(tensor, dim):
        raise InvalidEdit(f"{tensor.name} needs its dim {dim}")
    for run, recipe in tensor.recipes:
        tensor = tensor.with_recipe(run, _without(recipe, dim))
    dims = ((d - (d > dim), how) for d, how in tensor.open_dims)
    return replace(tensor, open_dims=tuple(dims))


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
