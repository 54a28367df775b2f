"""Indices in a printed program: their values, computed in eager, and their bounds."""

from __future__ import annotations

import ast
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.listing.changes import Refill
from shrinkfx.program.listing.printed_program import (
    MAIN,
    InputOrWeight,
    LeafKind,
    PrintedProgram,
    Run,
    Statement,
)
from shrinkfx.program.listing.tensor_specs import (
    Constant,
    Counted,
    Initializer,
    Opaque,
    Saved,
    Seeded,
    Sparse,
    TensorSpec,
)
from shrinkfx.program.record import Number
from shrinkfx.worker.listing.describe import has_integer_dtype, make_from_spec
from shrinkfx.worker.listing.stand_ins import (
    ALONG,
    FROM_THE_END,
    LOSSES,
    TABLES,
    Names,
    Place,
    Trace,
    get_operator_name,
    list_argument_leaves,
    list_reads,
    scope_of,
)

_MOST_ELEMENTS = 1 << 20
"""Maximal number of elements of a value that is computed."""


@dataclass(frozen=True)
class IntegerValues:
    """The values of a run, each computed from the values that it reads.

    Values that a loop carries are their initial values.
    """

    computed: dict[Hashable, Tensor | None]
    saved: Mapping[str, Tensor]
    listing: PrintedProgram
    run: Run
    trace: Trace

    def tensor(self, place: Place) -> Tensor | None:
        """Compute a value; None if it depends on more than whole numbers."""
        key = self._key(place)
        if key not in self.computed:
            self.computed[key] = self._compute(place)
        return self.computed[key]

    def givens(self, place: Place) -> tuple[str, ...]:
        """List the inputs and weights that a value is computed from."""
        if entry := self._given(place):
            return (entry.name,)
        if passed := self._handed(place):
            return self.givens(passed)
        found: dict[str, None] = {}
        statement = self._statement(place)
        for read in statement.reads if statement else ():
            found |= dict.fromkeys(self.givens((place[0], read)))
        return tuple(sorted(found))

    def _given(self, place: Place) -> InputOrWeight | None:
        block, name = place
        entries = self.listing.given if block == MAIN else ()
        return next((each for each in entries if each.spelling == name), None)

    def _statement(self, place: Place) -> Statement | None:
        found = self.listing.block(place[0]).find(place[1])
        return found if found and found.yields else None

    def _handed(self, place: Place) -> Place | None:
        """Find the operand that the caller passes for an argument of a block."""
        block, name = place
        caller = self.trace.callers.get(block)
        arguments = self.listing.block(block).arguments
        if caller is None or name not in arguments:
            return None
        line = self._statement(caller)
        operands = list_block_operands(line.code) if line else ()
        if len(operands) != len(arguments):
            return None
        operand = operands[arguments.index(name)]
        return (caller[0], operand) if operand else None

    def _key(self, place: Place) -> Hashable:
        if entry := self._given(place):
            return entry.recipe(self.run)
        if passed := self._handed(place):
            value = self.trace.values.get(place)
            shapes = value and tuple(tuple(t.shape) for t in value.tensors())
            return "handed", shapes, self._key(passed)
        statement = self._statement(place)
        if statement is None:
            return place
        reads = list_reads(statement)
        return statement.code, *(self._key((place[0], read)) for read in reads)

    def _compute(self, place: Place) -> Tensor | None:
        value = self.trace.values.get(place)
        if value is None or any(t.numel() > _MOST_ELEMENTS for t in value.tensors()):
            return None
        if entry := self._given(place):
            return _make_extremes(entry.recipe(self.run), self.saved)
        if passed := self._handed(place):
            values = self.tensor(passed)
            return None if values is None else _rowwise(values, value.what)
        statement = self._statement(place)
        if statement is None:
            return None
        read = {}
        for other in list_reads(statement):
            known = self.trace.values.get((place[0], other))
            if known is None:
                return None
            made = self.tensor((place[0], other)) if known.tensors() else known.what
            if made is None:
                return None
            read[other] = made
        return _evaluated(statement.code, read)


@cache
def list_block_operands(code: str) -> tuple[str, ...]:
    """List the names that a call passes to its blocks; '' for operands without one.

    The operands are the items of lists, or if there are none, the arguments after the
    last block.
    """
    call = ast.parse(code, mode="eval").body
    if not isinstance(call, ast.Call):
        return ()
    kinds = ast.Tuple, ast.List
    lists = [each for each in call.args if isinstance(each, kinds)]
    if lists:
        return tuple(_name(item) for each in lists for item in each.elts)
    blocks = [n for n, each in enumerate(call.args) if isinstance(each, ast.Attribute)]
    after = call.args[blocks[-1] + 1 :] if blocks else []
    return tuple(_name(each) for each in after if not isinstance(each, ast.Constant))


def _name(item: ast.expr) -> str:
    has_name = isinstance(item, (ast.Name, ast.Attribute))
    return ast.unparse(item) if has_name else ""


def _rowwise(values: Tensor, received: object) -> Tensor | None:
    """Return a row of the shape that a body receives, with the extremes of all rows."""
    if not isinstance(received, Tensor) or not values.numel():
        return None
    if values.shape == received.shape:
        return values
    places = torch.arange(received.numel()).reshape(received.shape) % 2
    ends = torch.stack([values.min(), values.max()])
    return ends[places].to(values.dtype)


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


def find_out_of_bounds(
    integers: IntegerValues, listing: PrintedProgram, trace: Trace
) -> Iterator[OutOfBoundsIndex]:
    """Yield the out-of-bounds indices of a run, at the sizes of the example."""
    for block, statement in listing.operators():
        for name, size, negative in _pointers(statement, block.name, trace):
            place = block.name, name
            values = integers.tensor(place)
            if values is None or not values.numel() or values.dtype is torch.bool:
                continue
            low = -size if negative else 0
            if int(values.min()) < low or int(values.max()) >= size:
                yield OutOfBoundsIndex(place, integers.givens(place), size)


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


_FIXED = ("parameter", "trainable_parameter", "constant")
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
