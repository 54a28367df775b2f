"""Changes: what an edit can write anew in a listing, each a small thing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.listing.calls import (
    require_results,
    without_argument,
    without_result,
)
from shrinkfx.program.listing.listing import Given, Listing, Run
from shrinkfx.program.listing.names import require_defined
from shrinkfx.program.listing.ranks import squeezed
from shrinkfx.program.listing.recipes import Fill
from shrinkfx.program.listing.statements import Statement


@dataclass(frozen=True)
class Write:
    """Write a leaf of a statement anew; '' takes it away.

    Attributes:
        block: the block's name.
        statement: the statement's name.
        leaf: the leaf's number.
    """

    block: str
    statement: str
    leaf: int
    text: str


@dataclass(frozen=True)
class Resize:
    """Make a dim of an input or weight another size, in one run or in all."""

    name: str
    dim: int
    size: int
    run: Run | None = None


@dataclass(frozen=True)
class Refill:
    """Take the elements of an input or weight from elsewhere, in one run or in all."""

    name: str
    fill: Fill
    run: Run | None = None


@dataclass(frozen=True)
class Cast:
    """Make an input or weight another dtype."""

    name: str
    dtype: str


@dataclass(frozen=True)
class Straighten:
    """Lay an input or weight out contiguously.

    Attributes:
        in_order: leave its dims in the order that they have in memory, without gaps.
    """

    name: str
    in_order: bool = False


@dataclass(frozen=True)
class Convert:
    """Make a weight another kind of weight, or an input."""

    name: str
    kind: str


@dataclass(frozen=True)
class Declare:
    """Declare a dynamic dim to have another range."""

    name: str
    low: int
    high: int | None


@dataclass(frozen=True)
class Fix:
    """Leave a dim of an input static."""

    name: str
    dim: int


@dataclass(frozen=True)
class Squeeze:
    """Take a static dim of size 1 from an input or weight."""

    name: str
    dim: int


@dataclass(frozen=True)
class DropArgument:
    """Take an argument that is not read from a branch or body, and from its calls."""

    block: str
    name: str


@dataclass(frozen=True)
class DropResult:
    """Take a result that is not read from a call, and from what it calls.

    Attributes:
        block: the name of the block that the call is in.
        statement: the call's name.
        place: the number of the result; of a loop also of what it carries.
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
"""Sizes before what is filled in: what is resized forgets. Arguments last: a result
that goes may have been all that reads one."""

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
        fields["fill"] = Fill.from_json(fields["fill"])
    if fields.get("run") is not None:
        fields["run"] = Run(fields["run"])
    return _KINDS[data["change"]](**fields)


def place_of(change: Change) -> tuple[object, ...]:
    """Name what a change writes: two of one place cannot both be."""
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


def changed(listing: Listing, changes: Iterable[Change]) -> Listing:
    """Make all changes as one; their order has no meaning.

    Raises:
        InvalidEdit: one names what is not there, two write one place differently, a
            statement would read what does not stand before it, nothing would be
            left, or returned any more.
    """
    was = listing
    wanted: dict[tuple[object, ...], Change] = {}
    for change in changes:
        if wanted.setdefault(place_of(change), change) != change:
            raise InvalidEdit(f"two changes of one place: {change}")
    written = [change for change in wanted.values() if isinstance(change, Write)]
    # All at once: a leaf's number is that of the statement as it was.
    listing = _written(listing, written)
    for change in _in_order(wanted.values()):
        match change:
            case Write():
                continue
            case Declare():
                listing = _declared(listing, change)
            case Convert(name, kind):
                listing = _converted(listing, name, kind)
            case DropArgument(block, name):
                listing = without_argument(listing, block, name)
            case DropResult(block, statement, place):
                listing = without_result(listing, block, statement, place)
            case _:
                given = _given(listing.find(change.name), change)
                listing = listing.with_given(given)
    listing = listing.normalised()
    require_defined(listing)
    require_results(was, listing)
    return listing


def _in_order(changes: Iterable[Change]) -> list[Change]:
    """Put them into one order; of one call's results, or dims, the last goes first."""

    def key(change: Change) -> tuple[int, int, str]:
        place = change.place if isinstance(change, DropResult) else 0
        place = change.dim if isinstance(change, Squeeze) else place
        return _IN_ORDER.index(type(change)), -place, str(change)

    return sorted(changes, key=key)


def _written(listing: Listing, changes: Iterable[Write]) -> Listing:
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


def _given(given: Given, change: Change) -> Given:
    match change:
        case Resize(_, dim, size, run):
            for each, recipe in given.recipes:
                if run in (None, each):
                    given = given.with_recipe(each, recipe.resized(dim, size))
        case Refill(_, fill, run):
            for each, recipe in given.recipes:
                if run in (None, each):
                    given = given.with_recipe(each, recipe.filled(fill))
        case Cast(_, dtype):
            for each, recipe in given.recipes:
                given = given.with_recipe(each, replace(recipe, dtype=dtype))
        case Straighten(_, in_order):
            for each, recipe in given.recipes:
                given = given.with_recipe(each, recipe.contiguous(in_order=in_order))
        case Fix(_, dim):
            left = tuple(pair for pair in given.open_dims if pair[0] != dim)
            return replace(given, open_dims=left)
        case Squeeze(_, dim):
            return squeezed(given, dim)
    return given


def _declared(listing: Listing, change: Declare) -> Listing:
    if change.name not in {dim.name for dim in listing.dims}:
        raise InvalidEdit(f"there is no dim {change.name}")
    dims = (
        replace(dim, low=change.low, high=change.high)
        if dim.name == change.name
        else dim
        for dim in listing.dims
    )
    return replace(listing, dims=tuple(dims))


def _converted(listing: Listing, name: str, kind: str) -> Listing:
    """Make a weight another kind, and have the main block read it by its name then."""
    given, main = listing.find(name), listing.main
    if given.is_input:
        raise InvalidEdit(f"{name} is an input already")
    given = replace(given, kind=kind)
    if not given.is_input:
        return listing.with_given(given)
    if name in {*main.arguments, *(line.name for line in main.statements)}:
        raise InvalidEdit(f"another value is called {name}")
    lines = tuple(_renamed(line, f"self.{name}", name) for line in main.statements)
    arguments = (*main.arguments, name)
    rest = tuple(each for each in listing.given if each.name != name)
    listing = replace(listing, given=(*rest, given))
    return listing.with_block(replace(main, arguments=arguments, statements=lines))


def _renamed(line: Statement, old: str, new: str) -> Statement:
    texts = {leaf.number: new for leaf in line.leaves if leaf.text == old}
    return line.written(texts) if texts else line
