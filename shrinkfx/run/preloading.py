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
from weakref import WeakKeyDictionary

from shrinkfx import scratch
from shrinkfx.check.client.server import Server
from shrinkfx.check.oracle import Asks, Limits, Meter
from shrinkfx.errors import BudgetExhausted
from shrinkfx.protocol.answers import Answer
from shrinkfx.protocol.descriptions import Printed, Registered
from shrinkfx.protocol.requests import Request
from shrinkfx.protocol.tasks import RunPreload
from shrinkfx.report.carried import Carried, Cut, Preload, Unit
from shrinkfx.report.carrying import carry
from shrinkfx.report.definitions import BUILT_IN
from shrinkfx.report.record import RunRecord
from shrinkfx.report.repro import write_registrations
from shrinkfx.run.context import RunContext

MAX_QUERIES, MAX_SECONDS = 40, 240.0
"""What may be asked about preloads; a question takes a CPU-second or two."""

PART_OF_THE_REST = 3
"""By what is left of the minutes is divided: the repro is yet to be written and run."""

_CUTS: WeakKeyDictionary[Server, dict[frozenset[str], list[Cut]]] = WeakKeyDictionary()
"""What is known for the program that a server holds, by the operators of preloads that
are left: an earlier step of the search often has the same ones."""


@dataclass(frozen=True)
class Effect:
    """What a preload does, as far as this program and its compiler are concerned."""

    outcome: str
    exported: str
    changes: Mapping[str, str]
    registered: frozenset[str]
    modules: frozenset[str]
    files: frozenset[str]
    elsewhere: frozenset[str] = frozenset()

    @classmethod
    def of(cls, said: Answer | None) -> Effect | None:
        """Take a worker's answer; None if it came to none."""
        if not isinstance(said, Registered):
            return None
        return cls(
            outcome=said.outcome,
            exported=said.exported,
            changes=said.changes,
            registered=frozenset(said.registered),
            modules=frozenset(said.modules),
            files=frozenset(said.files),
            elsewhere=frozenset(said.elsewhere),
        )

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
class PreloadOracle:
    """Asks a worker what registering operators in some way does.

    Attributes:
        note: is told when the first question is asked.
        questions: how many were asked.
    """

    server: Asks
    limits: Limits
    meter: Meter
    program: Path
    operators: Sequence[str]
    record: RunRecord
    note: Callable[[str], None] = lambda _: None
    deadline: float = field(default_factory=lambda: time.monotonic() + MAX_SECONDS)
    questions: int = 0

    @property
    def is_tired(self) -> bool:
        return self.questions >= MAX_QUERIES or self._seconds_left <= 1

    @property
    def _seconds_left(self) -> float:
        return max(1.0, self.deadline - time.monotonic())

    def effect(self, carried: Carried) -> Effect | None:
        """Run what registers operators in an empty folder, then the program.

        Returns:
            None if it came to no end, or if the time is up.
        """
        if not self.questions:
            self.note("looking for what of the preloads the operators need")
        self.questions += 1
        text = write_registrations(self.record, carried.definitions, carried.unpacking)
        with scratch.folder("preload") as folder:
            script = Path(folder) / "repro.py"
            script.write_text(text, encoding="utf-8")
            for name, file in carried.files.items():
                shutil.copy(file, Path(folder) / name)
            request = Request(
                RunPreload(
                    str(script), str(self.program.resolve()), tuple(self.operators)
                ),
                timeout_s=self.limits.timeout_s,
                max_rss_bytes=self.limits.max_rss_bytes,
                clock_s=self._seconds_left,
            )
            try:
                ending = self.server.ask(request)
            except BudgetExhausted:  # what is known has yet to be written
                self.deadline = time.monotonic()
                return None
            return Effect.of(self.meter.add(ending).answer)


def ways_to_carry(
    context: RunContext,
    server: Server,
    bare: Asks,
    limits: Limits,
    printed: Printed,
    record: RunRecord,
) -> list[Carried]:
    """List ways to carry the preloads of a run into its repro, the smallest first."""
    preloads = preloads_of(context, server)
    if not preloads:
        return [Carried()]
    operators = [_qualified(target) for target in printed.targets]
    program = context.out / "minimal.pt2"
    meter = context.meters["verify"]
    deadline = time.monotonic() + seconds_for(
        context.budget.spare_s - context.budget.pace_s
    )
    judge = PreloadOracle(
        bare, limits, meter, program, operators, record, context.note, deadline
    )

    def made(cut: Cut) -> Carried:
        return carry(preloads, server.ready.beside, operators, cut)

    cuts = _CUTS.setdefault(server, {})
    custom = frozenset(name for name in operators if not name.startswith(BUILT_IN))
    if custom not in cuts:
        cuts[custom] = smallest_first(made, judge, operators)
    return distinct([made(cut) for cut in cuts[custom]])


