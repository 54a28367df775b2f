"""What makes the field of a record an option of the command line.

What is known of an option stands beside its field: the parser, ``--help``, the check of
a value by itself, and the table in ``docs/reference.md`` are made from that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_args, get_type_hints

from shrinkfx.errors import UsageError
from shrinkfx.wording import Flag

Check = Callable[[str, Any], None]
"""Refuses a value of the option that it is told."""

_OPTION = "option"


@dataclass(frozen=True)
class Option:
    """An option, and the field that holds it.

    Attributes:
        help: a phrase in Markdown, of which ``--help-all`` shows the text.
        more: sentences that the reference adds, in Markdown.
        metavar: what ``--help`` calls the value; '' for a switch, or with choices.
        choices: the words that it may be.
        const: what the option sets where it takes no value; with a metavar, where none
            is given.
        flags: as users type it, the long one last; made of the field's name if empty.
        repeated: it may be said several times.
        apart: options of one group that have the same word here exclude each other.
        never_empty: an empty text for it is refused on the command line.
        beside_resume: it may be said anew to a run that goes on.
        common: ``--help`` has it, too; ``--help-all`` has them all.
        brief: a shorter phrase for ``--help``, where it is common.
        read: makes the field's value of the word typed, or of all if it is repeated.
        check: refuses values that make no sense, whatever the other options are.
        name: of the field.
        default: of the field.
        takes: what a word is read as first: a number, a text, or for a switch a bool.
    """

    help: str
    more: str = ""
    metavar: str = ""
    choices: tuple[str, ...] = ()
    const: str | None = None
    flags: tuple[str, ...] = ()
    repeated: bool = False
    apart: str = ""
    never_empty: bool = False
    beside_resume: bool = False
    common: bool = False
    brief: str = ""
    read: Callable[[Any], Any] | None = None
    check: Check | None = None
    name: str = ""
    default: Any = None
    takes: type = str

    @property
    def flag(self) -> str:
        return self.flags[-1]

    def value_of(self, typed: Any) -> Any:  # noqa: ANN401 - any field's
        """Make the field's value of what the parser has; None was not said."""
        return typed if self.read is None or typed is None else self.read(typed)


def option(default: Any, **about: Any) -> Any:  # noqa: ANN401 - as ``field`` has it
    """Make a field an option.

    Args:
        default: of the field; a type, to make a new one each time.
        about: attributes of ``Option``.
    """
    if choices := about.get("choices"):
        about["choices"] = tuple(map(str, choices))
        about.setdefault("check", one_of(about["choices"]))
    metadata = {_OPTION: Option(**about)}
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def options_in(record: type) -> Iterator[Option]:
    """Yield the options among the fields of a record, in their order."""
    hints = get_type_hints(record)
    for each in fields(record):
        if about := each.metadata.get(_OPTION):
            long = "--" + each.name.removesuffix("_s").replace("_", "-")
            yield replace(
                about,
                flags=about.flags or (long,),
                name=each.name,
                default=each.default,
                takes=_takes(hints[each.name]),
            )


def _takes(hint: Any) -> type:  # noqa: ANN401 - any type
    kinds = (hint, *get_args(hint))
    return next((kind for kind in (bool, int, float) if kind in kinds), str)


def require_values(record: object) -> None:
    """Refuse values of a record's options that make no sense by themselves.

    Raises:
        UsageError: which, and what there is.
    """
    for each in options_in(type(record)):
        value = getattr(record, each.name)
        if each.check and value is not None:
            each.check(each.flag, value)


def one_of(choices: Sequence[str]) -> Check:
    def check(flag: str, value: str) -> None:
        if value not in choices:
            raise UsageError(
                Flag(flag, value), f": expected one of {', '.join(choices)}"
            )

    return check


def above_zero(flag: str, value: float) -> None:
    if not value > 0:  # nan is not
        raise UsageError(Flag(flag), f" must be above 0, not {value}")
    if math.isinf(value):
        said = f" must be a number, not {value}: omit it"
        raise UsageError(Flag(flag), said)


def from_zero_on(flag: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise UsageError(Flag(flag), f" must be a number >= 0, not {value}")


_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


def without_markup(text: str) -> str:
    """Show a phrase in Markdown as a terminal does."""
    return _LINK.sub(r"\1", text).replace("`", "")
