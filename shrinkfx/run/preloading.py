"""Find the parts of the preloads that a result needs, as eager and export show it.

A statement with a side effect can go if the program runs as before without it, export
produces the same, and nothing else in PyTorch changes, except about operators that were
removed. Eager alone runs neither a lowering nor a fake kernel, so the worker also
compares the state of PyTorch with the state before.

Cuts of preloads are compared by their effect. Halves are removed first, then smaller
parts, so that few queries suffice if much or nothing can go.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol
from weakref import WeakKeyDictionary

from shrinkfx.check.client.server import Server
from shrinkfx.check.oracle import Limits, Meter, RequestHandler
from shrinkfx.errors import BudgetExhausted
from shrinkfx.preloads.bundle_builder import build_bundle
from shrinkfx.preloads.custom_code_sources import find_custom_code
from shrinkfx.preloads.definitions import BUILT_IN
from shrinkfx.preloads.preload_bundle import Preload, PreloadBundle, PreloadCut, Unit
from shrinkfx.protocol.answers import Answer, Printed, Registered
from shrinkfx.protocol.requests import Request, RunPreload
from shrinkfx.report.record import RunRecord
from shrinkfx.report.repro import write_registrations
from shrinkfx.run.context import RunContext
from shrinkfx.search.asker import Budget
from shrinkfx.system import scratch
from shrinkfx.system.output_folder import minimal_program

MAX_QUERIES, MAX_SECONDS = 40, 240.0
"""Maximum number and time of queries about preloads; one takes 1 to 2 CPU-seconds."""


_BUILDS = re.compile(
    r"torch\.utils\.cpp_extension |torch(\.utils)? "
    r"(_appdirs|_cpp_extension_versioner|cpp_extension|file_baton)\Z"
)
"""State of PyTorch that changes with the import of ``torch.utils.cpp_extension``, which
compiles libraries and takes no part in a program.
"""


@dataclass(frozen=True)
class Effect:
    """The effect of a preload on this program and its compiler."""

    outcome: str
    exported: str
    changes: Mapping[str, str]
    registered: frozenset[str]
    modules: frozenset[str]
    files: frozenset[str]
    elsewhere: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()

    @classmethod
    def of(cls, answer: Answer | None) -> Effect | None:
        """Convert a worker's answer; return None if it reports no registration."""
        if not isinstance(answer, Registered):
            return None
        return cls(
            outcome=answer.outcome,
            exported=answer.exported,
            changes={p: v for p, v in answer.changes.items() if not _BUILDS.match(p)},
            registered=frozenset(answer.registered),
            modules=frozenset(answer.modules),
            files=frozenset(answer.files),
            elsewhere=frozenset(answer.elsewhere),
            own=frozenset(answer.own),
        )

    def without(self, places: Set[str]) -> Effect:
        """Return this effect without the changes at some places."""
        rest = {k: v for k, v in self.changes.items() if k not in places}
        return replace(self, changes=rest, own=self.own - places)

    def is_kept_by(self, other: Effect | None, operators: Sequence[str]) -> bool:
        """Return whether another effect is the same, as far as ``operators`` matter."""
        if other is None:
            return False
        same = (other.outcome, other.exported) == (self.outcome, self.exported)
        unused = {name.partition(".")[0] for name in self.registered} - set(operators)
        patterns = [re.escape(name).replace("::", r"\W+") for name in sorted(unused)]
        allowed = re.compile(rf"\b({'|'.join(patterns) or '(?!)'})\b")
        before, after = self.changes.items(), other.changes.items()
        return same and all(allowed.search(place) for place, _ in before ^ after)


@dataclass
class PreloadOracle:
    """Queries a worker for the effect of registering operators in some way.

    Attributes:
        note: receives a line at the first query.
        questions: number of queries.
    """

    server: RequestHandler
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

    def effect(self, carried: PreloadBundle) -> Effect | None:
        """Register operators in an empty folder, then run the program.

        Returns:
            The effect; None if the run did not end, or if the time is up.
        """
        if not self.questions:
            self.note("collecting the needed parts of the preloaded modules")
        self.questions += 1
        text = write_registrations(self.record, carried.definitions, carried.unpacking)
        with scratch.make_scratch_folder("preload") as folder:
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
            except BudgetExhausted:  # the repro has yet to be written
                self.deadline = time.monotonic()
                return None
            return Effect.of(self.meter.add(ending).answer)


