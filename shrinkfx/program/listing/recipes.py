"""How the values of an input or a weight are made: a recipe, as plain as can be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.listing.plain_numbers import MOST, Number, plainness
from shrinkfx.program.listing.strides import dense, reach, resized

_ITEMSIZE = {
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 8),
    **dict.fromkeys(("float32", "int32", "uint32", "complex32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    "complex128": 16,
}


def itemsize(dtype: str) -> int:
    """Count the bytes of an element."""
    return _ITEMSIZE.get(dtype, 1)


_USUAL = frozenset({"float32", "int64", "bool"})
"""Dtypes that nobody asks about."""

LISTED = 64
"""Elements that are still readable one by one."""


@dataclass(frozen=True)
class Fill:
    """Where elements come from; see its subclasses, the plainest first.

    Attributes:
        rank: how plain it is; less is plainer.
    """

    rank: ClassVar[int]

    def count(self) -> int:
        """Count what a reader has to look at, besides its kind."""
        return 0

    def to_json(self) -> dict[str, Any]:
        fields = {name: _as_json(value) for name, value in asdict(self).items()}
        return {"kind": type(self).__name__, **fields}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Fill:
        """Read a fill of any kind.

        Raises:
            KeyError: there is no such kind.
        """
        told = {k: _read(v) for k, v in data.items() if k != "kind"}
        return _KINDS[data["kind"]](**told)


@dataclass(frozen=True)
class Constant(Fill):
    """The same number everywhere."""

    rank = 0
    value: Number

    def count(self) -> int:
        return plainness(self.value)


@dataclass(frozen=True)
class Counted(Fill):
    """0, 1, 2 and so on, in the order of memory."""

    rank = 2


@dataclass(frozen=True)
class Seeded(Fill):
    """Drawn from a seed.

    Attributes:
        draw: ``rand``, ``randn``, or ``randint`` from ``low`` to below ``high``.
    """

    rank = 3
    draw: str
    low: int = 0
    high: int = 0


@dataclass(frozen=True)
class Sparse(Fill):
    """A number everywhere but at a few places of memory.

    Attributes:
        elements: places from 0 in the order of memory, ascending, and what is there.
    """

    rank = 4
    base: Number
    elements: tuple[tuple[int, Number], ...]

    def count(self) -> int:
        told = sum(1 + plainness(p) + plainness(v) for p, v in self.elements)
        return plainness(self.base) + told


@dataclass(frozen=True)
class Saved(Fill):
    """Values in the file beside the script.

    They may be cut: of each dim the first elements are taken where it has shrunk.

    Attributes:
        key: their name in that file.
    """

    rank = 6
    key: str

    def count(self) -> int:
        """A file beside the script is more than any list that can be read."""
        return 3 * _MOST_TOLD * LISTED


@dataclass(frozen=True)
class Part(Saved):
    """Some of the values in that file; everywhere else is a number.

    On the way to a list: where few are left they are told.

    Attributes:
        base: the number.
        shape: of the values that it is a part of, the first ones of each dim.
        parts: places in these, in the order of memory, from and to before.
    """

    rank = 5
    base: Number
    shape: tuple[int, ...]
    parts: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        return sum(stop - start for start, stop in self.parts)

    def count(self) -> int:
        """Less than of all values, and more than of any list."""
        most = _MOST_TOLD * LISTED
        return most + min(most, int(16 * math.log2(1 + self.size)))


@dataclass(frozen=True)
class Opaque(Fill):
    """An expression of which nothing is known, of a script object say."""

    rank = 7
    text: str


_ALL = (Constant, Counted, Seeded, Sparse, Part, Saved, Opaque)

_KINDS: Mapping[str, type[Fill]] = {kind.__name__: kind for kind in _ALL}


def _as_json(value: Any) -> Any:  # noqa: ANN401 - a field
    """Have JSON hold what it has no word for: what is no finite real number."""
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
            return math.nan if text == "nan" else float(text)  # equal to itself
    return value


_MOST_TOLD = 2 + MOST + 1
"""What an element of a sparse fill counts at most: its place, its number, and 1."""


@dataclass(frozen=True)
class Recipe:
    """A tensor of some kind, and where its elements come from.

    Attributes:
        dtype: as ``torch`` names it: ``float32``.
        stride: steps in memory by dim; None for a contiguous tensor.
    """

    shape: tuple[int, ...]
    dtype: str
    fill: Fill
    stride: tuple[int, ...] | None = None
    device: str = "cpu"

    @property
    def span(self) -> int:
        """Count the elements of memory that it reaches over."""
        if self.stride is None:
            return math.prod(self.shape)
        return reach(self.shape, self.stride)

    @property
    def elements(self) -> int:
        """Count its elements, as a reader of its shape does."""
        return 0 if isinstance(self.fill, Opaque) else math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Count its bytes; of an opaque one nothing is known."""
        if isinstance(self.fill, Opaque):
            return 0
        return self.span * itemsize(self.dtype)

    @property
    def plainness(self) -> int:
        """Weigh what a reader has to take in: less is plainer."""
        kind = 8 * self.fill.rank + self.fill.count()
        layout = 0
        if self.stride is not None:
            layout = 8 + (self.stride != dense(self.shape, self.stride))
        return kind + layout + (0 if self.dtype in _USUAL else 4) + len(self.shape)

    def resized(self, dim: int, size: int) -> Recipe:
        """Make it another size, its dims in the same order, gaps in proportion.

        What is cut from saved values keeps their steps.

        Raises:
            InvalidEdit: it has no such dim, is no tensor, or not so much is saved.
        """
        if isinstance(self.fill, Opaque) or not 0 <= dim < len(self.shape):
            raise InvalidEdit("it has no such dim")
        is_saved = isinstance(self.fill, Saved)
        if is_saved and size > self.shape[dim]:
            raise InvalidEdit("not so much is saved")
        shape = (*self.shape[:dim], size, *self.shape[dim + 1 :])
        stride = self.stride
        if stride is not None and not is_saved:
            stride = resized(self.shape, stride, shape)
        return replace(self, shape=shape, stride=stride).filled(self.fill)

    def contiguous(self, *, in_order: bool = False) -> Recipe:
        """Lay it out without gaps: row by row, or with its dims in the same order."""
        stride = dense(self.shape, self.stride) if in_order and self.stride else None
        return replace(self, stride=stride).filled(self.fill)

    def filled(self, fill: Fill) -> Recipe:
        """Take its elements from elsewhere, as many as there are."""
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
            Fill.from_json(data["fill"]),
            None if stride is None else tuple(stride),
            data["device"],
        )


def _within(fill: Fill, span: int) -> Fill:
    """Forget the elements of a sparse fill that memory does not reach any more."""
    if not isinstance(fill, Sparse):
        return fill
    inside = tuple(pair for pair in fill.elements if pair[0] < span)
    return replace(fill, elements=inside) if inside else Constant(fill.base)
