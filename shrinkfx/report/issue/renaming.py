"""Rewrite an explanation with the names that the repro has.

input token_ids is declared [s77] and is [5]    becomes    input x is declared ...
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields
from typing import Any

from shrinkfx.findings.chain import Layout, SizeSymbol
from shrinkfx.findings.record import Explanation

_OURS = ("buffer", "value")
"""Roles of values that a compiler or an operator named."""

_ROLES = ("input", "weight", "registered buffer", "constant")
"""Roles of values that a user named."""

_DIM = r"dim \d+ of"

_LAYOUT = {field.name for field in fields(Layout)}
_SYMBOL = {field.name for field in fields(SizeSymbol)}


def use_repro_names(
    explanation: Explanation, renamed: Mapping[str, str], *, models_too: bool
) -> Explanation:
    """Replace names of inputs and weights in sentences by the repro's short names.

    Names that the repro does not have, and generated code, are unchanged.

    Args:
        renamed: the repro's names of inputs and weights, by their names in the reduced
            program.
        models_too: add the name of the input program once, in the cause.
    """
    data = json.loads(explanation.to_line())
    layouts = {each["name"] for each in _layouts(data)}
    names = {old: to for old, to in renamed.items() if old != to}
    names |= {old: to for old in layouts if (to := _new(old, renamed)) not in ("", old)}
    if not names:
        return explanation
    for part in _layouts(data):
        part["name"] = names.get(part["name"], part["name"])
    for part in _symbols(data):
        part["input"] = names.get(part["input"], part["input"])
    naming = _Naming(names, set(names) if models_too else set())
    # Parts of the explanation repeat sentences of the cause: keep them identical.
    cause = {sentence: naming(sentence) for sentence in explanation.cause}
    naming = _Naming(names, set())
    mapped = _mapped(data, lambda text: cause.get(text) or naming(text))
    return Explanation.from_json(mapped)


class _Naming:
    """Replaces names in texts; adds some names of the input program once."""

    def __init__(
        self,
        names: Mapping[str, str],
        unexplained: set[str],
        what: tuple[str, ...] = (*_ROLES, _DIM),
    ) -> None:
        self._names, self._unexplained = names, unexplained
        longest_first = sorted(names, key=len, reverse=True)
        old = "|".join(map(re.escape, longest_first))
        self._named = re.compile(
            rf"(?P<what>\b(?:{'|'.join(what)}) )(?P<old>{old})"
            r"(?!\w|\.\w| in the input program)"
        )

    def __call__(self, text: str) -> str:
        return self._named.sub(self._new, text)

    def _new(self, found: re.Match[str]) -> str:
        old = found["old"]
        new = f"{found['what']}{self._names[old]}"
        if old not in self._unexplained:
            return new
        self._unexplained.discard(old)
        return f"{new} (named {old} in the input program)"


def anonymize_explanation(
    explanation: Explanation, renamed: Mapping[str, str]
) -> Explanation:
    """Replace the user's names in all of an explanation, as in an anonymous repro.

    A value that the repro does not contain has no new name; its role alone names it,
    such as ``input``.
    """
    data = json.loads(explanation.to_line())
    old_names = {
        (each["role"], each["name"]) for each in _layouts(data) if each["name"]
    }
    new = {(role, name): _new(name, renamed) for role, name in old_names}
    new |= {(role, old): to for old, to in renamed.items() for role in _ROLES}
    phrases = {
        f"{role} {old}": f"{role} {to}".strip() for (role, old), to in new.items()
    }
    in_code = {
        re.sub(r"\W", "_", name): new[role, name] or "_"
        for role, name in old_names
        if role != "input"  # generated code numbers the inputs
    }
    for part in _layouts(data):
        part["name"] = new.get((part["role"], part["name"]), part["name"])
    for name in ("chain", "compile_error"):
        for line in (data[name] or {}).get("code", ()):
            line["text"] = _replaced(line["text"], in_code)
    carriers = dict(renamed)
    for part in _symbols(data):
        if name := part["input"]:
            carriers[name] = _new(name, renamed) or "an input"
            part["input"] = carriers[name]
        part |= {"whole_input": "", "whole_dim": None}
    named = _Naming(carriers, set(), (_DIM,)) if carriers else str
    return Explanation.from_json(_mapped(data, lambda t: named(_replaced(t, phrases))))


def _new(name: str, renamed: Mapping[str, str]) -> str:
    """Return the new name; a printed module spells a weight's name differently."""
    printed = re.sub(r"\W", "_", name)
    spellings = (name, printed, f"_{printed}")
    return next((renamed[each] for each in spellings if each in renamed), "")


def _layouts(data: Any) -> Iterator[Any]:  # noqa: ANN401 - any part of JSON
    return (each for each in _records(data, _LAYOUT) if each["role"] not in _OURS)


def _symbols(data: Any) -> Iterator[Any]:  # noqa: ANN401 - the same
    return _records(data, _SYMBOL)


def _records(data: Any, keys: Collection[str]) -> Iterator[Any]:  # noqa: ANN401
    """Yield the records that have exactly these fields."""
    if isinstance(data, dict):
        if data.keys() == keys:
            yield data
        for value in data.values():
            yield from _records(value, keys)
    elif isinstance(data, list):
        for value in data:
            yield from _records(value, keys)


def _mapped(data: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(data, dict):
        return {name: _mapped(value, change) for name, value in data.items()}
    if isinstance(data, list):
        return [_mapped(value, change) for value in data]
    return change(data) if isinstance(data, str) else data


def _replaced(text: str, words: Mapping[str, str]) -> str:
    """Replace whole words at once, because a new name may equal another old name."""
    if not words:
        return text
    longest_first = sorted(words, key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first))
    bounded = rf"(?<![\w.])(?:{pattern})(?!\w|\.\w)"
    return re.sub(bounded, lambda found: words[found[0]], text)
