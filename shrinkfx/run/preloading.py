"""Find out what of the preloads a result needs, with eager as judge.

A statement that acts goes if the program runs as before without it, export makes the
same of it, and nothing else in PyTorch is other than before, but for what is about
operators that are gone. Eager alone sees neither a lowering nor a fake kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from weakref import WeakKeyDictionary

from shrinkfx.check.client.server import Server
from shrinkfx.check.oracle import Asks, Limits
from shrinkfx.protocol.descriptions import Printed
from shrinkfx.report.carried import Carried, Cut, Preload
from shrinkfx.report.carrying import carry
from shrinkfx.report.definitions import BUILT_IN
from shrinkfx.report.output import minimal_program
from shrinkfx.report.record import RunRecord
from shrinkfx.run.context import RunContext
from shrinkfx.run.own_code import Questions, first_without_own, with_least_own
from shrinkfx.run.preload_effects import MAX_SECONDS, Effect, PreloadOracle
from shrinkfx.run.preload_trials import Trials, droppable, without

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
    fails: Callable[[Carried], bool | None] | None = None,
) -> list[Carried]:
    """List ways to carry the preloads of a run into its repro, the smallest first.

    Args:
        fails: tells whether a script fails as it should, with less effort than a run of
            a repro; None if nobody can. It may raise ``BudgetExhausted``.
    """
    preloads = preloads_of(context, server)
    if not preloads:
        return [Carried()]
    operators = [_qualified(target) for target in printed.targets]
    program = minimal_program(context.out)
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
    if not context.budget.has(_RUNS_WITHOUT_OWN * context.budget.pace_s):
        return distinct([made(cut) for cut in cuts[custom] if not cut.bare])
    found = cuts[custom]
    if fails is not None and record.failure.rate_after == 1:
        found = with_least_own(found, made, Questions(fails, context.budget), judge)
    return distinct([made(cut) for cut in found])


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
    trials = Trials(made, judge, operators, before, last=before)
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
    return [*first_without_own(cuts, trials)] if trials.last.own else cuts


def _as_sources(cut: Cut, trials: Trials) -> Iterator[Cut]:
    """Carry C++ that is compiled as source, if that does as the library does.

    It is asked about last, and once: to compile it takes longer than all else.
    """
    compiled = replace(cut, compiles=True, joined=True, modules=None, files=None)
    if trials.made(compiled).compiles and trials.suffice(compiled):
        yield compiled


def _does_as(
    uncut: Carried, sliced: Effect, judge: PreloadOracle, operators: Sequence[str]
) -> bool:
    """Tell whether slices of modules do what these do: texts do not tell all."""
    effect = None if judge.is_tired else judge.effect(uncut)
    return effect is not None and effect.is_kept_by(sliced, operators)


def distinct(ways: Sequence[Carried]) -> list[Carried]:
    """Leave out what would make the same script as one before it."""
    texts = [([part.text for part in way.definitions], way.unpacking) for way in ways]
    return [way for i, way in enumerate(ways) if texts[i] not in texts[:i]]


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
