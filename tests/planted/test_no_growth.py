"""Thousands of checks by a real server, with all but the compiler real."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.haystack import save_haystack
from support.planting import PRELOAD, Plant, write_plants

from shrinkfx.errors import BudgetExhausted
from shrinkfx.events import Event, QueryAnswered
from shrinkfx.options.options import Options
from shrinkfx.program.apply import apply
from shrinkfx.program.edits import Drop
from shrinkfx.run.context import RunContext, Subject
from shrinkfx.run.folder import open_run_folder
from shrinkfx.run.observe import reproduce_failure
from shrinkfx.run.reduction import oracle_for
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.system import scratch

CHECKS = 2000
EVERY = 200


@dataclass(frozen=True)
class Use:
    """What a run holds at a moment."""

    checks: int
    parent_bytes: int
    server_bytes: int
    output_files: int
    temporary_files: int

    def __str__(self) -> str:
        parent, server = (n >> 10 for n in (self.parent_bytes, self.server_bytes))
        return (
            f"{self.checks} checks: parent {parent} KiB, server {server} KiB, "
            f"{self.output_files} files of output, {self.temporary_files} temporary"
        )


def own_bytes(pid: int) -> int:
    """Read what a process holds in memory that no file does."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    fields = dict(line.split(":", 1) for line in text.splitlines()[1:])
    return int(fields["Anonymous"].split()[0]) << 10


def count_files(folder: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))


@pytest.mark.slow
def test_neither_memory_nor_files_grow_over_thousands_of_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, out = save_haystack(tmp_path / "model.pt2"), tmp_path / "out"
    out.mkdir()
    plants = tmp_path / "plants.json"
    needed = ("erf", "sin", "tanh", "cosh", "asinh", "atan", "sigmoid", "cumsum")
    write_plants(plants, [Plant("exp", "raise", "planted", needs=needed)])
    monkeypatch.setenv("SHRINKFX_PLANTS", str(plants))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    options = Options(model, preload=(str(PRELOAD),), max_checks=CHECKS)
    used: list[Use] = []

    def look(event: Event) -> None:
        if isinstance(event, QueryAnswered) and event.check % EVERY == 0:
            parent, worker = own_bytes(os.getpid()), own_bytes(server.pid)
            files = count_files(out), count_files(scratch.root())
            used.append(Use(event.check, parent, worker, *files))
            print(used[-1])

    with open_run_folder(options, out, look) as context, context.server() as server:
        context.worker = server
        check_all(context, reproduce_failure(context))
    assert len(used) == CHECKS // EVERY
    first, half, last = used[0], used[len(used) // 2], used[-1]
    # Allocators take what they need in steps; what leaks would go on doing so.
    assert last.server_bytes - first.server_bytes < 16 << 20
    assert last.server_bytes - half.server_bytes < 1 << 20
    # A question and its answer are kept, so as not to be asked again: 2 KiB.
    assert last.parent_bytes - first.parent_bytes < 16 << 20
    assert last.parent_bytes - half.parent_bytes < 4 << 20
    assert last.output_files == first.output_files
    assert max(u.temporary_files for u in used) <= first.temporary_files


def check_all(context: RunContext, subject: Subject) -> None:
    """Ask about candidates at random, each another one."""
    reducer = Reducer(
        subject.whole,
        Asker(oracle_for(subject), budget=context.budget, journal=context.journal),
        [],
        listener=context.listener,
    )
    draw, names = random.Random(0), subject.whole.operators
    with suppress(BudgetExhausted):
        while True:
            some = frozenset(draw.sample(names, draw.randint(2, len(names) // 2)))
            reducer.ask("at random", apply(subject.whole, [Drop(some)]))