PART_OF_THE_REST = 3
"""Divisor of the remaining time, because the repro is yet to be written and run."""

_BARE_CUT_RUNS = 8
"""Runs of a repro for which there must be time to try it without the user's code in the
compiler: as source and as embedded program, and the other ways after it.
"""

_CUTS: WeakKeyDictionary[Server, dict[frozenset[str], list[PreloadCut]]] = (
    WeakKeyDictionary()
)
"""Known cuts for the program of a server, by the custom operators that remain; an
earlier step of the search often has the same ones.
"""


def ways_to_carry(
    context: RunContext,
    server: Server,
    bare: RequestHandler,
    limits: Limits,
    printed: Printed,
    record: RunRecord,
    fails: Callable[[PreloadBundle], bool | None] | None = None,
) -> list[PreloadBundle]:
    """Return ways to carry the preloads of a run into its repro, the smallest first.

    Args:
        fails: returns whether a script fails as expected, with less effort than a run
            of a repro; None if there is no such test. It may raise ``BudgetExhausted``.
    """
    preloads = preloads_of(context, server)
    if not preloads:
        return [PreloadBundle()]
    operators = [_qualified(target) for target in printed.targets]
    program = minimal_program(context.out)
    meter = context.meters["verify"]
    deadline = time.monotonic() + seconds_for(
        context.budget.spare_s - context.budget.pace_s
    )
    judge = PreloadOracle(
        bare, limits, meter, program, operators, record, context.note, deadline
    )

    def made(cut: PreloadCut) -> PreloadBundle:
        return build_bundle(preloads, server.ready.uninstalled_files, operators, cut)

    cuts = _CUTS.setdefault(server, {})
    custom = frozenset(name for name in operators if not name.startswith(BUILT_IN))
    if custom not in cuts:
        cuts[custom] = smallest_first(made, judge, operators)
    if not context.budget.has(_BARE_CUT_RUNS * context.budget.pace_s):
        return distinct([made(cut) for cut in cuts[custom] if not cut.bare])
    chosen = cuts[custom]
    if fails is not None and record.failure.rate_after == 1:
        chosen = add_narrowed_cuts(
            chosen, made, CompilerCodeQueries(fails, context.budget), judge
        )
    return distinct([made(cut) for cut in chosen])


def seconds_for(spare_s: float) -> float:
    """Return the time limit for queries, given the time besides running a repro."""
    return min(MAX_SECONDS, max(0.0, spare_s) / PART_OF_THE_REST)


def smallest_first(
    made: Callable[[PreloadCut], PreloadBundle],
    judge: PreloadOracle,
    operators: Sequence[str],
) -> list[PreloadCut]:
    """Cut as far as eager allows, and append more cautious cuts.

    Without anything to cut or to miss there is no query. Preloads are not cut if they
    do not register the operators, or return different values twice.
    """
    full = PreloadCut(whole=True)
    sliced = made(PreloadCut())
    parts = sliced.units, sliced.modules, sliced.files, sliced.absent
    if judge.is_tired or not any(parts):
        return [PreloadCut(), full]
    before = judge.effect(sliced)
    if before is None:  # the slice lacks a line, or crashed for another reason
        full_effect = None if judge.is_tired else judge.effect(made(full))
        if full_effect is None:
            return [PreloadCut(), full]
        return [replace(full, elsewhere=full_effect.elsewhere)]
    if sliced.modules and not _does_as(made(full), before, judge, operators):
        return [PreloadCut(), full]
    trials = Trials(made, judge, operators, before, last=before)
    dropped = find_droppable_units(
        sliced.units, lambda some: trials.suffice(cut_without_units(some)), judge
    )
    cut = cut_without_units(dropped)
    used = replace(cut, modules=trials.last.modules, files=trials.last.files)
    if made(used) != made(cut) and trials.suffice(used):
        cut = used
    separate, in_one = cut, replace(cut, joined=True)
    if made(in_one).modules != made(cut).modules and trials.suffice(in_one):
        cut = in_one
    cautious = (
        replace(each, elsewhere=before.elsewhere) for each in (PreloadCut(), full)
    )
    least = [*_as_sources(cut, trials), *dict.fromkeys((cut, separate))]
    cuts = [*(replace(c, elsewhere=trials.last.elsewhere) for c in least), *cautious]
    return [*yield_bare_cut_first(cuts, trials)] if trials.last.own else cuts


