"""Tensor specs: how an input or a weight is created, as simply as possible."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.listing.simple_numbers import MOST, Number, number_complexity
from shrinkfx.program.listing.strides import dense, resized_strides, storage_span

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
class Initializer:
    """An initializer of a tensor's elements; see the subclasses, the simplest first.

    Attributes:
        rank: the complexity of its kind; less is simpler.
    """

    rank: ClassVar[int]

    def count(self) -> int:
        """Return the complexity beyond that of the kind."""
        return 0

    def to_json(self) -> dict[str, Any]:
        fields = {name: _as_json(value) for name, value in asdict(self).items()}
        return {"kind": type(self).__name__, **fields}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Initializer:
        """Read an initializer of any kind.

        Raises:
            KeyError: there is no such kind.
        """
        fields = {k: _read(v) for k, v in data.items() if k != "kind"}
        return _KINDS[data["kind"]](**fields)


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


_ALL = (Constant, Counted, Seeded, Sparse, Part, Saved, Opaque)

_KINDS: Mapping[str, type[Initializer]] = {kind.__name__: kind for kind in _ALL}


def _as_json(value: Any) -> Any:  # noqa: ANN401 - a field
    """Convert a field to JSON, also complex numbers and non-finite floats."""
    if isinstance(value, (tuple, list)):
        return [_as_json(item) for item in value]
    if isinstance(value, complex):
        return {"complex": [_as_json(value.real), _as_json(value.imag)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def _read(value: Any) -> Any:  # noqa: ANN401 - of any field
    match value:
        case list():
            return tuple(_read(item) for item in value)
        case {"complex": [real, imaginary]}:
            return complex(_read(real), _read(imaginary))
        case {"float": text}:
            return math.nan if text == "nan" else float(text)  # so it equals itself
    return value


_MAX_COMPLEXITY = 2 + MOST + 1
"""The largest complexity of an element of a sparse initializer.

It consists of the offset, the number, and 1.
"""


@dataclass(frozen=True)
class TensorSpec:
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

    def to_json(self) -> dict[str, Any]:
        return {
            "shape": list(self.shape),
            "dtype": self.dtype,
            "fill": self.fill.to_json(),
            "stride": None if self.stride is None else list(self.stride),
            "device": self.device,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        stride = data["stride"]
        return cls(
            tuple(data["shape"]),
            data["dtype"],
            Initializer.from_json(data["fill"]),
            None if stride is None else tuple(stride),
            data["device"],
        )


def _within(fill: Initializer, span: int) -> Initializer:
    """Drop elements of a sparse initializer that are outside the storage."""
    if not isinstance(fill, Sparse):
        return fill
    inside = tuple(pair for pair in fill.elements if pair[0] < span)
    return replace(fill, elements=inside) if inside else Constant(fill.base)
