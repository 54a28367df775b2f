"""Records that are lines of JSON: what parent and worker say to each other.

Never pickle: nothing that a model file holds is executed by reading an answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Self, Union, get_args, get_origin, get_type_hints

from shrinkfx.program.words import plain


@dataclass(frozen=True)
class Message:
    """A record that is one line of JSON and back; an unknown field is an error."""

    def to_line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read a record; what JSON does not have (enums, tuples, records) is made anew.

        Raises:
            TypeError: a field is unknown, or one without a default is missing.
            ValueError: a value is none of its enum's.
        """
        hints = _HINTS.get(cls) or _HINTS.setdefault(cls, get_type_hints(cls))
        if unknown := sorted(data.keys() - {f.name for f in fields(cls)}):
            raise TypeError(f"{cls.__name__} has no {', '.join(unknown)}")
        read = {name: read_value(hints[name], value) for name, value in data.items()}
        return cls(**read)

    @classmethod
    def from_line(cls, line: str | bytes) -> Self:
        return cls.from_json(json.loads(line))


_HINTS: dict[type, dict[str, Any]] = {}
"""Types of fields by class: to work them out takes longer than to read a record."""


def read_value(hint: Any, value: Any) -> Any:  # noqa: ANN401 - any type, any value
    """Make of a JSON value what a field's type says."""
    if get_origin(hint) in (Union, UnionType):
        hint = next(h for h in get_args(hint) if h is not NoneType)
        return None if value is None else read_value(hint, value)
    if get_origin(hint) is tuple:
        return tuple(read_value(get_args(hint)[0], item) for item in value)
    if hint is Path:
        return Path(value)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint(value)
    read = getattr(hint, "from_json", None)  # of a message, or of another room's record
    return read(value) if read else value


@dataclass(frozen=True)
class Reported(Message):
    """What a worker says: here texts of others come in, and are made plain."""

    @classmethod
    def from_line(cls, line: str | bytes) -> Self:
        return cls.from_json(json.loads(line, object_hook=_in_plain_words))


def _in_plain_words(data: dict[str, Any]) -> dict[str, Any]:
    return {name: _plain_value(value) for name, value in data.items()}


def _plain_value(value: object) -> object:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list):  # of texts, at the most; else its objects were met
        return [plain(text) if isinstance(text, str) else text for text in value]
    return value