def _as_sources(cut: PreloadCut, trials: Trials) -> Iterator[PreloadCut]:
    """Yield a cut that carries C++ as source, if that has the effect of the library.

    This is tested last and once, because compiling takes longer than all else.
    """
    compiled = replace(cut, compiles=True, joined=True, modules=None, files=None)
    if trials.made(compiled).compiles and trials.suffice(compiled):
        yield compiled


def _does_as(
    uncut: PreloadBundle, sliced: Effect, judge: PreloadOracle, operators: Sequence[str]
) -> bool:
    """Return whether whole modules have the effect of their slices."""
    effect = None if judge.is_tired else judge.effect(uncut)
    return effect is not None and effect.is_kept_by(sliced, operators)


def distinct(ways: Sequence[PreloadBundle]) -> list[PreloadBundle]:
    """Remove ways that would produce the same script as an earlier one."""
    texts = [([part.text for part in way.definitions], way.unpacking) for way in ways]
    return [way for i, way in enumerate(ways) if texts[i] not in texts[:i]]


def preloads_of(context: RunContext, server: Server) -> list[Preload]:
    """Return the preloads of a run, with their files."""
    files = server.ready.preload_files
    return [
        Preload(name, Path(files[name]) if files.get(name) else None)
        for name in context.options.preload
    ]


def _qualified(target: str) -> str:
    """Convert ``mylib.mix.default`` to ``mylib::mix``."""
    namespace, _, rest = target.partition(".")
    return f"{namespace}::{rest.partition('.')[0]}"


# Find out which of the user's code in the compiler a failure needs.
#
#     bare      without any of it: if the failure remains, the code is not to blame
#     narrowed  the part that remains after halves, then smaller parts, are removed
#     the rest  all that preloads have registered
#
# A narrowed part is judged by whether the failure shows, because eager runs none of
# it.

MAX_QUESTIONS = 16
"""Maximum number of queries. They find one of up to eight statements, or two of
four.
"""

_RUNS_THAT_FOLLOW = 8
"""Runs of a repro for which there must be time after each query."""


def yield_bare_cut_first(
    cuts: Sequence[PreloadCut], trials: Trials
) -> Iterator[PreloadCut]:
    """Yield first a cut that leaves the compiler as it is, then all others.

    If the repro of that cut fails, the user's code in the compiler is not to blame; if
    it does not, the failure needs that code.
    """
    user_code, first, least = trials.last.own, cuts[0], _smallest_cheap_cut(cuts)
    units = trials.made(least).units
    trials = replace(trials, besides=user_code)
    dropped = find_droppable_units(
        units, lambda some: trials.suffice(_less(least, some)), trials.judge
    )
    custom = find_custom_code(user_code, dropped)
    if dropped and not trials.last.own:
        as_first = replace(
            _less(least, dropped), compiles=first.compiles, joined=first.joined
        )
        yield replace(as_first, modules=first.modules, files=first.files, bare=True)
    yield from (replace(cut, in_compiler=custom) for cut in cuts)


def _smallest_cheap_cut(cuts: Sequence[PreloadCut]) -> PreloadCut:
    """Return the smallest cut that does not compile C++ when it starts."""
    return next(cut for cut in cuts if not (cut.compiles or cut.bare))


def _less(cut: PreloadCut, gone: Sequence[Unit]) -> PreloadCut:
    units = cut_without_units(gone)
    return replace(
        cut, acts=cut.acts | units.acts, preloads=cut.preloads | units.preloads
    )


