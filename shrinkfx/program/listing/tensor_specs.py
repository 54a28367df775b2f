"""Tensor specs: how an input or a weight is created, as simply as possible."""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, pairwise
from typing import ClassVar, TypeVar

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.record import Number, OneOf, Record

MOST = 3
"""The largest complexity of a number."""

_SPELT_OUT = 1 << 32
"""Powers of two below this limit are written as integers, and recognizable."""


def number_complexity(number: Number) -> int:
    """Return the complexity of a number: 0 for 0 and 1, 1 for a single digit."""
    if number in (0, 1) and not str(number).startswith("-"):
        return 0
    if isinstance(number, complex) or not math.isfinite(number):
        return MOST
    if _is_power_of_two(abs(number)) or _of_one_digit(number) == number:
        return 1
    return 2 if number == int(number) else MOST


def simpler_numbers(number: Number) -> Iterator[Number]:
    """Yield at most three simpler numbers near a number, besides 0 and 1.

    For 205.05 these are a power of ten, 100, a power of two, 128, and 205. The powers
    are not larger, so that the dtype can hold them. For -205.05 they are -1, -100,
    -205.
    """
    if isinstance(number, (bool, complex)) or not math.isfinite(number):
        return
    kind, size = type(number), abs(number)
    ten = kind(_power_of_ten(size))
    two = kind(1 << int(size).bit_length() >> 1)
    rounded = kind(round(number)) if size >= 1 else _of_one_digit(number)
    near = (-kind(1), -ten, rounded) if number < 0 else (ten, two, rounded)
    yield from (
        each for each in near if number_complexity(each) < number_complexity(number)
    )


def is_power(number: float) -> bool:
    """Return whether the absolute value is a power of ten or of two.

    Such a number reveals nothing of a model but a magnitude, because this module
    itself proposes it in place of other numbers.
    """
    size = abs(number)
    if not size or not math.isfinite(size):
        return False
    return _is_power_of_two(size) or size == _power_of_ten(size)


def _power_of_ten(size: float) -> float:
    return float(f"1e{_exponent(size)}")


def _is_power_of_two(number: float) -> bool:
    integer = int(number) if number == int(number) else 0
    return 0 < integer < _SPELT_OUT and integer & (integer - 1) == 0


def _of_one_digit(number: float) -> float:
    return float(f"{number:.0e}")


def _exponent(number: float) -> str:
    return f"{number:e}".partition("e")[2]


