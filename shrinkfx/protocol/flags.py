"""Fields of records as options of the command line.

The metadata of a field describes its option. The parser, ``--help``, the check of the
value and the table in ``docs/reference.md`` are made from this metadata.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_args, get_type_hints

from shrinkfx.errors import UsageError

Check = Callable[[str, Any], None]
"""Takes a flag and a value, and raises ``UsageError`` if the value is invalid."""

_OPTION = "option"


@dataclass(frozen=True)
class Option:
    """An option of the command line, and the field that holds its value.

    Attributes:
        help: a phrase in Markdown; ``--help-all`` shows it without the markup.
        more: sentences in Markdown that ``docs/reference.md`` adds.
        metavar: name of the value in the help; '' for a switch, or with ``choices``.
        choices: the allowed values; () for any value.
        const: the value of the option if it is typed without a value; with a
            ``metavar``, a value is optional.
        flags: the flags as typed, the long one last; if empty, one made from the name
            of the field.
        repeated: whether the option may be repeated.
        exclusive_group: options of a group with the same text here exclude each other.
        never_empty: whether an empty value is refused on the command line.
        works_with_resume: whether the option may be given together with ``--resume``.
        common: whether ``--help`` shows the option; ``--help-all`` shows all options.
            An option with a ``brief`` is common.
        brief: a shorter phrase for ``--help``.
        read: converts the typed word to the value of the field; for a repeated option,
            it converts the list of words.
        check: raises ``UsageError`` if the value is invalid by itself.
        name: name of the field.
        default: default value of the field.
        takes: type that the parser converts a word to; bool for a switch.
    """

    help: str
    more: str = ""
    metavar: str = ""
    choices: tuple[str, ...] = ()
    const: str | None = None
    flags: tuple[str, ...] = ()
    repeated: bool = False
    exclusive_group: str = ""
    never_empty: bool = False
    works_with_resume: bool = False
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

    def convert_value(self, value: Any) -> Any:  # noqa: ANN401 - any field's
        """Convert the value of the parser to that of the field.

        None stays None, because it means that the option was not given.
        """
        return value if self.read is None or value is None else self.read(value)


def option(default: Any, **about: Any) -> Any:  # noqa: ANN401 - as ``field`` has it
    """Make the field of a dataclass that is an option.

    Args:
        default: default value of the field, or a type that makes a new default for each
            record.
        about: attributes of ``Option``.
    """
    if choices := about.get("choices"):
        about["choices"] = tuple(map(str, choices))
        about.setdefault("check", make_choice_check(about["choices"]))
    about.setdefault("common", "brief" in about)
    metadata = {_OPTION: Option(**about)}
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def list_record_options(record: type) -> Iterator[Option]:
    """Yield the options among the fields of a dataclass, in order."""
    hints = get_type_hints(record)
    for each in fields(record):
        if about := each.metadata.get(_OPTION):
            long = "--" + each.name.removesuffix("_s").replace("_", "-")
            yield replace(
                about,
                flags=about.flags or (long,),
                name=each.name,
                default=each.default,
                takes=_find_value_type(hints[each.name]),
            )


def _find_value_type(hint: Any) -> type:  # noqa: ANN401 - any type
    kinds = (hint, *get_args(hint))
    return next((kind for kind in (bool, int, float) if kind in kinds), str)


def require_valid_values(record: object) -> None:
    """Check the value of each option of a record by itself.

    Raises:
        UsageError: a value is invalid; the message states the allowed values.
    """
    for each in list_record_options(type(record)):
        value = getattr(record, each.name)
        if each.check and value is not None:
            each.check(each.flag, value)


def make_choice_check(choices: Sequence[str]) -> Check:
    def check(flag: str, value: str) -> None:
        if value not in choices:
            raise UsageError(f"{flag} {value}: expected one of {', '.join(choices)}")

    return check


def require_above_zero(flag: str, value: float) -> None:
    if not value > 0:  # nan is not
        raise UsageError(f"{flag} must be above 0, not {value}")
    if math.isinf(value):
        raise UsageError(f"{flag} must be a number, not {value}: omit it")


def require_not_negative(flag: str, value: float) -> None:
    if not 0 <= value < math.inf:
        raise UsageError(f"{flag} must be a number >= 0, not {value}")


_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


def remove_markup(text: str) -> str:
    """Remove links and backticks from Markdown, for a terminal."""
    return _LINK.sub(r"\1", text).replace("`", "")
