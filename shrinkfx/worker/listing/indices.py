"""Bounds checks of indices, because fake tensors have no values to check.

Index values are computed in eager as far as they depend on whole numbers only,
in the main block and in the blocks that it calls.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.listing.changes import Refill
from shrinkfx.program.listing.printed_program import (
    LeafKind,
    PrintedProgram,
    Run,
    Statement,
)
from shrinkfx.program.listing.tensor_specs import (
    Constant,
    Counted,
    Initializer,
    Number,
    Opaque,
    Saved,
    Seeded,
    Sparse,
    TensorSpec,
)
from shrinkfx.worker.listing.describe import has_integer_dtype, make_from_spec
from shrinkfx.worker.listing.eager_statement import (
    ALONG,
    FROM_THE_END,
    LOSSES,
    TABLES,
    get_operator_name,
    list_argument_leaves,
)
from shrinkfx.worker.listing.fakes import Place, Trace
from shrinkfx.worker.listing.integer_values import IntegerValues


@dataclass(frozen=True)
class OutOfBoundsIndex:
    """An out-of-bounds index.

    Attributes:
        place: the block and the name of the index value.
        givens: names of the inputs and weights that the index is computed from.
        size: the exclusive upper bound of the index.
    """

    place: Place
    givens: tuple[str, ...]
    size: int


@dataclass
class IndexChecker:
    """Finds out-of-bounds indices, and computes each index once."""

    saved: Mapping[str, Tensor]
    _computed: dict[Hashable, Tensor | None] = field(default_factory=dict)

    def find_out_of_bounds(
        self, listing: PrintedProgram, run: Run, trace: Trace
    ) -> Iterator[OutOfBoundsIndex]:
        """Yield the out-of-bounds indices of a run, at the sizes of the example."""
        slices = IntegerValues(self._computed, self.saved, listing, run, trace)
        for block, statement in listing.operators():
            for name, size, negative in _pointers(statement, block.name, trace):
                place = block.name, name
                values = slices.tensor(place)
                if values is None or not values.numel() or values.dtype is torch.bool:
                    continue
                low = -size if negative else 0
                if int(values.min()) < low or int(values.max()) >= size:
                    yield OutOfBoundsIndex(place, slices.givens(place), size)


def _pointers(
    statement: Statement, block: str, trace: Trace
) -> Iterator[tuple[str, int, bool]]:
    """Yield the index values of a statement.

    Yields:
        The name, the exclusive upper bound, and whether indices may be negative.
    """
    operator = get_operator_name(statement).removesuffix("_")
    table_name = "weight" if operator in TABLES else "self"
    table = _shape(statement, table_name, block, trace)
    if operator in TABLES and table:
        yield from ((name, table[0], False) for name in _names(statement, "indices"))
    elif operator in ALONG:
        dims = _numbers(statement, "dim")
        size = table[dims[0]] if table and dims else 1
        yield from ((name, size, False) for name in _names(statement, "index"))
    elif operator in FROM_THE_END:
        items = [
            x
            for x in list_argument_leaves(statement, "indices")
            if x.parent is not None
        ]
        for leaf, size in zip(items, table, strict=False):
            if leaf.kind is LeafKind.VALUE:
                yield leaf.text, size, True
    elif operator in LOSSES and table:
        classes = table[min(1, len(table) - 1)]
        ignored = _numbers(statement, "ignore_index")
        if not ignored or ignored[0] < 0:
            yield from ((n, classes, True) for n in _names(statement, "target"))


def _numbers(statement: Statement, argument: str) -> list[int]:
    texts = [leaf.text for leaf in list_argument_leaves(statement, argument)]
    return [int(text) for text in texts if text.lstrip("-").isdigit()]


def _names(statement: Statement, argument: str) -> list[str]:
    leaves = list_argument_leaves(statement, argument)
    return [leaf.text for leaf in leaves if leaf.kind is LeafKind.VALUE]


def _shape(
    statement: Statement, argument: str, block: str, trace: Trace
) -> tuple[int, ...]:
    values = (trace.values.get((block, name)) for name in _names(statement, argument))
    shapes = [tuple(t.shape) for value in values if value for t in value.tensors()]
    return shapes[0] if shapes else ()


def list_bounding_refills(
    listing: PrintedProgram, run: Run, names: Iterable[str], size: int
) -> list[Refill | None]:
    """List refills that keep the inputs of an index below a size.

    Inputs that cannot be bounded, or are bounded already, get no refill.
    """
    found: list[Refill | None] = []
    for name in names:
        entry = listing.find(name)
        fill = bound_initializer(entry.recipe(run), size)
        if fill is None or fill == entry.recipe(run).fill:
            continue
        target = run if run in dict(entry.recipes) else Run.EXAMPLE
        alone = len(entry.recipes) == 1
        found.append(Refill(name, fill, None if alone else target))
    return found


def bound_initializer(recipe: TensorSpec, size: int) -> Initializer | None:
    """Return an initializer with numbers below a size; None if there is none."""
    known = not isinstance(recipe.fill, Opaque) and recipe.dtype != "bool"
    if not known or not has_integer_dtype(recipe):
        return None
    match recipe.fill:
        case Constant(value):
            return Constant(_clamp_number(value, size))
        case Sparse(base, elements):
            clamped = tuple(
                (place, _clamp_number(value, size)) for place, value in elements
            )
            return Sparse(_clamp_number(base, size), clamped)
        case Seeded("randint", low, high):
            least = min(max(low, 0), size - 1)
            return Seeded("randint", least, max(least + 1, min(high, size)))
        case Counted() | Saved():
            return Seeded("randint", 0, size)
    return None


def _clamp_number(value: Number, size: int) -> Number:
    number = int(value.real)
    return value if 0 <= number < size else (size - 1 if number > 0 else 0)


_FIXED = ("parameter", "constant")
"""Kinds of weights that an exported program never writes."""


def require_valid_inputs(
    now: PrintedProgram, was: PrintedProgram, saved: Mapping[str, Tensor]
) -> None:
    """Check that changed inputs and weights can be made, and are not newly empty.

    Raises:
        InvalidEdit: one cannot be made or is newly empty, or the program writes a
            weight of a kind that must not be written.
    """
    written = {line.callee for line in now.main.statements}
    for entry in now.given:
        if entry.kind in _FIXED and f"{entry.spelling}.copy_" in written:
            raise InvalidEdit(f"{entry.name} is written")
        old = dict(was.find(entry.name).recipes)
        for run, recipe in entry.recipes:
            if isinstance(recipe.fill, Opaque) or recipe == old.get(run):
                continue
            if 0 in recipe.shape and 0 not in old[run].shape:
                raise InvalidEdit(f"{entry.name} would be empty")
            require_valid_spec(recipe, saved)


def require_valid_spec(recipe: TensorSpec, saved: Mapping[str, Tensor]) -> None:
    """Check that a tensor spec can be made, for example that its dtype fits.

    Raises:
        InvalidEdit: no such tensor exists.
    """
    numbers: list[Number] = []
    small = replace(recipe, shape=(1,), stride=None, device="cpu")
    match recipe.fill:
        case Opaque():
            return
        case Saved(key):
            saved_shape = tuple(saved[key].shape) if key in saved else recipe.shape
            if len(saved_shape) != len(recipe.shape) or any(
                size > limit
                for size, limit in zip(recipe.shape, saved_shape, strict=True)
            ):
                raise InvalidEdit(f"no more is saved than {saved_shape}")
            return
        case Constant(value):
            numbers = [value]
        case Sparse(base, elements):
            numbers = [base, *(value for _, value in elements)]
            small = replace(small, fill=Constant(base))
        case Counted() if has_integer_dtype(recipe):
            numbers = [max(0, recipe.span - 1)]
    if any(size < 0 for size in recipe.shape):
        raise InvalidEdit("a size is negative")
    dtype = getattr(torch, recipe.dtype)
    try:
        for number in numbers:
            torch.full((1,), number, dtype=dtype)
        make_from_spec(small, saved)
    except Exception as error:
        raise InvalidEdit(f"no tensor of {recipe.dtype}: {error}") from error
