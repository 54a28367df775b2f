"""Readers and checks of option values that are neither numbers nor choices."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from shrinkfx.errors import UsageError
from shrinkfx.failure.signature import UNTIL
from shrinkfx.failure.signature import Kind as FailureKind
from shrinkfx.flags import make_choice_check
from shrinkfx.program.listing.printed_program import Kind
from shrinkfx.protocol.choices import InductorOptions
from shrinkfx.wording import Flag

GUARD_PAGES = ("auto", "on", "off")

RANGES = ("declared", "beyond")
"""Ranges of the sizes that a sweep tries."""

REQUIRED_VARIABLES: Mapping[str | None, Mapping[str, str]] = {
    FailureKind.CHECK_INPUTS: {"AOTI_RUNTIME_CHECK_INPUTS": "1"}
}
"""Environment variables without which a kind of failure never shows."""


def check_failure_kind(_: str, value: str) -> None:
    if value not in UNTIL:
        matches = get_close_matches(value, UNTIL, n=3)
        hint = f"did you mean {', '.join(matches)}? all: " if matches else "one of "
        raise UsageError(f"unknown kind '{value}': {hint}{', '.join(UNTIL)}")


def check_regular_expression(flag: str, value: str) -> None:
    try:
        re.compile(value)
    except re.error as error:
        raise UsageError(Flag(flag, value), f": {error}") from error


def check_device(flag: str, value: str) -> None:
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", value):
        expected = "expected cpu, cuda, or a GPU by its number: cuda:1"
        raise UsageError(Flag(flag, value), f": {expected}")


def check_gpus(flag: str, value: Sequence[str]) -> None:
    for each in value:
        if not re.fullmatch(r"\d{1,3}", each):
            expected = ": expected GPU numbers as in cuda:0, such as 0,1"
            raise UsageError(Flag(flag, each), expected)
        if value.count(each) > 1:
            problem = f": {each} occurs twice"
            raise UsageError(Flag(flag, ",".join(value)), problem)


def parse_gpu_numbers(numbers: str | Sequence[str]) -> tuple[str, ...]:
    """Parse the numbers of GPUs, such as ``0,1``."""
    return parse_names(numbers) if isinstance(numbers, str) else tuple(numbers)


def check_guard_pages(flag: str, value: str) -> None:
    if value not in GUARD_PAGES:
        problem = f" '{value}': expected one of {', '.join(GUARD_PAGES)}"
        raise UsageError("unknown ", Flag(flag), problem)


def check_ranges(_: str, value: str) -> None:
    make_choice_check(RANGES)("--ranges", value)


def check_strategy_names(flag: str, value: Sequence[str]) -> None:
    if not value:
        listing = "to list the strategies: shrinkfx --list-strategies"
        raise UsageError(Flag(flag), f" contains no name; {listing}")


def check_kept_kinds(flag: str, value: Sequence[str]) -> None:
    for kind in value:
        if kind not in {*Kind}:
            matches = get_close_matches(kind, (*Kind, ALL), n=3)
            hint = f"did you mean {', '.join(matches)}? " if matches else ""
            kinds = ", ".join((*Kind, ALL))
            problem = f": unknown kind; {hint}all kinds: {kinds}"
            raise UsageError(Flag(flag, kind), problem)


def parse_kept_kinds(names: str | Sequence[str]) -> tuple[str, ...]:
    """Parse kinds, such as ``sizes,values``; ``all`` means every kind."""
    kinds = parse_names(names) if isinstance(names, str) else tuple(names)
    return tuple(map(str, Kind)) if ALL in kinds else kinds


ALL = "all"
"""The word that stands for every kind."""


def parse_names(text: str) -> tuple[str, ...]:
    """Split a comma-separated list such as ``a,b``; empty names are dropped."""
    return tuple(filter(None, text.split(",")))


def parse_inductor_options(texts: Sequence[str]) -> InductorOptions:
    """Parse Inductor options such as ``max_autotune=True``.

    A value that is not a Python literal is a string.
    """
    pairs = [_split_pair("--inductor-config", text) for text in texts]
    return {name: _parse_literal(value) for name, value in pairs}


def parse_variables(texts: Sequence[str]) -> dict[str, str]:
    """Parse environment variables such as ``NAME=value``."""
    return dict(_split_pair("--env", text) for text in texts)


def _parse_literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _split_pair(flag: str, text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(Flag(flag), f" expects KEY=VALUE, not '{text}'")
    return name, value
