"""Tables of Inductor: what of a user's own is in them, and what another process has."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import ModuleType

from shrinkfx.protocol.descriptions import Entries

from .watching.origins import is_own_code

_INDUCTOR = "torch._inductor."

Entry = tuple[str, str]
"""A table, ``torch._inductor.lowering.lowerings``, and a key there."""


def own_entries() -> Entries:
    """List those of code that no installation has brought, in this process."""
    found = [
        (name, str(key))
        for name, table in _tables()
        for key, value in list(table.items())
        if is_own_code(value)
    ]
    return Entries(tuple(sorted(found)))


def not_here(entries: Iterable[Entry]) -> list[Entry]:
    """List those of another process's where this one's tables hold nothing."""
    return [(name, key) for name, key in entries if not _holds(name, key)]


def _holds(name: str, key: str) -> bool:
    """Tell whether a table has an entry; where there is no such table, nobody knows."""
    module, _, held = name.rpartition(".")
    table = getattr(sys.modules.get(module), held, None)
    return not isinstance(table, dict) or any(str(each) == key for each in table)


def _tables() -> Iterator[tuple[str, dict[object, object]]]:
    """Yield each table once, by the module that comes first by its name."""
    seen: set[int] = set()
    for module, held in sorted(sys.modules.items()):
        if not module.startswith(_INDUCTOR) or not isinstance(held, ModuleType):
            continue
        for name, value in list(vars(held).items()):
            if type(value) is dict and id(value) not in seen:
                seen.add(id(value))
                yield f"{module}.{name}", value
