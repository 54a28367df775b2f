"""Thousands of checks by a real server, with all but the compiler real."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from haystack import save_haystack
from planting import PRELOAD, Plant, write_plants

from shrinkfx import scratch
from shrinkfx.errors import BudgetExhausted
from shrinkfx.options import Options
from shrinkfx.program.edits import Drop, Edit
from shrinkfx.program.view import View
from shrinkfx.run.job import Job
from shrinkfx.run.session import at_work
from shrinkfx.run.subject import Subject, find_subject
from shrinkfx.search.events import Checked, Event
from shrinkfx.search.reducer import Reducer

CHECKS = 2000
EVERY = 200


class DropsTriples:
    """Propose thousands of edits, none of which leaves what the failure needs."""

    name = "drops_triples"
    combines = False

    def propose(self, view: View) -> Iterator[Edit]:
        triples = itertools.combinations(view.operators, 3)
        for nodes in itertools.islice(triples, CHECKS + 500):
            yield Drop(frozenset(nodes))


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


def resident_bytes(pid: int) -> int:
    """Read what a process holds in memory of its own, shared pages aside."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    fields = dict(line.split(":", 1) for line in text.splitlines()[1:])
    private = (fields[name].split()[0] for name in ("Private_Clean", "Private_Dirty"))
    return sum(map(int, private)) << 10


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
        if isinstance(event, Checked) and event.check % EVERY == 0:
            parent, worker = resident_bytes(os.getpid()), resident_bytes(server.pid)
            files = count_files(out), count_files(scratch.root())
            used.append(Use(event.check, parent, worker, *files))
            print(used[-1])

    with at_work(options, out, look) as job, job.server() as server:
        check_all(job, find_subject(job, server))
    assert len(used) == CHECKS // EVERY
    first, last = used[0], used[-1]
    assert last.parent_bytes - first.parent_bytes < 20 << 20
    assert last.server_bytes - first.server_bytes < 4 << 20
    assert last.output_files == first.output_files
    assert max(u.temporary_files for u in used) <= first.temporary_files


def check_all(job: Job, subject: Subject) -> None:
    reducer = Reducer(
        subject.whole,
        subject.oracle(),
        [DropsTriples()],
        budget=job.budget,
        journal=job.journal,
        listener=job.listener,
    )
    with pytest.raises(BudgetExhausted):
        reducer.run()
