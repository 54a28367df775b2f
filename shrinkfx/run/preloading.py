"""Find the parts of the preloads that a result needs, as eager and export show it.

A statement can go if the program runs as before without it, export produces the same,
and nothing else in PyTorch changes, except about operators that were removed. Eager
alone runs neither a lowering nor a fake kernel, so the worker also compares the state
of PyTorch with the state before.

Halves are removed first, then smaller parts, so that few queries suffice if much or
nothing can go. A statement that names an operator of the program is not tested.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol
from weakref import WeakKeyDictionary

from shrinkfx.check.client.server import Server
from shrinkfx.check.oracle import CheckClient
from shrinkfx.errors import BudgetExhausted
from shrinkfx.preloads.bundle_builder import build_bundle
from shrinkfx.preloads.custom_code_sources import find_custom_code
from shrinkfx.preloads.preload_bundle import Preload, PreloadBundle, PreloadCut, Unit
from shrinkfx.protocol.answers import Printed, Registered
from shrinkfx.protocol.requests import RunPreload
from shrinkfx.report.record import RunRecord
from shrinkfx.report.repro import write_registrations
from shrinkfx.run.context import RunContext
from shrinkfx.search.asker import Budget
from shrinkfx.system import scratch
from shrinkfx.system.folders import minimal_program

MAX_QUERIES, MAX_SECONDS = 40, 240.0
"""Maximum number and time of queries about preloads; one takes 1 to 2 CPU-seconds."""

MAX_QUESTIONS = 16
"""Maximum number of queries about code in the compiler. They find one of up to eight
statements, or two of four.
"""

_PART_OF_THE_REST = 3
"""Divisor of the remaining time, because the repro is yet to be written and run."""

_RUNS_THAT_FOLLOW = 8
"""Runs of a repro for which there must be time to try it without the user's code in the
compiler: as source and as embedded program, and the other ways after it.
"""

_BUILT_IN = ("aten::", "prim::", "prims::")

_BUILDS = re.compile(
    r"torch\.utils\.cpp_extension |torch(\.utils)? "
    r"(_appdirs|_cpp_extension_versioner|cpp_extension|file_baton)\Z"
)
"""State of PyTorch that changes with the import of ``torch.utils.cpp_extension``, which
compiles libraries and takes no part in a program.
"""

Build = Callable[[PreloadCut], PreloadBundle]


def has_same_effect(
    before: Registered,
    now: Registered,
    operators: Collection[str],
    besides: Collection[str] = (),
) -> bool:
    """Return whether two effects are the same, as far as ``operators`` matter.

    Args:
        besides: places whose changes do not count.
    """
    if (before.outcome, before.exported) != (now.outcome, now.exported):
        return False
    unused = {name.partition(".")[0] for name in before.registered} - {*operators}
    allowed = _mentioning(unused)
    changed = {place for place, _ in before.changes.items() ^ now.changes.items()}
    rest = (p for p in changed.difference(besides) if not _BUILDS.match(p))
    return all(map(allowed.search, rest))


def _mentioning(operators: Collection[str]) -> re.Pattern[str]:
    """Match code or places that name an operator, as in ``mylib.mix.default``."""
    patterns = [re.escape(name).replace("::", r"\W+") for name in sorted(operators)]
    return re.compile(rf"\b({'|'.join(patterns) or '(?!)'})\b")


class Tires(Protocol):
    """An oracle that answers queries until its time is up."""

    @property
    def is_tired(self) -> bool: ...


@dataclass
class PreloadOracle:
    """Queries a worker for the effect of registering operators in some way.

    Attributes:
        client: a client of a worker without this run's environment.
        operators: the program's operators, as ``mylib::mix``.
        note: receives a line at the first query.
        questions: number of queries.
    """

    client: CheckClient
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

    def effect(self, carried: PreloadBundle) -> Registered | None:
        """Register operators in an empty folder, then run the program.

        Returns:
            The effect; None if the run did not end, or if the time is up.
        """
        if self.is_tired:
            return None
        if not self.questions:
            self.note("collecting the needed parts of the preloaded modules")
        self.questions += 1
        text = write_registrations(self.record, carried.definitions, carried.unpacking)
        with scratch.make_scratch_folder("preload") as folder:
            script = Path(folder) / "repro.py"
            script.write_text(text, encoding="utf-8")
            for name, file in carried.files.items():
                shutil.copy(file, Path(folder) / name)
            program = str(self.program.resolve())
            task = RunPreload(str(script), program, tuple(self.operators))
            try:
                ending = self.client.with_clock_limit(self._seconds_left).ask(task)
            except BudgetExhausted:  # the repro has yet to be written
                self.deadline = time.monotonic()
                return None
            answer = ending.answer
            return answer if isinstance(answer, Registered) else None


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


_CUTS: WeakKeyDictionary[Server, dict[frozenset[str], list[PreloadCut]]] = (
    WeakKeyDictionary()
)
"""Known cuts for the program of a server, by the custom operators that remain; an
earlier step of the search often has the same ones.
"""


def ways_to_carry(
    context: RunContext,
    server: Server,
    bare: CheckClient,
    printed: Printed,
    record: RunRecord,
    fails: Callable[[PreloadBundle], bool | None] | None = None,
) -> list[PreloadBundle]:
    """Return ways to carry the preloads of a run into its repro, the smallest first.

    Args:
        bare: a client of a worker without this run's environment.
        fails: returns whether a script fails as expected, with less effort than a run
            of a repro; None if there is no such test. It may raise ``BudgetExhausted``.
    """
    files, budget = server.ready.preload_files, context.budget
    preloads = [
        Preload(name, Path(files[name]) if files.get(name) else None)
        for name in context.options.preload
    ]
    if not preloads:
        return [PreloadBundle()]
    operators = [_qualified(target) for target in printed.targets]
    deadline = time.monotonic() + seconds_for(budget.spare_s - budget.pace_s)
    program = minimal_program(context.out)
    judge = PreloadOracle(bare, program, operators, record, context.note, deadline)

    def build(cut: PreloadCut) -> PreloadBundle:
        return build_bundle(preloads, server.ready.uninstalled_files, cut)

    known = _CUTS.setdefault(server, {})
    custom = frozenset(name for name in operators if not name.startswith(_BUILT_IN))
    if custom not in known:
        known[custom] = smallest_first(build, judge)
    cuts = known[custom]
    if not budget.has(_RUNS_THAT_FOLLOW * budget.pace_s):
        cuts = [cut for cut in cuts if not cut.bare]
    elif fails is not None and record.failure.rate_after == 1:
        cuts = add_narrowed_cuts(cuts, build, CompilerCodeQueries(fails, budget), judge)
    return distinct([build(cut) for cut in cuts])


def seconds_for(spare_s: float) -> float:
    """Return the time limit for queries, given the time besides running a repro."""
    return min(MAX_SECONDS, max(0.0, spare_s) / _PART_OF_THE_REST)


def distinct(ways: Sequence[PreloadBundle]) -> list[PreloadBundle]:
    """Remove ways that would produce the same script as an earlier one."""
    texts = [([part.text for part in way.definitions], way.unpacking) for way in ways]
    return [way for i, way in enumerate(ways) if texts[i] not in texts[:i]]


def _qualified(target: str) -> str:
    """Convert ``mylib.mix.default`` to ``mylib::mix``."""
    namespace, _, rest = target.partition(".")
    return f"{namespace}::{rest.partition('.')[0]}"


@dataclass
class Trials:
    """Compares cuts with the whole preloads.

    Attributes:
        last: the effect of the last cut that was sufficient.
    """

    build: Build
    judge: PreloadOracle
    before: Registered
    last: Registered

    def suffice(self, cut: PreloadCut, besides: Collection[str] = ()) -> bool:
        """Return whether a cut has the effect of the whole, except for some places."""
        now, operators = self.judge.effect(self.build(cut)), self.judge.operators
        if now is None or not has_same_effect(self.before, now, operators, besides):
            return False
        self.last = now
        return True

    def with_used_files(self, cut: PreloadCut) -> PreloadCut:
        """Add to a cut which files the last run used that are not in its folder."""
        return replace(cut, elsewhere=frozenset(self.last.elsewhere))


def smallest_first(build: Build, judge: PreloadOracle) -> list[PreloadCut]:
    """Cut as far as eager allows, and append more cautious cuts.

    Preloads are not cut if they do not register the operators, or return different
    values twice.
    """
    cut, full = PreloadCut(), PreloadCut(whole=True)
    sliced = build(cut)
    needed = _mentioning(judge.operators)
    optional = [unit for unit, code in sliced.units.items() if not needed.search(code)]
    if not (sliced.units or sliced.modules or sliced.files or sliced.absent):
        return [cut, full]
    before = judge.effect(build(full))
    if before is None:
        return [cut, full]
    full = replace(full, elsewhere=frozenset(before.elsewhere))
    trials = Trials(build, judge, before, last=before)
    if not trials.suffice(cut):  # the texts do not tell all
        return [full] if not judge.is_tired else [cut, full]
    cautious = [trials.with_used_files(cut), full]
    dropped = find_droppable_units(
        optional, lambda some: trials.suffice(_less(cut, some)), judge
    )
    cut = _less(cut, dropped)
    last = trials.last
    used = replace(cut, modules=frozenset(last.modules), files=frozenset(last.files))
    if build(used) != build(cut) and trials.suffice(used):
        cut = used
    least = [cut]
    in_one = replace(cut, joined=True)
    if build(in_one).modules != build(cut).modules and trials.suffice(in_one):
        least = [in_one, cut]
    # Compiling takes longer than all else, so it is tested last and once.
    source = replace(least[0], compiles=True, joined=True, modules=None, files=None)
    if build(source).compiles and trials.suffice(source):
        least = [source, *least]
    return add_bare_cut([*map(trials.with_used_files, least), *cautious], trials)


def find_droppable_units(
    units: Sequence[Unit], fine: Callable[[Sequence[Unit]], bool], judge: Tires
) -> list[Unit]:
    """Return units that can go together; try halves first, a file's last ones first.

    The set of all units is tried only at the beginning.
    """
    dropped: list[Unit] = []
    size = len(units)
    while size:
        remaining = [unit for unit in units if unit not in dropped]
        for end in range(len(remaining), 0, -size):
            chunk = remaining[max(0, end - size) : end]
            if judge.is_tired:
                return dropped
            some = [*dropped, *chunk]
            if (not dropped or len(some) < len(units)) and fine(some):
                dropped = some
        size //= 2
    return dropped


def _less(cut: PreloadCut, units: Collection[Unit]) -> PreloadCut:
    return replace(cut, dropped=cut.dropped.union(units))


# Find out which of the user's code in the compiler a failure needs.
#
#     bare      without any of it: if the failure remains, the code is not to blame
#     narrowed  the part that remains after halves, then smaller parts, are removed
#     the rest  all that preloads have registered
#
# A narrowed part is judged by whether the failure shows, because eager runs none of
# it.


def add_bare_cut(cuts: Sequence[PreloadCut], trials: Trials) -> list[PreloadCut]:
    """Put first a cut that leaves the compiler as it is, if preloads change it.

    If the repro of that cut fails, the user's code in the compiler is not to blame; if
    it does not, the failure needs that code.
    """
    user_code, first, least = trials.last.own, cuts[0], _smallest_cheap_cut(cuts)
    if not user_code:
        return [*cuts]
    dropped = find_droppable_units(
        [*trials.build(least).units],
        lambda some: trials.suffice(_less(least, some), user_code),
        trials.judge,
    )
    custom = find_custom_code(user_code, dropped)
    bare = [replace(_less(first, dropped), bare=True)]
    named = [replace(cut, in_compiler=custom) for cut in cuts]
    return bare * bool(dropped and not trials.last.own) + named


def _smallest_cheap_cut(cuts: Sequence[PreloadCut]) -> PreloadCut:
    """Return the smallest cut that does not compile C++ when it starts."""
    return next(cut for cut in cuts if not (cut.compiles or cut.bare))


def add_narrowed_cuts(
    cuts: Sequence[PreloadCut],
    build: Build,
    questions: CompilerCodeQueries,
    judge: PreloadOracle,
) -> list[PreloadCut]:
    """Add cuts with only the user's code in the compiler that the failure needs.

    A single place in the compiler is not tested.

    Args:
        cuts: the first one is bare, if there is code that can be removed.
    """
    bare, *rest = cuts
    if not bare.bare or len(rest[0].in_compiler.places) == 1:
        return [*cuts]
    least = _smallest_cheap_cut(rest)
    units = [u for u in build(least).units if u in bare.dropped]
    dropped = find_droppable_units(
        units, lambda some: questions.is_enough(build(_less(least, some))), questions
    )
    if not 0 < len(dropped) < len(units):  # all is needed, or the bare cut fails
        return [*cuts]
    effect = judge.effect(build(_less(least, dropped)))
    remaining = {*effect.own} & {*least.in_compiler.places} if effect else None
    if not remaining:
        return [*cuts]
    custom = find_custom_code(remaining, [u for u in units if u not in dropped])
    ways = (
        replace(_less(cut, dropped), in_compiler=custom) for cut in (rest[0], least)
    )
    return [bare, *dict.fromkeys(ways), *rest]