_ITEMSIZE = {
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 8),
    **dict.fromkeys(("float32", "int32", "uint32", "complex32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    "complex128": 16,
}


def itemsize(dtype: str) -> int:
    """Return the number of bytes of an element."""
    return _ITEMSIZE.get(dtype, 1)


_USUAL = frozenset({"float32", "int64", "bool"})
"""Common dtypes, which add no complexity."""

LISTED = 64
"""The largest number of elements that are readable as a list."""


@dataclass(frozen=True)
class Initializer(OneOf):
    """An initializer of a tensor's elements; see the subclasses, the simplest first.

    Attributes:
        rank: the complexity of its kind; less is simpler.
    """

    rank: ClassVar[int]

    def count(self) -> int:
        """Return the complexity beyond that of the kind."""
        return 0


@dataclass(frozen=True)
class Constant(Initializer):
    """The same number everywhere."""

    rank = 0
    value: Number

    def count(self) -> int:
        return number_complexity(self.value)


@dataclass(frozen=True)
class Counted(Initializer):
    """0, 1, 2 and so on, in memory order."""

    rank = 2


@dataclass(frozen=True)
class Seeded(Initializer):
    """Random numbers from a seed.

    Attributes:
        draw: ``rand``, ``randn``, or ``randint`` from ``low`` to below ``high``.
    """

    rank = 3
    draw: str
    low: int = 0
    high: int = 0


@dataclass(frozen=True)
class Sparse(Initializer):
    """The same number everywhere except at a few offsets in memory.

    Attributes:
        elements: pairs of an offset, in memory order from 0, ascending, and the element
            there.
    """

    rank = 4
    base: Number
    elements: tuple[tuple[int, Number], ...]

    def count(self) -> int:
        cost = sum(
            1 + number_complexity(p) + number_complexity(v) for p, v in self.elements
        )
        return number_complexity(self.base) + cost


@dataclass(frozen=True)
class Saved(Initializer):
    """Values from the data file of the script.

    If a dim was shrunk, its first elements are used.

    Attributes:
        key: the name of the values in that file.
    """

    rank = 6
    key: str

    def count(self) -> int:
        """Return more than for any readable list, because it needs a file."""
        return 3 * _MAX_COMPLEXITY * LISTED


@dataclass(frozen=True)
class Part(Saved):
    """Some of the values in the data file; all other elements are a number.

    It is an intermediate state: once few values are left, they are listed.

    Attributes:
        base: the number.
        shape: the shape of the values that it is a part of: the first elements of each
            dim.
        parts: half-open ranges of offsets in these values, in memory order.
    """

    rank = 5
    base: Number
    shape: tuple[int, ...]
    parts: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        return sum(stop - start for start, stop in self.parts)

    def count(self) -> int:
        """Return less than for all values, and more than for any list."""
        most = _MAX_COMPLEXITY * LISTED
        return most + min(most, int(16 * math.log2(1 + self.size)))


@dataclass(frozen=True)
class Opaque(Initializer):
    """An expression whose value is unknown, such as one for a script object."""

    rank = 7
    text: str


_MAX_COMPLEXITY = 2 + MOST + 1
"""The largest complexity of an element of a sparse initializer.

It consists of the offset, the number, and 1.
"""


@dataclass(frozen=True)
class TensorSpec(Record):
    """A tensor spec: shape, dtype and layout, and the initializer of the elements.

    Attributes:
        dtype: as ``torch`` names it, such as ``float32``.
        stride: strides in elements; None for a contiguous tensor.
    """

    shape: tuple[int, ...]
    dtype: str
    fill: Initializer
    stride: tuple[int, ...] | None = None
    device: str = "cpu"

    @property
    def span(self) -> int:
        """The number of elements from the first to the last one in memory."""
        if self.stride is None:
            return math.prod(self.shape)
        return storage_span(self.shape, self.stride)

    @property
    def elements(self) -> int:
        """The number of elements of the shape; 0 for an opaque initializer."""
        return 0 if isinstance(self.fill, Opaque) else math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes in memory; 0 if it is unknown (opaque initializer)."""
        if isinstance(self.fill, Opaque):
            return 0
        return self.span * itemsize(self.dtype)

    @property
    def complexity(self) -> int:
        """The complexity for a reader; less is simpler."""
        kind = 8 * self.fill.rank + self.fill.count()
        layout = 0
        if self.stride is not None:
            layout = 8 + (self.stride != dense(self.shape, self.stride))
        return kind + layout + (0 if self.dtype in _USUAL else 4) + len(self.shape)

    def resized(self, dim: int, size: int) -> TensorSpec:
        """Change the size of a dim; keep the order of dims, and gaps in proportion.

        A part of saved values keeps their strides.

        Raises:
            InvalidEdit: the dim does not exist, the value is opaque, or fewer values
                are saved.
        """
        if isinstance(self.fill, Opaque) or not 0 <= dim < len(self.shape):
            raise InvalidEdit("it has no such dim")
        is_saved = isinstance(self.fill, Saved)
        if is_saved and size > self.shape[dim]:
            raise InvalidEdit("not so much is saved")
        shape = (*self.shape[:dim], size, *self.shape[dim + 1 :])
        stride = self.stride
        if stride is not None and not is_saved:
            stride = resized_strides(self.shape, stride, shape)
        return replace(self, shape=shape, stride=stride).filled(self.fill)

    def contiguous(self, *, in_order: bool = False) -> TensorSpec:
        """Remove gaps and make it contiguous, or keep the order of its dims."""
        stride = dense(self.shape, self.stride) if in_order and self.stride else None
        return replace(self, stride=stride).filled(self.fill)

    def filled(self, fill: Initializer) -> TensorSpec:
        """Change the initializer; elements outside the storage are dropped."""
        return replace(self, fill=_within(fill, self.span))


def _within(fill: Initializer, span: int) -> Initializer:
    """Drop elements of a sparse initializer that are outside the storage."""
    if not isinstance(fill, Sparse):
        return fill
    inside = tuple(pair for pair in fill.elements if pair[0] < span)
    return replace(fill, elements=inside) if inside else Constant(fill.base)


def storage_span(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return the number of elements in memory from a tensor's first one to its last."""
    if not all(shape):
        return 0
    steps = zip(shape, stride, strict=True)
    return 1 + sum((size - 1) * step for size, step in steps)


def dense(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return strides without gaps, with dims in the order of old strides; 0 stays 0.

    None if these are the contiguous strides.
    """
    steps = [0] * len(shape)
    step = 1
    for dim in sorted(range(len(shape)), key=lambda d: (stride[d], -d)):
        if stride[dim]:
            steps[dim], step = step, step * max(1, shape[dim])
    return None if 0 in shape or is_usual(shape, steps) else tuple(steps)


def resized_strides(
    shape: tuple[int, ...], stride: tuple[int, ...], new: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return strides for other sizes, in the order of old strides; None if contiguous.

    A gap after a dim stays, in proportion to the dim. Strides of 0 and strides of
    overlapping dims are unchanged.
    """
    steps = list(stride)
    reach = new_reach = 1
    for dim in sorted(range(len(shape)), key=lambda d: (stride[d], -d)):
        step = stride[dim]
        if step and shape[dim] == 1:  # the stride of a dim of size 1 has no effect
            step = max(step, reach)
        if step < reach:
            continue
        gap = -(-(step - reach) * new_reach // reach)
        steps[dim] = new_reach + gap
        reach, new_reach = step * max(1, shape[dim]), steps[dim] * max(1, new[dim])
    return None if 0 in new or is_usual(new, steps) else tuple(steps)


def is_usual(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Return whether strides are those of a contiguous tensor."""
    dims = zip(shape, stride, row_major(shape), strict=True)
    return all(size == 1 or actual == usual for size, actual, usual in dims)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    steps = [1]
    for size in reversed(shape[1:]):
        steps.insert(0, steps[0] * max(1, size))
    return tuple(steps) if shape else ()


def write_tensor_spec(recipe: TensorSpec, device: str = "") -> str:
    """Return a Python expression that creates the tensor.

    Args:
        device: the device, if it is not that of the spec.

    >>> write_recipe(Recipe((2, 3), "float32", Constant(1.0)))
    'torch.ones((2, 3))'
    """
    if isinstance(recipe.fill, Opaque):
        return recipe.fill.text
    device = device or recipe.device
    text = _in_memory(recipe)
    text += f'.to("{device}")' if device != "cpu" else ""
    if recipe.stride is not None and not isinstance(recipe.fill, Saved):
        text += f".as_strided({recipe.shape}, {recipe.stride})"
    return text


def _in_memory(recipe: TensorSpec) -> str:
    """Return an expression for the storage: one-dimensional if the spec has strides."""
    shape = recipe.shape if recipe.stride is None else (recipe.span,)
    dtype = "" if recipe.dtype == "float32" else f", dtype=torch.{recipe.dtype}"
    match recipe.fill:
        case Constant(value):
            return _constant(shape, value, recipe.dtype)
        case Counted():
            count = math.prod(shape)
            flat = f"torch.arange({count}" + (
                ")" if recipe.dtype == "int64" else f", dtype=torch.{recipe.dtype})"
            )
            return flat if len(shape) == 1 else f"{flat}.reshape({shape})"
        case Seeded("randint", low, high):
            kind = "" if recipe.dtype == "int64" else f", dtype=torch.{recipe.dtype}"
            return f"torch.randint({low}, {high}, {shape}{kind})"
        case Seeded(draw):
            drawn = recipe.dtype in ("float32", "float64", "complex64", "complex128")
            if drawn:
                return f"torch.{draw}({shape}{dtype})"
            return f"torch.{draw}({shape}).to(torch.{recipe.dtype})"
        case Sparse(base, elements):
            return _sparse(shape, base, elements, recipe.dtype)
        case Saved(key):
            text = f'data["{key}"]' + _first_of(recipe.shape)
            return text if recipe.stride is not None else f"{text}.contiguous()"
    raise TypeError(f"no recipe: {recipe.fill!r}")


def _constant(shape: tuple[int, ...], value: Number, dtype: str) -> str:
    kind = "" if dtype == "float32" else f", dtype=torch.{dtype}"
    if repr(value) in ("0", "1", "0.0", "1.0", "False", "True"):  # not -0.0
        return f"torch.{'ones' if value else 'zeros'}({shape}{kind})"
    kind = f", dtype=torch.{dtype}"
    return f"torch.full({shape}, {write_number(value)}{kind})"


def _sparse(
    shape: tuple[int, ...],
    base: Number,
    elements: Sequence[tuple[int, Number]],
    dtype: str,
) -> str:
    count = math.prod(shape)
    if count <= LISTED:
        values = [base] * count
        for place, value in elements:
            values[place] = value
        return f"torch.tensor({_nested(values, shape)}, dtype=torch.{dtype})"
    places = ", ".join(str(place) for place, _ in elements)
    texts = ", ".join(write_number(value) for _, value in elements)
    args = f"torch.tensor([{places}]), torch.tensor([{texts}], dtype=torch.{dtype})"
    return f"{_constant(shape, base, dtype)}.put_({args})"


def _nested(values: Sequence[Number], shape: tuple[int, ...]) -> str:
    if not shape:
        return write_number(values[0])
    step = len(values) // shape[0] if shape[0] else 0
    rows = (values[i * step : (i + 1) * step] for i in range(shape[0]))
    return f"[{', '.join(_nested(row, shape[1:]) for row in rows)}]"


def write_number(value: Number) -> str:
    """Return a number as Python source."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, complex):  # its repr has no infinity, and loses -0.0
        return f"complex({write_number(value.real)}, {write_number(value.imag)})"
    return repr(value)


def _first_of(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(f':{size}' for size in shape)}]" if shape else ""


Elements = tuple[tuple[int, Number], ...]
"""Offsets in memory, and the elements there."""

_ALONE = 8
"""Up to this number of elements, each is left out alone."""


def list_simpler_formulas(recipe: TensorSpec) -> list[Initializer]:
    """List the formulas that are simpler than the present initializer of a tensor.

    Ones come first for floating-point numbers, because zeros hide factors; zeros for
    integers, because they may be indices. Counted elements are all distinct. An opaque
    value has no simpler formulas.
    """
    if isinstance(recipe.fill, Opaque):
        return []
    fills: list[Initializer] = [
        Constant(1.0),
        Counted(),
        Constant(0.0),
        Seeded("randn"),
    ]
    if recipe.dtype == "bool":
        fills = [Constant(True), Constant(False), Seeded("randint", 0, 2)]
    elif "int" in recipe.dtype:
        fills = [Constant(0), Counted(), Constant(1), Seeded("randint", 0, 2)]
    return [fill for fill in fills if _is_simpler(fill, recipe)]


def yield_simpler_elements(recipe: TensorSpec) -> Iterator[Initializer]:
    """Yield initializers with simpler elements, those that need few queries first.

    A sparse initializer gets fewer elements, a constant a simpler number. The values of
    a saved tensor are not known here, so a single non-finite element is tried as a
    guess. The fitter inserts the actual values once few are left.
    """
    fills: Iterator[Initializer] = iter(())
    match recipe.fill:
        case Sparse(base, elements):
            fills = _yield_fewer_elements(base, elements)
        case Constant(number):
            fills = map(Constant, simpler_numbers(number))
        case Saved() as saved:
            odd = (math.nan, math.inf) if "float" in recipe.dtype else ()
            non_finite = (Sparse(1.0, ((0, number),)) for number in odd)
            fills = chain(non_finite, _parts(saved, recipe))
    yield from (fill for fill in dict.fromkeys(fills) if _is_simpler(fill, recipe))


def _is_simpler(fill: Initializer, recipe: TensorSpec) -> bool:
    return replace(recipe, fill=fill).complexity < recipe.complexity


def _yield_fewer_elements(base: Number, elements: Elements) -> Iterator[Initializer]:
    """Yield the most suspicious elements first, then apply delta debugging.

    The suspicious elements are also tried at the front, because sizes can then shrink.
    Delta debugging yields halves, then all but a quarter or an eighth, then all but
    one.
    """
    plain = base if base in (0, 1) else type(base)(isinstance(base, (float, complex)))
    for some in _yield_suspicious_elements(elements):
        yield Sparse(plain, _at_front(some))
        yield Sparse(plain, some)
        yield Constant(some[0][1])
    count = len(elements)
    if count > 1:
        for start, stop in yield_cuts(count, 2):
            yield Sparse(base, elements[start:stop])
        for parts in (4, 8) if count > _ALONE else (count,):
            for start, stop in yield_cuts(count, parts):
                yield Sparse(base, elements[:start] + elements[stop:])
    yield Sparse(plain, elements)
    yield Sparse(base, _at_front(elements))
    ones = ((p, type(v)(1) if cmath.isfinite(v) else v) for p, v in elements)
    yield Sparse(base, (*ones,))


def _parts(saved: Saved, recipe: TensorSpec) -> Iterator[Initializer]:
    """Yield smaller parts of saved values, by delta debugging.

    Once few enough values are left to be listed, yield all of them.
    """
    base: Number = {"bool": True}.get(recipe.dtype, 0 if "int" in recipe.dtype else 1.0)
    size = math.prod(recipe.shape)
    full = Part(saved.key, base, recipe.shape, ((0, size),))
    current = saved if isinstance(saved, Part) else full
    if min(size, current.size) <= LISTED:  # all remaining values can be listed
        yield full if size <= LISTED else current
        return
    halves, quarters = ([*yield_cuts(current.size, count)] for count in (2, 4))
    pairs = [(one, other) for one in quarters[:2] for other in quarters[2:]]
    choices = [*((half,) for half in halves), *pairs, *combinations(quarters, 3)]
    eighths = [*yield_cuts(current.size, 8)]
    choices += [tuple(e for e in eighths if e != omitted) for omitted in eighths]
    for ranges in choices:
        parts = (part for ends in ranges for part in _between(current.parts, *ends))
        yield replace(current, parts=_join_adjacent(parts))


def _join_adjacent(parts: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Join adjacent parts."""
    joined: list[tuple[int, int]] = []
    for start, stop in parts:
        if joined and joined[-1][1] == start:
            start, _ = joined.pop()
        joined.append((start, stop))
    return tuple(joined)


def _between(
    parts: Sequence[tuple[int, int]], start: int, stop: int
) -> Iterator[tuple[int, int]]:
    """Return the sections of parts from one element number to another."""
    passed = 0
    for first, end in parts:
        low = max(first, first + start - passed)
        high = min(end, first + stop - passed)
        if low < high:
            yield low, high
        passed += end - first


def _yield_suspicious_elements(elements: Elements) -> Iterator[Elements]:
    """Yield elements that probably cause the failure: not finite, or the largest."""
    if odd := tuple(pair for pair in elements if not cmath.isfinite(pair[1])):
        yield odd[:1]
        yield odd
    else:
        yield (max(elements, key=lambda pair: abs(pair[1])),)


def _at_front(elements: Sequence[tuple[int, Number]]) -> Elements:
    return tuple((place, value) for place, (_, value) in enumerate(elements))


# Splits of sequences into parts, to try when all items at once do not work.

Item = TypeVar("Item")


def yield_parts(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Yield all items, then halves, quarters and so on, and finally each item alone.

    >>> [*in_parts("abcd")]
    ['abcd', 'ab', 'cd', 'a', 'b', 'c', 'd']
    """
    count = 1
    while items and count < 2 * len(items):
        count = min(count, len(items))
        yield from (items[start:stop] for start, stop in yield_cuts(len(items), count))
        count *= 2


def yield_cuts(length: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of ``count`` nearly equal parts, none of them empty."""
    ends = [length * part // count for part in range(count + 1)]
    yield from ((start, stop) for start, stop in pairwise(ends) if start < stop)