def seconds_for(left_s: float) -> float:
    """Say how long to ask, of the time that a run still has besides running a repro."""
    return min(MAX_SECONDS, max(0.0, left_s) / PART_OF_THE_REST)


def smallest_first(
    made: Callable[[Cut], Carried],
    judge: PreloadOracle,
    operators: Sequence[str],
) -> list[Cut]:
    """Cut as far as eager allows; what is surer than that comes after it.

    Nothing is asked where there is nothing to cut, nor to be missed. What does not even
    register the operators is not cut, nor what does not return the same twice.
    """
    whole = Cut(whole=True)
    sliced = made(Cut())
    doubts = sliced.units, sliced.modules, sliced.files, sliced.absent
    if judge.is_tired or not any(doubts):
        return [Cut(), whole]
    before = judge.effect(sliced)
    if before is None:  # a line too few, or a crash that is none of its
        of_whole = None if judge.is_tired else judge.effect(made(whole))
        if of_whole is None:
            return [Cut(), whole]
        return [replace(whole, elsewhere=of_whole.elsewhere)]
    if sliced.modules and not _does_as(made(whole), before, judge, operators):
        return [Cut(), whole]
    trials = _Trials(made, judge, operators, before, last=before)
    gone = droppable(sliced.units, lambda some: trials.suffice(without(some)), judge)
    cut = without(gone)
    used = replace(cut, modules=trials.last.modules, files=trials.last.files)
    if made(used) != made(cut) and trials.suffice(used):
        cut = used
    apart, in_one = cut, replace(cut, joined=True)
    if made(in_one).modules != made(cut).modules and trials.suffice(in_one):
        cut = in_one
    surer = (replace(each, elsewhere=before.elsewhere) for each in (Cut(), whole))
    least = dict.fromkeys((cut, apart))
    return [*(replace(c, elsewhere=trials.last.elsewhere) for c in least), *surer]


def _does_as(
    uncut: Carried, sliced: Effect, judge: PreloadOracle, operators: Sequence[str]
) -> bool:
    """Tell whether slices of modules do what these do: texts do not tell all."""
    effect = None if judge.is_tired else judge.effect(uncut)
    return effect is not None and effect.is_kept_by(sliced, operators)


@dataclass
class _Trials:
    """Compares cuts with what was there before; ``last`` is what the last one did."""

    made: Callable[[Cut], Carried]
    judge: PreloadOracle
    operators: Sequence[str]
    before: Effect
    last: Effect

    def suffice(self, cut: Cut) -> bool:
        seen = self.judge.effect(self.made(cut))
        if seen is None or not self.before.is_kept_by(seen, self.operators):
            return False
        self.last = seen
        return True


def distinct(ways: Sequence[Carried]) -> list[Carried]:
    """Leave out what would make the same script as one before it."""
    texts = [([part.text for part in way.definitions], way.unpacking) for way in ways]
    return [way for i, way in enumerate(ways) if texts[i] not in texts[:i]]


def droppable(
    units: Sequence[Unit], fine: Callable[[Sequence[Unit]], bool], judge: PreloadOracle
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


def without(units: Sequence[Unit]) -> Cut:
    """Leave out what has been shown to have no effect."""
    preloads = frozenset(name for name, line, _ in units if not line)
    return Cut(acts=frozenset(unit for unit in units if unit[1]), preloads=preloads)


def preloads_of(context: RunContext, server: Server) -> list[Preload]:
    """Say where custom operators come from."""
    files = server.ready.preload_files
    return [
        Preload(name, Path(files[name]) if files.get(name) else None)
        for name in context.options.preload
    ]


def _qualified(target: str) -> str:
    """Turn ``mylib.mix.default`` into ``mylib::mix``."""
    namespace, _, rest = target.partition(".")
    return f"{namespace}::{rest.partition('.')[0]}"
