"""Bounds checks of indices, because fake tensors have no values to check.

Index values in the main block are computed in eager, as far as they depend on whole
numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.listing.changes import Refill
from shrinkfx.program.listing.printed_program import (
    MAIN,
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
from shrinkfx.worker.listing.dims import runs_of
from shrinkfx.worker.listing.eager_statement import (
    ALONG,
    FROM_THE_END,
    LOSSES,
    TABLES,
    Names,
    get_operator_name,
    list_argument_leaves,
    list_reads,
    scope_of,
)
from shrinkfx.worker.listing.fakes import Trace


@dataclass(frozen=True)
class BoundsCheck:
    """The bounds check of a printed program, and of its changed versions.

    Attributes:
        known_out_of_bounds: the run and the inputs of each index that is out of bounds
            in the unchanged program. This may be why it fails, so they may stay out of
            bounds.
    """

    saved: Mapping[str, Tensor]
    known_out_of_bounds: frozenset[tuple[Run, tuple[str, ...]]] = frozenset()

    def with_allowed(self, listing: PrintedProgram, trace: Trace) -> Self:
        """Allow the indices that are out of bounds in the unchanged program."""
        found = self._iter_out_of_bounds(listing, trace)
        known = frozenset((run, givens) for run, givens, _ in found)
        return replace(self, known_out_of_bounds=known)

    def list_refills(self, listing: PrintedProgram, trace: Trace) -> list[Refill]:
        """List refills that bound the indices.

        Raises:
            InvalidEdit: no refill bounds an index.
        """
        refills: dict[Refill, None] = {}
        for run, givens, size in self._iter_out_of_bounds(listing, trace):
            if (run, givens) not in self.known_out_of_bounds:
                found = list_bounding_refills(listing, run, givens, size)
                if not found:
                    raise InvalidEdit(f"an index is not below {size}")
                refills |= dict.fromkeys(found)
        return list(refills)

    def _iter_out_of_bounds(
        self, listing: PrintedProgram, trace: Trace
    ) -> Iterator[tuple[Run, tuple[str, ...], int]]:
        """Yield the indices that are out of bounds, at the sizes of the example.

        Yields:
            The run, the names of the inputs and weights that the index is computed
            from, and its exclusive upper bound.
        """
        for run in runs_of(listing):
            numbers = _WholeNumbers(listing, run, trace, self.saved)
            for statement in listing.main.statements:
                for name, size, negative in _pointers(statement, trace):
                    values = numbers.compute(name)
                    if (
                        values is None
                        or not values.numel()
                        or values.dtype is torch.bool
                    ):
                        continue
                    low = -size if negative else 0
                    if int(values.min()) < low or int(values.max()) >= size:
                        yield run, numbers.list_sources(name), size


def _pointers(statement: Statement, trace: Trace) -> Iterator[tuple[str, int, bool]]:
    """Yield the index values of a statement.

    Yields:
        The name, the exclusive upper bound, and whether indices may be negative.
    """
    operator = get_operator_name(statement).removesuffix("_")
    table_name = "weight" if operator in TABLES else "self"
    table = _shape(statement, table_name, trace)
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


def _shape(statement: Statement, argument: str, trace: Trace) -> tuple[int, ...]:
    values = (trace.values.get((MAIN, name)) for name in _names(statement, argument))
    shapes = [tuple(t.shape) for value in values if value for t in value.tensors()]
    return shapes[0] if shapes else ()


def list_bounding_refills(
    listing: PrintedProgram, run: Run, names: Iterable[str], size: int
) -> list[Refill]:
    """List refills that keep the inputs of an index below a size.

    Inputs that cannot be bounded, or are bounded already, get no refill.
    """
    found: list[Refill] = []
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


# Whole numbers that a program computes from its inputs, evaluated in eager.
#
# The smallest and largest numbers stand for all numbers that are drawn from a seed.

_MOST_ELEMENTS = 1 << 20
"""Maximal number of elements of a value that is computed."""


class _WholeNumbers:
    """The whole numbers of the main block in a run.

    Each value is computed from the values that it reads.
    """

    def __init__(
        self,
        listing: PrintedProgram,
        run: Run,
        trace: Trace,
        saved: Mapping[str, Tensor],
    ) -> None:
        self._given = {entry.spelling: entry for entry in listing.given}
        self._lines = {line.name: line for line in listing.main.statements}
        self._run, self._trace, self._saved = run, trace, saved
        self._computed: dict[str, Tensor | None] = {}

    def compute(self, name: str) -> Tensor | None:
        """Compute a value; None if it depends on more than whole numbers."""
        if name not in self._computed:
            self._computed[name] = self._compute(name)
        return self._computed[name]

    def list_sources(self, name: str) -> tuple[str, ...]:
        """List the inputs and weights that a value is computed from."""
        if name in self._given:
            return (self._given[name].name,)
        reads = self._lines[name].reads if name in self._lines else ()
        sources = {each for read in reads for each in self.list_sources(read)}
        return tuple(sorted(sources))

    def _compute(self, name: str) -> Tensor | None:
        value = self._trace.values.get((MAIN, name))
        if value is None or any(t.numel() > _MOST_ELEMENTS for t in value.tensors()):
            return None
        if name in self._given:
            return _make_extremes(self._given[name].recipe(self._run), self._saved)
        read = {}
        for other in list_reads(self._lines[name]):
            known = self._trace.values.get((MAIN, other))
            if known is None:
                return None
            made = self.compute(other) if known.tensors() else known.what
            if made is None:
                return None
            read[other] = made
        return _evaluated(self._lines[name].code, read)


def _evaluated(code: str, read: Names) -> Tensor | None:
    if "cuda" in code:
        return None
    try:
        with torch.no_grad():
            made = eval(code, scope_of(read))
    except Exception:  # noqa: BLE001 - eager says it again where it is run
        return None
    is_integer = isinstance(made, Tensor) and not made.is_floating_point()
    return made if is_integer else None


def _make_extremes(recipe: TensorSpec, saved: Mapping[str, Tensor]) -> Tensor | None:
    """Make whole numbers by spec; for seeded ones only the smallest and largest."""
    if isinstance(recipe.fill, Opaque) or not has_integer_dtype(recipe):
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
    made: Tensor = make_from_spec(replace(recipe, device="cpu"), saved)
    return made
