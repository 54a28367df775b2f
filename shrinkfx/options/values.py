"""Readers and checks of option values that are neither numbers nor choices."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from shrinkfx.errors import UsageError
from shrinkfx.failure.signature import UNTIL
from shrinkfx.failure.signature import Kind as FailureKind
from shrinkfx.flags import one_of
from shrinkfx.program.listing.types import Kind
from shrinkfx.protocol.choices import InductorOptions
from shrinkfx.wording import Flag

GUARD_PAGES = ("auto", "on", "off")

RANGES = ("declared", "beyond")
"""Ranges of the sizes that a sweep tries."""

SHOWN_BY: Mapping[str | None, Mapping[str, str]] = {
    FailureKind.CHECK_INPUTS: {"AOTI_RUNTIME_CHECK_INPUTS": "1"}
}
"""Environment variables without which a kind of failure never shows."""


def kind_of_failure(_: str, value: str) -> None:
    if value not in UNTIL:
        near = get_close_matches(value, UNTIL, n=3)
        meant = f"did you mean {', '.join(near)}? all: " if near else "one of "
        raise UsageError(f"unknown kind '{value}': {meant}{', '.join(UNTIL)}")


def regular_expression(flag: str, value: str) -> None:
    try:
        re.compile(value)
    except re.error as error:
        raise UsageError(Flag(flag, value), f": {error}") from error


def known_device(flag: str, value: str) -> None:
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", value):
        there = "expected cpu, cuda, or a GPU by its number: cuda:1"
        raise UsageError(Flag(flag, value), f": {there}")


def known_gpus(flag: str, value: Sequence[str]) -> None:
    for each in value:
        if not re.fullmatch(r"\d{1,3}", each):
            as_in = ": expected GPU numbers as in cuda:0, such as 0,1"
            raise UsageError(Flag(flag, each), as_in)
        if value.count(each) > 1:
            twice = f": {each} occurs twice"
            raise UsageError(Flag(flag, ",".join(value)), twice)


def numbers_of_gpus(said: str | Sequence[str]) -> tuple[str, ...]:
    """Parse the numbers of GPUs, such as ``0,1``."""
    return names(said) if isinstance(said, str) else tuple(said)


def known_guard_pages(flag: str, value: str) -> None:
    if value not in GUARD_PAGES:
        there = f" '{value}': expected one of {', '.join(GUARD_PAGES)}"
        raise UsageError("unknown ", Flag(flag), there)


def known_ranges(_: str, value: str) -> None:
    one_of(RANGES)("--ranges", value)


def some_names(flag: str, value: Sequence[str]) -> None:
    if not value:
        all_of_them = (
            " contains no name; to list the strategies: shrinkfx --list-strategies"
        )
        raise UsageError(Flag(flag), all_of_them)


def known_kinds(flag: str, value: Sequence[str]) -> None:
    for kind in value:
        if kind not in {*Kind}:
            near = get_close_matches(kind, (*Kind, ALL), n=3)
            meant = f"did you mean {', '.join(near)}? " if near else ""
            there = ", ".join((*Kind, ALL))
            said = f": unknown kind; {meant}all kinds: {there}"
            raise UsageError(Flag(flag, kind), said)


def kinds_to_keep(said: str | Sequence[str]) -> tuple[str, ...]:
    """Parse kinds, such as ``sizes,values``; ``all`` means every kind."""
    kinds = names(said) if isinstance(said, str) else tuple(said)
    return tuple(map(str, Kind)) if ALL in kinds else kinds


ALL = "all"
"""The word that stands for every kind."""


def names(text: str) -> tuple[str, ...]:
    """Split a comma-separated list such as ``a,b``; empty names are dropped."""
    return tuple(filter(None, text.split(",")))


def inductor_settings(texts: Sequence[str]) -> InductorOptions:
    """Parse Inductor options such as ``max_autotune=True``.

    A value that is not a Python literal is a string.
    """
    pairs = [_pair("--inductor-config", text) for text in texts]
    return {name: _literal(value) for name, value in pairs}


def variables(texts: Sequence[str]) -> dict[str, str]:
    """Parse environment variables such as ``NAME=value``."""
    return dict(_pair("--env", text) for text in texts)


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _pair(flag: str, text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(Flag(flag), f" expects KEY=VALUE, not '{text}'")
    return name, value
