"""Find the user's entries in Inductor's tables, and compare those of two processes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import ModuleType

from shrinkfx.protocol.answers import Entries

from .watching.origins import is_own_code

_INDUCTOR = "torch._inductor."

Entry = tuple[str, str]
"""A table, such as ``torch._inductor.lowering.lowerings``, and a key in it."""


def own_entries() -> Entries:
    """List the table entries of this process whose code is in no installed package."""
    entries = [
        (name, str(key))
        for name, table in _tables()
        for key, value in list(table.items())
        if is_own_code(value)
    ]
    return Entries(tuple(sorted(entries)))


def list_missing_entries(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries of another process that this process's tables do not have."""
    return [(name, key) for name, key in entries if not _holds(name, key)]


def _holds(name: str, key: str) -> bool:
    """Return whether a table has a key; return True if there is no such table."""
    module, _, attribute = name.rpartition(".")
    table = getattr(sys.modules.get(module), attribute, None)
    return not isinstance(table, dict) or any(str(each) == key for each in table)


def _tables() -> Iterator[tuple[str, dict[object, object]]]:
    """Yield each table once, under the alphabetically first module that holds it."""
    seen: set[int] = set()
    for module_name, module in sorted(sys.modules.items()):
        if not module_name.startswith(_INDUCTOR) or not isinstance(module, ModuleType):
            continue
        for name, value in list(vars(module).items()):
            if type(value) is dict and id(value) not in seen:
                seen.add(id(value))
                yield f"{module_name}.{name}", value
