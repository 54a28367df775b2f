"""Remove registrations that the session has removed, and an import adds again.

    import recsys                                      registers a decomposition
    decompositions.pop(aten._softmax.default)          in a cell: healthy again

Processes of a run import modules of ``recsys`` for the code that they preload. A module
that is preloaded last removes the table entries that the session does not have.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shrinkfx.errors import LoadError, WorkerError
from shrinkfx.intake.modules import Preload
from shrinkfx.intake.worker import bare_worker
from shrinkfx.options.options import Options
from shrinkfx.protocol.descriptions import Entries
from shrinkfx.protocol.tasks import ListOwnEntries
from shrinkfx.report.custom_code_sources import mark_as_generated

FILE = "preload_taken_out"
"""Name of the generated file, without its suffix."""

_OPERATOR = re.compile(r"\w+\.\w+(\.\w+)?")

Entry = tuple[str, str]


@dataclass(frozen=True)
class RemovedRegistrations:
    """A preload that removes the registrations, and sentences about it.

    Attributes:
        lacking: sentences about registrations that cannot be removed.
    """

    preload: Preload | None = None
    notes: tuple[str, ...] = ()
    lacking: tuple[str, ...] = field(default=())


def taken_out(
    preloads: Sequence[str],
    options: Options,
    not_here: Callable[[Sequence[Entry]], Sequence[Entry]],
) -> RemovedRegistrations:
    """Compare Inductor's tables with those of a process that imports ``preloads``.

    Args:
        not_here: returns the entries that this process does not have.
    """
    with contextlib.suppress(LoadError, WorkerError):  # the run will report these
        with bare_worker(options, {}, preloads) as ask:
            answer = ask(ListOwnEntries()).answer
        if isinstance(answer, Entries):
            return _again([*not_here(answer.entries)])
    return RemovedRegistrations()


def _again(entries: Sequence[Entry]) -> RemovedRegistrations:
    removable = [(table, key) for table, key in entries if _OPERATOR.fullmatch(key)]
    lost = [each for each in entries if each not in removable]
    return RemovedRegistrations(
        Preload(FILE, _text(removable)) if removable else None,
        tuple(_REMOVED.format(*each) for each in removable),
        tuple(_LOST.format(*each) for each in lost),
    )


def _text(entries: Sequence[Entry]) -> str:
    modules = dict.fromkeys(table.rpartition(".")[0] for table, _ in entries)
    lines = [
        *(f"import {module}" for module in ("torch", *modules)),
        "",
        *(f"{table}.pop(torch.ops.{key}, None)" for table, key in entries),
    ]
    text = "\n".join(lines) + "\n"
    return mark_as_generated(text, "leaves out what was taken out where it was called")


_THERE = "{0} has no {1} in this session, but the preloaded modules register one: "
_REMOVED = f"{_THERE}a generated preload removes it"
_LOST = f"{_THERE}the run keeps it, unless preload=['passes'] names other modules"
