"""Records as JSON, and back, by the types of their fields."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

Number = bool | int | float | complex


def to_json(value: Any) -> Any:  # noqa: ANN401 - any value of a record
    """Convert a value to JSON, also complex numbers and non-finite floats."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {name: to_json(item) for name, item in value.items()}
    if isinstance(value, complex):
        return {"complex": [to_json(value.real), to_json(value.imag)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def read_value(hint: Any, value: Any) -> Any:  # noqa: ANN401 - any type, any value
    """Convert a JSON value to the type of a field."""
    if hint == Number:
        return _read_number(value)
    if get_origin(hint) in (Union, UnionType):
        hint = next(h for h in get_args(hint) if h is not NoneType)
        return None if value is None else read_value(hint, value)
    if get_origin(hint) in (tuple, Sequence):
        items, *rest = get_args(hint)
        hints = [items] * len(value) if rest in ([], [...]) else [items, *rest]
        return tuple(map(read_value, hints, value))
    if hint is Path or (isinstance(hint, type) and issubclass(hint, StrEnum)):
        return hint(value)
    read = getattr(hint, "from_json", None)  # a record
    return read(value) if read else value


def _read_number(value: Any) -> Number:  # noqa: ANN401 - a number, or one of two objects
    match value:
        case {"complex": [real, imaginary]}:
            return complex(_read_number(real), _read_number(imaginary))
        case {"float": text}:
            return math.nan if text == "nan" else float(text)  # so it equals itself
    number: Number = value
    return number


_HINTS: dict[type, dict[str, Any]] = {}


def type_hints(kind: type) -> dict[str, Any]:
    """Return the field types of a class; resolving them takes long, so once only."""
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind)
    return _HINTS[kind]


@dataclass(frozen=True)
class Record:
    """A record whose JSON is an object with its fields."""

    def to_json(self) -> dict[str, Any]:
        return {each.name: to_json(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read a record.

        Raises:
            KeyError: there is no such field.
        """
        hints = type_hints(cls)
        return cls(**{name: read_value(hints[name], data[name]) for name in data})


@dataclass(frozen=True)
class OneOf(Record):
    """A record of one of several kinds; JSON contains the name of its class.

    Attributes:
        TAG: the name of the field with the name of the class.
    """

    TAG: ClassVar[str] = "kind"

    def to_json(self) -> dict[str, Any]:
        return {self.TAG: type(self).__name__, **super().to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read a record of any kind.

        Raises:
            KeyError: there is no such kind, or no such field.
        """
        kinds, found = {}, [cls]
        for kind in found:
            kinds[kind.__name__] = kind
            found += kind.__subclasses__()
        content = {name: item for name, item in data.items() if name != cls.TAG}
        return super(OneOf, kinds[data[cls.TAG]]).from_json(content)