@dataclass
class CompilerCodeQueries:
    """Queries whether the failure shows with preloads carried in some way.

    Attributes:
        fails: runs a script with these preloads; returns None without a verdict.
        queries: number of queries.
    """

    fails: Callable[[PreloadBundle], bool | None]
    budget: Budget
    queries: int = 0
    _is_over: bool = False

    @property
    def is_tired(self) -> bool:
        needed = _RUNS_THAT_FOLLOW * self.budget.pace_s
        exhausted = self._is_over or self.queries >= MAX_QUESTIONS
        return exhausted or not self.budget.has(needed)

    def is_enough(self, carried: PreloadBundle) -> bool:
        """Return whether the failure shows with these preloads; False if unknown."""
        self.queries += 1
        try:
            return bool(self.fails(carried))
        except BudgetExhausted:  # the repro has yet to be written
            self._is_over = True
            return False


def add_narrowed_cuts(
    cuts: Sequence[PreloadCut],
    made: Callable[[PreloadCut], PreloadBundle],
    questions: CompilerCodeQueries,
    judge: PreloadOracle,
) -> list[PreloadCut]:
    """Add cuts with only the user's code in the compiler that the failure needs.

    A single place in the compiler is not tested.

    Args:
        cuts: the first one is bare, if there is code that can be removed.
    """
    bare, *rest = cuts
    if not bare.bare or len(rest[0].in_compiler.places) < _LEAST_TO_CHOOSE_FROM:
        return [*cuts]
    first, least = rest[0], _smallest_cheap_cut(rest)
    acts = bare.acts - least.acts
    names = bare.preloads - least.preloads
    units = [u for u in made(least).units if u in acts or (u[0] in names and not u[1])]
    dropped = find_droppable_units(
        units, lambda some: questions.is_enough(made(_less(least, some))), questions
    )
    if (
        not 0 < len(dropped) < len(units)
    ):  # all is needed, or the bare cut seems to fail
        return [*cuts]
    effect = None if judge.is_tired else judge.effect(made(_less(least, dropped)))
    remaining = effect.own & set(first.in_compiler.places) if effect else None
    if not remaining:
        return [*cuts]
    custom = find_custom_code(
        remaining, [unit for unit in units if unit not in dropped]
    )
    ways = (replace(_less(c, dropped), in_compiler=custom) for c in (first, least))
    return [bare, *dict.fromkeys(ways), *rest]


_LEAST_TO_CHOOSE_FROM = 2


class Tires(Protocol):
    """An oracle that answers queries until its time is up."""

    @property
    def is_tired(self) -> bool: ...


@dataclass
class Trials:
    """Compares cuts with the uncut preloads, except for changes at some places.

    Attributes:
        last: the effect of the last cut that was sufficient.
        besides: places whose changes do not count.
    """

    made: Callable[[PreloadCut], PreloadBundle]
    judge: PreloadOracle
    operators: Sequence[str]
    before: Effect
    last: Effect
    besides: frozenset[str] = frozenset()

    def suffice(self, cut: PreloadCut) -> bool:
        effect = self.judge.effect(self.made(cut))
        if effect is None:
            return False
        wanted, actual = (each.without(self.besides) for each in (self.before, effect))
        if not wanted.is_kept_by(actual, self.operators):
            return False
        self.last = effect
        return True


def find_droppable_units(
    units: Sequence[Unit], fine: Callable[[Sequence[Unit]], bool], judge: Tires
) -> list[Unit]:
    """Return units that can go together; try halves first, a file's last ones first."""
    dropped: list[Unit] = []
    size = len(units)
    while size:
        remaining = [unit for unit in units if unit not in dropped]
        for end in range(len(remaining), 0, -size):
            chunk = remaining[max(0, end - size) : end]
            if judge.is_tired:
                return dropped
            if fine([*dropped, *chunk]):
                dropped += chunk
        size //= 2
    return dropped


def cut_without_units(units: Sequence[Unit]) -> PreloadCut:
    """Return a cut without units that have no effect."""
    preloads = frozenset(name for name, line, _ in units if not line)
    return PreloadCut(
        acts=frozenset(unit for unit in units if unit[1]), preloads=preloads
    )
