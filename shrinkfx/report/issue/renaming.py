"""A cause with the names that a repro has, where a user's own are left out of that.

input token_ids is declared [s77] and is [5]    becomes    input x is declared ...
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from shrinkfx.report.explanation.chain import Layout
from shrinkfx.report.explanation.record import Explanation

_OURS = ("buffer", "value")
"""Roles of what has its name from a compiler, or from an operator."""

_ROLES = ("input", "weight", "registered buffer", "constant")
"""Those of what a user has named."""

_LAYOUT = Layout.__dataclass_fields__.keys()


def with_new_names(explanation: Explanation, renamed: Mapping[str, str]) -> Explanation:
    """Name inputs and weights in all that is said of a cause as a repro does.

    One without a new name, since nothing of it is in the repro, is named by its role
    alone: in text it is ``input``, as it would be without a name.
    """
    data = json.loads(explanation.to_line())
    given = {(each["role"], each["name"]) for each in _layouts(data) if each["name"]}
    new = {(role, name): _new(name, renamed) for role, name in given}
    new |= {(role, old): to for old, to in renamed.items() for role in _ROLES}
    said = {f"{role} {old}": f"{role} {to}".strip() for (role, old), to in new.items()}
    in_code = {
        re.sub(r"\W", "_", name): new[role, name] or "_"
        for role, name in given
        if role != "input"  # generated code calls these by numbers
    }
    for part in _layouts(data):
        part["name"] = new.get((part["role"], part["name"]), part["name"])
    for name in ("chain", "halted"):
        for line in (data[name] or {}).get("code", ()):
            line["text"] = _replaced(line["text"], in_code)
    return Explanation.from_json(_mapped(data, lambda text: _replaced(text, said)))


def _new(name: str, renamed: Mapping[str, str]) -> str:
    """Find the new name; a printed module has a weight by another spelling."""
    printed = re.sub(r"\W", "_", name)
    spellings = (name, printed, f"_{printed}")
    return next((renamed[each] for each in spellings if each in renamed), "")


def _layouts(data: Any) -> Iterator[Any]:  # noqa: ANN401 - any part of JSON
    if isinstance(data, dict):
        if data.keys() == _LAYOUT and data["role"] not in _OURS:
            yield data
        for value in data.values():
            yield from _layouts(value)
    elif isinstance(data, list):
        for value in data:
            yield from _layouts(value)


def _mapped(data: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(data, dict):
        return {name: _mapped(value, change) for name, value in data.items()}
    if isinstance(data, list):
        return [_mapped(value, change) for value in data]
    return change(data) if isinstance(data, str) else data


def _replaced(text: str, words: Mapping[str, str]) -> str:
    """Replace whole words, all at once: a new name may be another one's old one."""
    if not words:
        return text
    longest_first = sorted(words, key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first))
    whole = rf"(?<![\w.])(?:{pattern})(?!\w|\.\w)"
    return re.sub(whole, lambda found: words[found[0]], text)
