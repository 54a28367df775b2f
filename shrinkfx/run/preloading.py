"""Find out what of the preloads a result needs, with eager as judge.

A statement that acts goes if the program runs as before without it, export makes the
same of it, and nothing else in PyTorch is other than before, but for what is about
operators that are gone. Eager alone sees neither a lowering nor a fake kernel.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from shrinkfx import scratch
from shrinkfx.check.oracle import Asks, Limits, Meter
from shrinkfx.check.server import Server
from shrinkfx.program.beside import Beside
from shrinkfx.program.messages import Request, Task
from shrinkfx.report.carrying import Carried, Cut, Preload, carry
from shrinkfx.report.header import About
from shrinkfx.report.repro import write_registrations
from shrinkfx.run.job import Job

MAX_QUESTIONS, MAX_SECONDS = 40, 120.0
"""What may be asked about statements of preloads; each question takes some 3 s."""

Unit = tuple[int, int]
"""A preload and the line of a statement in it, or 0 for all of it."""


@dataclass(frozen=True)
class Effect:
    """What a preload does, as far as this program and its compiler are concerned."""

    outcome: str
    exported: str
    changes: Mapping[str, str]
    registered: frozenset[str]
    modules: frozenset[str]
    files: frozenset[str]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Effect | None:
        """Read a worker's answer; None if it came to none."""
        if "changes" not in answer:
            return None
        texts = answer["outcome"], answer["exported"]
        sets = (frozenset(answer[n]) for n in ("registered", "modules", "files"))
        return cls(*texts, answer["changes"], *sets)

    def is_kept_by(self, other: Effect | None, operators: Sequence[str]) -> bool:
        """Tell whether another one does the same for ``operators``."""
        if other is None:
            return False
        same = (other.outcome, other.exported) == (self.outcome, self.exported)
        gone = {name.partition(".")[0] for name in self.registered} - set(operators)
        about = [re.escape(name).replace("::", r"\W+") for name in sorted(gone)]
        allowed = re.compile(rf"\b({'|'.join(about) or '(?!)'})\b")
        mine, theirs = self.changes.items(), other.changes.items()
        return same and all(allowed.search(place) for place, _ in mine ^ theirs)


@dataclass
class Judge:
    """Asks a worker what registering operators in some way does.

    Attributes:
        questions: how many were asked.
    """

    server: Asks
    limits: Limits
    meter: Meter
    program: Path
    operators: Sequence[str]
    about: About
    deadline: float = field(default_factory=lambda: time.monotonic() + MAX_SECONDS)
    questions: int = 0

    @property
    def is_tired(self) -> bool:
        return self.questions >= MAX_QUESTIONS or time.monotonic() > self.deadline

    def effect(self, carried: Carried) -> Effect | None:
        """Run what registers operators in an empty folder, then the program."""
        self.questions += 1
        text = write_registrations(self.about, carried.definitions, carried.unpacking)
        with scratch.folder("preload") as folder:
            script = Path(folder) / "repro.py"
            script.write_text(text)
            for name, file in carried.files.items():
                shutil.copy(file, Path(folder) / name)
            request = Request(
                Task.REGISTER,
                {
                    "path": str(script),
                    "model": str(self.program.resolve()),
                    "operators": list(self.operators),
                },
                timeout_s=min(self.limits.timeout_s, MAX_SECONDS),
                max_rss_bytes=self.limits.max_rss_bytes,
            )
            return Effect.of(self.meter.add(self.server.ask(request)).answer)


def ways_to_carry(
    job: Job,
    server: Server,
    bare: Asks,
    limits: Limits,
    printed: Mapping[str, Any],
    about: About,
) -> list[Carried]:
    """List ways to carry the preloads of a run into its repro, the smallest first."""
    preloads = preloads_of(job, server)
    if not preloads:
        return [Carried()]
    job.note("looking for what of the preloads the operators need")
    operators = [_qualified(target) for target in printed["targets"]]
    program = job.out / "minimal.pt2"
    judge = Judge(bare, limits, job.meters["verify"], program, operators, about)
    beside = Beside.from_json(server.ready.beside)

    def made(cut: Cut) -> Carried:
        return carry(preloads, beside, operators, cut)

    return smallest_first(made, judge, operators)


def smallest_first(
    made: Callable[[Cut], Carried],
    judge: Judge,
    operators: Sequence[str],
) -> list[Carried]:
    """Cut as far as eager allows; what is surer than that comes after it.

    Nothing is asked where there is nothing to cut. What does not even register the
    operators is not cut, nor what does not return the same twice.
    """
    sliced, whole = Cut(), Cut(whole=True)
    all_of_it = made(sliced)
    units, beside = all_of_it.units, all_of_it.modules or all_of_it.files
    before = judge.effect(all_of_it) if units or beside else None
    if before is None:
        return [all_of_it, made(whole)]

    def suffices(cut: Cut) -> bool:
        return before.is_kept_by(judge.effect(made(cut)), operators)

    gone = droppable(units, lambda some: suffices(_without(sliced, some)), judge)
    cut = _without(sliced, gone)
    seen = judge.effect(made(cut)) if beside else None
    if seen is not None:
        used = replace(cut, modules=seen.modules, files=seen.files)
        cut = used if suffices(used) else cut
    return [made(each) for each in dict.fromkeys((cut, sliced, whole))]


def droppable(
    units: Sequence[Unit], fine: Callable[[Sequence[Unit]], bool], judge: Judge
) -> list[Unit]:
    """Find units that may go together: halves first, the last ones of a file first."""
    gone: list[Unit] = []
    size = len(units)
    while size:
        left = [unit for unit in units if unit not in gone]
        for end in range(len(left), 0, -size):
            chunk = left[max(0, end - size) : end]
            if judge.is_tired:
                return gone
            if fine([*gone, *chunk]):
                gone += chunk
        size //= 2
    return gone


def _without(cut: Cut, units: Sequence[Unit]) -> Cut:
    preloads = {i for i, line in units if not line}
    acts = {unit for unit in units if unit[1]}
    return replace(cut, acts=cut.acts | acts, preloads=cut.preloads | preloads)


def preloads_of(job: Job, server: Server) -> list[Preload]:
    """Say where custom operators come from."""
    files = server.ready.preload_files
    return [
        Preload(name, Path(files[name]) if files.get(name) else None)
        for name in job.options.preload
    ]


def _qualified(target: str) -> str:
    """Turn ``mylib.mix.default`` into ``mylib::mix``."""
    namespace, _, rest = target.partition(".")
    return f"{namespace}::{rest.partition('.')[0]}"
