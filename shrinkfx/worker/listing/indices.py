"""Whether indices stay inside: fake tensors have no values, and eager refuses others.

What an index is made of is computed in eager, as long as that takes whole numbers
alone: of those drawn from a seed the least and the largest. Only the main block is
looked at.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.listing.listing import MAIN, Listing, Run
from shrinkfx.program.listing.recipes import (
    Constant,
    Counted,
    Fill,
    Number,
    Opaque,
    Recipe,
    Saved,
    Seeded,
    Sparse,
)
from shrinkfx.program.listing.statements import LeafKind, Statement
from shrinkfx.worker.listing.arguments import named, operator_of
from shrinkfx.worker.listing.recipes import make
from shrinkfx.worker.listing.scope import Names, reads_of, scope_of
from shrinkfx.worker.listing.stepwise import Trace

_MOST_ELEMENTS = 1 << 20
"""Of a value that is computed."""

_FROM_THE_END = ("index", "_unsafe_index", "index_put", "_unsafe_index_put")
"""Operators that take negative indices, and a list of them."""

_ALONG = (
    *("index_select", "gather", "scatter", "scatter_add", "scatter_reduce"),
    *("index_add", "index_copy", "index_fill"),
)
_TABLES = ("embedding", "_embedding_bag")
_LOSSES = ("nll_loss_forward", "nll_loss2d_forward", "nll_loss", "nll_loss_nd")


@dataclass(frozen=True)
class Beyond:
    """An index that points outside.

    Attributes:
        givens: inputs and weights that it is made of, by name.
        size: what it must stay below.
    """

    givens: tuple[str, ...]
    size: int


@dataclass
class Indices:
    """Looks for indices that point outside, and computes each of them once."""

    saved: Mapping[str, Tensor]
    _computed: dict[Hashable, Tensor | None] = field(default_factory=dict)

    def beyond(self, listing: Listing, run: Run, trace: Trace) -> Iterator[Beyond]:
        """List what points outside in a run, at the sizes of the example."""
        slices = _Slices(self._computed, self.saved, listing, run, trace)
        for statement in listing.main.statements:
            for name, size, negative in _pointers(statement, listing, trace):
                values = slices.tensor(name)
                if values is None or not values.numel() or values.dtype is torch.bool:
                    continue
                low = -size if negative else 0
                if int(values.min()) < low or int(values.max()) >= size:
                    yield Beyond(slices.givens(name), size)


def _pointers(
    statement: Statement, listing: Listing, trace: Trace
) -> Iterator[tuple[str, int, bool]]:
    """List the names that a statement takes indices from, and what they point into."""
    operator = operator_of(statement).removesuffix("_")
    table = _shape(statement, "weight" if operator in _TABLES else "self", trace)
    if operator in _TABLES and table:
        yield from ((name, table[0], False) for name in _names(statement, "indices"))
    elif operator in _ALONG:
        dims = _numbers(statement, "dim")
        size = table[dims[0]] if table and dims else 1
        yield from ((name, size, False) for name in _names(statement, "index"))
    elif operator in _FROM_THE_END:
        items = [x for x in named(statement, "indices") if x.parent is not None]
        for leaf, size in zip(items, table, strict=False):
            if leaf.kind is LeafKind.VALUE:
                yield leaf.text, size, True
    elif operator in _LOSSES and table:
        classes = table[min(1, len(table) - 1)]
        ignored = _numbers(statement, "ignore_index")
        if not ignored or ignored[0] < 0:
            yield from ((n, classes, True) for n in _names(statement, "target"))


def _numbers(statement: Statement, argument: str) -> list[int]:
    texts = [leaf.text for leaf in named(statement, argument)]
    return [int(text) for text in texts if text.lstrip("-").isdigit()]


def _names(statement: Statement, argument: str) -> list[str]:
    leaves = named(statement, argument)
    return [leaf.text for leaf in leaves if leaf.kind is LeafKind.VALUE]


def _shape(statement: Statement, argument: str, trace: Trace) -> tuple[int, ...]:
    values = (trace.values.get((MAIN, name)) for name in _names(statement, argument))
    shapes = [tuple(t.shape) for value in values if value for t in value.tensors()]
    return shapes[0] if shapes else ()


@dataclass(frozen=True)
class _Slices:
    """The values of a run, each computed from what it reads."""

    computed: dict[Hashable, Tensor | None]
    saved: Mapping[str, Tensor]
    listing: Listing
    run: Run
    trace: Trace

    def tensor(self, name: str) -> Tensor | None:
        """Compute a value; None where that takes more than whole numbers."""
        made = self._made(name)
        return made if isinstance(made, Tensor) else None

    def givens(self, name: str) -> tuple[str, ...]:
        """List the inputs and weights that a value is made of."""
        for given in self.listing.given:
            if given.spelling == name:
                return (given.name,)
        found: dict[str, None] = {}
        for read in self._statements.get(name, Statement("", "0")).reads:
            found |= dict.fromkeys(self.givens(read))
        return tuple(sorted(found))

    @property
    def _statements(self) -> Mapping[str, Statement]:
        return {s.name: s for s in self.listing.main.statements if s.yields}

    def _key(self, name: str) -> Hashable:
        for given in self.listing.given:
            if given.spelling == name:
                return given.recipe(self.run)
        statement = self._statements.get(name)
        if statement is None:
            return name
        return statement.code, *map(self._key, reads_of(statement))

    def _made(self, name: str) -> object:
        key = self._key(name)
        if key not in self.computed:
            self.computed[key] = self._compute(name)
        return self.computed[key]

    def _compute(self, name: str) -> Tensor | None:
        value = self.trace.values.get((MAIN, name))
        if value is None or any(t.numel() > _MOST_ELEMENTS for t in value.tensors()):
            return None
        for given in self.listing.given:
            if given.spelling == name:
                return _worst(given.recipe(self.run), self.saved)
        statement = self._statements[name]
        read = {}
        for other in reads_of(statement):
            known = self.trace.values.get((MAIN, other))
            if known is None:
                return None
            made = self._made(other) if known.tensors() else known.what
            if made is None:
                return None
            read[other] = made
        return _evaluated(statement.code, read)


def _evaluated(code: str, read: Names) -> Tensor | None:
    if "cuda" in code:
        return None
    try:
        with torch.no_grad():
            made = eval(code, scope_of(read))
    except Exception:  # noqa: BLE001 - eager says it again where it is run
        return None
    whole = isinstance(made, Tensor) and not made.is_floating_point()
    return made if whole else None


def _worst(recipe: Recipe, saved: Mapping[str, Tensor]) -> Tensor | None:
    """Make whole numbers as a recipe says; of drawn ones the least and largest."""
    if isinstance(recipe.fill, Opaque) or not _is_whole(recipe):
        return None
    match recipe.fill:
        case Seeded("randint", low, high):
            places = torch.arange(math.prod(recipe.shape)) % 2
            drawn = low + places * (max(high, low + 1) - 1 - low)
            return drawn.to(getattr(torch, recipe.dtype)).reshape(recipe.shape)
        case Seeded():
            return None
        case Saved(key) if key not in saved:
            return None
    made: Tensor = make(replace(recipe, device="cpu"), saved)
    return made


def _is_whole(recipe: Recipe) -> bool:
    dtype = getattr(torch, recipe.dtype)
    return not dtype.is_floating_point and not dtype.is_complex


def bounded(recipe: Recipe, size: int) -> Fill | None:
    """Fill it with what stays below a size; None where that cannot be said."""
    known = not isinstance(recipe.fill, Opaque) and recipe.dtype != "bool"
    if not known or not _is_whole(recipe):
        return None
    match recipe.fill:
        case Constant(value):
            return Constant(_below(value, size))
        case Sparse(base, elements):
            kept = tuple((place, _below(value, size)) for place, value in elements)
            return Sparse(_below(base, size), kept)
        case Seeded("randint", low, high):
            least = min(max(low, 0), size - 1)
            return Seeded("randint", least, max(least + 1, min(high, size)))
        case Counted() | Saved():
            return Seeded("randint", 0, size)
    return None


def _below(value: Number, size: int) -> Number:
    whole = int(value.real)
    return value if 0 <= whole < size else (size - 1 if whole > 0 else 0)


def require_made(recipe: Recipe, saved: Mapping[str, Tensor]) -> None:
    """See that there is such a tensor: that its dtype holds its numbers.

    Raises:
        InvalidEdit: there is none.
    """
    numbers: list[Number] = []
    small = replace(recipe, shape=(1,), stride=None, device="cpu")
    match recipe.fill:
        case Opaque():
            return
        case Saved(key):
            kept = tuple(saved[key].shape) if key in saved else recipe.shape
            if len(kept) != len(recipe.shape) or any(
                size > there for size, there in zip(recipe.shape, kept, strict=True)
            ):
                raise InvalidEdit(f"no more is saved than {kept}")
            return
        case Constant(value):
            numbers = [value]
        case Sparse(base, elements):
            numbers = [base, *(value for _, value in elements)]
            small = replace(small, fill=Constant(base))
        case Counted() if _is_whole(recipe):
            numbers = [max(0, recipe.span - 1)]
    if any(size < 0 for size in recipe.shape):
        raise InvalidEdit("a size is negative")
    dtype = getattr(torch, recipe.dtype)
    try:
        for number in numbers:
            torch.full((1,), number, dtype=dtype)
        make(small, saved)
    except Exception as error:
        raise InvalidEdit(f"no tensor of {recipe.dtype}: {error}") from error
