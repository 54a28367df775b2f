"""Run the failing program again to find the operators that the failure comes from."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from shrinkfx.check.limits import UNLIMITED, Allowance
from shrinkfx.check.oracle import RUNS_PER_CHILD, CheckClient
from shrinkfx.errors import BudgetExhausted
from shrinkfx.failure.blame import Evidence, rank_suspects
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import Signature, Stage
from shrinkfx.program.candidate import Candidate, is_view_or_copy
from shrinkfx.program.skeleton import FEEDS, Role, Skeleton
from shrinkfx.protocol.answers import Checked, Ending
from shrinkfx.protocol.requests import CheckCandidate

_PRINTER = {"aot_inductor.debug_intermediate_value_printer": "3"}
"""Prints each kernel launch before and after it, without values."""

_COPIES = 8
"""Copies of each returned value: compiled, eager twice, and in float64."""


def collect_evidence(
    client: CheckClient,
    input_program: Candidate,
    target: Signature,
    known: Evidence,
    note: Callable[[str], None],
    seconds: float = 0.0,
    budget: Allowance = UNLIMITED,
) -> Evidence:
    """Compile the program again if the evidence names no operator, four times at most.

    A wrong result is traced to the first wrong value, and a silent crash to the kernel
    that was running.

    Args:
        input_program: the candidate of the whole input program.
        target: the failure.
        known: the evidence so far.
        note: takes progress messages.
        seconds: the time to compile the program.
        budget: if it is short, the search begins without further evidence.

    Returns:
        The evidence with what was found.
    """
    again = _Rerun(input_program, note, seconds, budget)
    if target.stage is Stage.COMPARE:
        return _with_values(again, client, target, known)
    has_names = bool(rank_suspects(known, input_program.skeleton, target))
    if has_names or target.stage is not Stage.RUN or client.options.probe:
        return known
    printing = {**client.options.inductor, **_PRINTER}
    what = "running the program once more, and logging each kernel launch"
    ending = again.run(what, client.with_options(inductor=printing), input_program)
    shows = ending is not None and target.admits(classify_ending(ending).signature)
    return replace(known, printed=ending.log) if ending and shows else known


@dataclass(frozen=True)
class _Rerun:
    """Compiles and runs the failing program again while there is time."""

    input_program: Candidate
    note: Callable[[str], None]
    seconds: float
    budget: Allowance

    def run(
        self, what: str, client: CheckClient, candidate: Candidate
    ) -> Ending | None:
        """Run the program; a flaky one until it fails, in one process at most."""
        share = self.budget.share()
        if self.seconds > share:
            self.note(f"localizing: not enough time left, skipped {what}")
            return None
        self.note(f"localizing: {what}")
        often = client.with_options(runs=RUNS_PER_CHILD)
        request = CheckCandidate(candidate.to_json())
        with contextlib.suppress(BudgetExhausted):
            return often.with_clock_limit(share).ask(request)
        return None


def _with_values(
    again: _Rerun, client: CheckClient, target: Signature, known: Evidence
) -> Evidence:
    """Return all intermediate values, and compare them with eager's.

    Of equal layers, the first one is compiled alone, which takes a fraction of the
    time. If that passes, the whole program is compiled. A wrong value in the first
    layer ends this, although another layer may have the failure; suspects only order
    the search. A returned value is not fused away, which may hide the failure; in that
    case, fewer values are returned. If memory is short, views and copies of inputs and
    weights are omitted, because they may be as large; they count as correct.
    """
    skeleton = again.input_program.skeleton
    omitted: set[str] = set()

    def fit(names: Sequence[str]) -> bool:
        size = sum(skeleton.node(name).nbytes for name in names)
        return size * _COPIES <= client.limits.max_rss_bytes

    values = _values_of(again.input_program)
    if not fit(values):
        omitted = _list_views(skeleton)
        values = [value for value in values if value not in omitted]
    rows = [(again.input_program, taps) for taps in _rows(values)]
    first = _without_repeated_operators(again.input_program)
    if first is not None and fit([*_values_of(first), *first.inputs]):
        rows.insert(0, (first, _values_of(first)))
    for candidate, taps in rows:
        if not taps or not fit(taps):
            continue
        what = f"comparing {len(taps)} intermediate values with eager"
        ending = again.run(what, client.with_options(taps=tuple(taps)), candidate)
        if ending is None:
            break
        answer = ending.answer
        differing = answer.differing if isinstance(answer, Checked) else ()
        if differing and target.admits(classify_ending(ending).signature):
            others = candidate.feeds if candidate is first else skeleton.outputs
            right = dict.fromkeys([*taps, *others, *omitted])
            agreeing = tuple(v for v in right if v not in differing)
            return replace(known, differing=differing, agreeing=agreeing)
    return known


def _values_of(candidate: Candidate) -> list[str]:
    """List the tensors that the operators of a candidate return."""
    return [v for name in candidate.operators for v in candidate.skeleton.values(name)]


_RADIUS = 3
"""Operators are equal if their targets and types agree, and so do those of what they
read, up to this distance. Other arguments are not compared."""

_WORTH = 2
"""Factor by which operators must become fewer for a compilation of a part."""


def _without_repeated_operators(input_program: Candidate) -> Candidate | None:
    """Return a candidate with the first one of equal operators, such as one layer.

    Returns:
        None if that leaves more than half of the operators.
    """
    skeleton = input_program.skeleton
    nodes = list(map(skeleton.node, skeleton.graph))
    looks = {n.name: hash((n.role, n.target, n.value)) for n in nodes}
    for _ in range(_RADIUS):
        looks = {
            n.name: hash((looks[n.name], *map(looks.__getitem__, n.operands)))
            for n in nodes
        }
    firsts = {looks[name]: name for name in reversed(input_program.operators)}
    if len(firsts) * _WORTH > len(input_program.operators):
        return None
    return replace(input_program, keep=frozenset(firsts.values())).normalised()


def _list_views(skeleton: Skeleton) -> set[str]:
    """List the operators that only view or copy inputs and weights."""
    views: set[str] = set()
    for name in skeleton.operators:
        node = skeleton.node(name)
        given = all(
            operand in views or skeleton.node(operand).role in _GIVEN
            for operand in node.operands
        )
        if given and is_view_or_copy(node.target):
            views.add(name)
    return views


_GIVEN = FEEDS | {Role.SIZE}


def _rows(values: list[str]) -> Iterator[list[str]]:
    """Yield lists of values to return: all, every n-th, and those half-way between.

    If returning a few values hides the failure, one of these values is among the
    failing operators. Those are few, so the other list probably contains none of them.
    """
    yield values
    step = math.isqrt(len(values))
    if step > 1:
        yield values[::step]
        yield values[step // 2 :: step]
