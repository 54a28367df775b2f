"""Find out what of the preloads a result needs, with eager as judge.

A statement that acts goes if the program runs as before without it, export makes the
same of it, and nothing else in PyTorch is other than before, but for what is about
operators that are gone. Eager alone sees neither a lowering nor a fake kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from weakref import WeakKeyDictionary

from shrinkfx.check.client.server import Server
from shrinkfx.check.oracle import Asks, Limits
from shrinkfx.protocol.descriptions import Printed
from shrinkfx.report.carried import Carried, Cut, InCompiler, Preload, Unit
from shrinkfx.report.carrying import carry
from shrinkfx.report.definitions import BUILT_IN
from shrinkfx.report.record import RunRecord
from shrinkfx.run.context import RunContext
from shrinkfx.run.preload_effects import MAX_SECONDS, Effect, PreloadOracle

PART_OF_THE_REST = 3
"""By what is left of the minutes is divided: the repro is yet to be written and run."""

_RUNS_WITHOUT_OWN = 8
"""Runs of a repro for which there is time, where it is tried without what a user has
put into the compiler: as source and as the program itself, and the others after it."""

_CUTS: WeakKeyDictionary[Server, dict[frozenset[str], list[Cut]]] = WeakKeyDictionary()
"""What is known for the program that a server holds, by the operators of preloads that
are left: an earlier step of the search often has the same ones."""


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
    has_time = context.budget.has(_RUNS_WITHOUT_OWN * context.budget.pace_s)
    return distinct([made(cut) for cut in cuts[custom] if has_time or not cut.bare])


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
    least = [*_as_sources(cut, trials), *dict.fromkeys((cut, apart))]
    cuts = [*(replace(c, elsewhere=trials.last.elsewhere) for c in least), *surer]
    return [*_first_without_own(cuts, trials)] if trials.last.own else cuts


def _as_sources(cut: Cut, trials: _Trials) -> Iterator[Cut]:
    """Carry C++ that is compiled as source, if that does as the library does.

    It is asked about last, and once: to compile it takes longer than all else.
    """
    compiled = replace(cut, compiles=True, joined=True, modules=None, files=None)
    if trials.made(compiled).compiles and trials.suffice(compiled):
        yield compiled


def _first_without_own(cuts: Sequence[Cut], trials: _Trials) -> Iterator[Cut]:
    """Put before all others what leaves the compiler as it is.

    If its repro fails, code of a user's own there is not to blame; if it does not, that
    code is what the failure needs.
    """
    own, first = trials.last.own, cuts[0]
    least = next(cut for cut in cuts if not cut.compiles)  # which are asked about soon
    units = trials.made(least).units

    def bare(gone: Sequence[Unit]) -> Cut:
        left_out = without(gone)
        return replace(
            least,
            acts=least.acts | left_out.acts,
            preloads=least.preloads | left_out.preloads,
        )

    trials = replace(trials, besides=own)
    gone = droppable(units, lambda some: trials.suffice(bare(some)), trials.judge)
    sources = dict.fromkeys(Path(name).name for name, *_ in gone)
    found = InCompiler(tuple(sorted(own)), tuple(sources))
    if gone and not trials.last.own:
        as_first = replace(bare(gone), compiles=first.compiles, joined=first.joined)
        yield replace(as_first, modules=first.modules, files=first.files, bare=True)
    yield from (replace(cut, in_compiler=found) for cut in cuts)


def _does_as(
    uncut: Carried, sliced: Effect, judge: PreloadOracle, operators: Sequence[str]
) -> bool:
    """Tell whether slices of modules do what these do: texts do not tell all."""
    effect = None if judge.is_tired else judge.effect(uncut)
    return effect is not None and effect.is_kept_by(sliced, operators)


@dataclass
class _Trials:
    """Compares cuts with what was there before, but for what is at some places.

    Attributes:
        last: what the last one did that was enough.
        besides: the places where anything may be.
    """

    made: Callable[[Cut], Carried]
    judge: PreloadOracle
    operators: Sequence[str]
    before: Effect
    last: Effect
    besides: frozenset[str] = frozenset()

    def suffice(self, cut: Cut) -> bool:
        seen = self.judge.effect(self.made(cut))
        if seen is None:
            return False
        wanted, less = (each.without(self.besides) for each in (self.before, seen))
        if not wanted.is_kept_by(less, self.operators):
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
