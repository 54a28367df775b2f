"""Records as lines of JSON, which parent and worker exchange.

They are never pickled, so reading an answer executes nothing from a model file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import NoneType, UnionType
from typing import (
    Any,
    ClassVar,
    Concatenate,
    ParamSpec,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from shrinkfx.program.display_text import printable
from shrinkfx.program.record import read_value, type_hints


@dataclass(frozen=True)
class Message:
    """A record that converts to one line of JSON and back.

    Every field must be present; an unknown or a missing field is an error.

    Attributes:
        OLD_NAMES: the names that renamed fields have in run folders of earlier
            versions, each with the new name. They are accepted until 0.2.
    """

    OLD_NAMES: ClassVar[Mapping[str, str]] = {}

    def to_json(self) -> Mapping[str, Any]:
        """Return the fields; nested records are converted when the line is written."""
        return vars(self)

    def to_line(self) -> str:
        return json.dumps(self.to_json(), default=_stated) + "\n"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read a record, with the enums, tuples and nested records that JSON lacks.

        Raises:
            TypeError: a field is unknown, or missing.
            ValueError: a value is not a member of its enum.
        """
        hints = type_hints(cls)
        names = {field.name for field in fields(cls)}
        data = cls._rename_old_fields(data)
        if unknown := sorted(data.keys() - names):
            raise TypeError(f"{cls.__name__} has no {', '.join(unknown)}")
        if missing := sorted(names - data.keys()):
            raise TypeError(f"{cls.__name__} without {', '.join(missing)}")
        return cls(**{n: read_value(hints[n], value) for n, value in data.items()})

    @classmethod
    def from_line(cls, line: str | bytes) -> Self:
        return cls.from_json(json.loads(line))

    @classmethod
    def _rename_old_fields(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        return {cls.OLD_NAMES.get(name, name): value for name, value in data.items()}


def _stated(value: Any) -> Any:  # noqa: ANN401 - a record, of which JSON has none
    if not hasattr(value, "to_json"):
        raise TypeError(f"{type(value).__name__} {value!r:.60} has no place in JSON")
    return value.to_json()


def to_json_with_old_names(value: Any) -> Any:  # noqa: ANN401 - any value of a record
    """Convert a record to JSON that has renamed fields under their old names too."""
    if isinstance(value, tuple | list):
        return [to_json_with_old_names(item) for item in value]
    if not isinstance(value, Message):
        return value.to_json() if hasattr(value, "to_json") else value
    new = {k: to_json_with_old_names(item) for k, item in value.to_json().items()}
    return new | {old: new[name] for old, name in value.OLD_NAMES.items()}


Read = TypeVar("Read", bound=Message)


def read_older(kind: type[Read], data: Mapping[str, Any]) -> Read:
    """Read a record from a file that another version may have written.

    Missing fields get their defaults, and unknown fields are ignored.

    Raises:
        TypeError: a field without a default is missing.
        ValueError: a value is not a member of its enum.
    """
    hints = type_hints(kind)
    data = kind._rename_old_fields(data)
    known = {name: value for name, value in data.items() if name in hints}
    return kind(**{name: _older(hints[name], value) for name, value in known.items()})


def _older(hint: Any, value: Any) -> Any:  # noqa: ANN401 - any type, any value
    if get_origin(hint) in (Union, UnionType):
        hint = next(h for h in get_args(hint) if h is not NoneType)
        return None if value is None else _older(hint, value)
    if get_origin(hint) is tuple:
        return tuple(_older(get_args(hint)[0], item) for item in value)
    if isinstance(hint, type) and issubclass(hint, Message):
        return read_older(hint, value)
    return read_value(hint, value)


@dataclass(frozen=True)
class Named(Message):
    """A record of one of several kinds; JSON contains the name of its class."""

    def to_json(self) -> Mapping[str, Any]:
        return {type(self).__name__: vars(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read a record of this class or of a direct subclass.

        Raises:
            KeyError: there is no such kind.
            TypeError: a field is unknown, or missing.
        """
        ((name, content),) = data.items()
        kinds = {kind.__name__: kind for kind in (cls, *cls.__subclasses__())}
        read: Self = super(Named, kinds[name]).from_json(content)
        return read


@dataclass(frozen=True)
class Reported(Message):
    """A record from a worker; reading it makes text of foreign programs printable."""

    @classmethod
    def from_line(cls, line: str | bytes) -> Self:
        return cls.from_json(json.loads(line, object_hook=_made_printable))


def _made_printable(data: dict[str, Any]) -> dict[str, Any]:
    return {name: _printable_value(value) for name, value in data.items()}


def _printable_value(value: object) -> object:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):  # a list of strings, at most; nested objects are done
        return [printable(text) if isinstance(text, str) else text for text in value]
    return value


Fields = ParamSpec("Fields")
Result = TypeVar("Result")


def with_fields_of(
    record: Callable[Fields, object],
) -> Callable[[Callable[..., Result]], Callable[Concatenate[Any, Fields], Result]]:
    """Give a method the parameters of a record, so that mypy finds a misspelt one."""
    return lambda method: method
